"""Strategy `horovod`: one process per replica, gradients reduced by DistributedGradientTape."""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, Callable

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from hvdperf.worker import training
from hvdperf.worker.collectives import Buffers, Exchange
from hvdperf.worker.session_link import group_of
from hvdperf.worker.strategies.base import Facts
from hvdperf.worker.strategies.replica import ReplicaTrainer

# Operations of Horovod that ask for a rank or a size, and move nothing.
_MOVE_NOTHING = {
    *("HorovodLocalRank", "HorovodLocalSize", "HorovodProcessSetIncluded"),
    *("HorovodRank", "HorovodSize"),
}


def _moving(graph: Any) -> int:
    """Return how many operations of a graph, and of the functions that it calls, move data."""
    whole = graph.as_graph_def()
    bodies = [whole.node, *(each.node_def for each in whole.library.function)]
    kinds = [node.op for nodes in bodies for node in nodes]
    return sum(kind.startswith("Horovod") and kind not in _MOVE_NOTHING for kind in kinds)


class HorovodTrainer(ReplicaTrainer):
    """The Trainer (base.py) of Horovod, and a Transport (collectives.py)."""

    def init(self) -> Facts:
        training.set_up_devices(self.config)
        hvd.init()
        # Of a step without the exchange of its gradients, such as those of a batch normalization
        # that is synchronised over the ranks.
        self._others = 0
        self.rank, self.world_size = hvd.rank(), hvd.size()
        return group_of(hvd)

    def gradients(self, tape: tf.GradientTape, loss: tf.Tensor, sources: Any) -> Any:
        exchange = self.config.exchange
        wrapped = hvd.DistributedGradientTape(
            tape,
            compression=getattr(hvd.Compression, exchange.compression),
            op={"average": hvd.Average, "adasum": hvd.Adasum}[exchange.reduction],
            num_groups=exchange.groups,
            sparse_as_dense=exchange.sparse_as_dense,
        )
        if self.config.fault is not None and self.config.fault.kind == "skip":
            wrapped.register_local_source(self.parts[0].sources[0])
        return wrapped.gradient(loss, sources)

    def exchanged(self, gradients: Sequence[Any]) -> Any:
        return [hvd.allreduce(each, op=hvd.Average) for each in gradients]

    def trace(self) -> Facts:
        return {**super().trace(), "other_exchanges": self._others}

    def look_at(self, graph: Any) -> None:
        self._others = max(self._others, _moving(graph))

    def total(self, values: Sequence[float]) -> list[float]:
        summed = hvd.allreduce(tf.constant(values, tf.float64), op=hvd.Sum, name="hvdperf.total")
        return [float(value) for value in summed]

    def broadcast(self) -> None:
        if self.config.share_startup:
            super().broadcast()
        else:
            # This start-up is timed, so broadcast as Horovod's examples do.
            hvd.broadcast_variables(self._state(), root_rank=0)

    def agree(self, variables: list[tf.Variable]) -> None:
        # In place it is one operation. Otherwise AutoGraph converts, and TensorFlow optimizes, a
        # graph with one operation per variable first, which takes ten times as long.
        # It is keyed by the names of variables, which Keras 3 does not make unique.
        unique = len({variable.name for variable in variables}) == len(variables)
        hvd.broadcast_variables(variables, root_rank=0, inplace=unique)

    def leave_group(self) -> None:
        hvd.shutdown()

    def gradient_elements(self) -> Sequence[int]:
        return [int(np.prod(weight.shape)) for weight in training.weights(self.parts)]

    def exchange(self, collective: str, elements: Sequence[int], buffers: Buffers) -> Exchange:
        if collective == "allgather":
            elements = [count // self.world_size for count in elements]
        ends = np.cumsum(elements)
        tensors = [
            tf.constant(buffers.sent[end - count : end]) for count, end in zip(elements, ends)
        ]
        exchange = _traced(collective, tuple(elements))

        def run() -> list[tf.Tensor]:
            results = list(exchange(*tensors))
            if "GPU" in results[-1].device:
                results[-1][:1].numpy()  # waits for what the GPU still has to do
            return results

        return run


@cache
def _traced(collective: str, elements: tuple[int, ...]) -> Callable[..., Sequence[tf.Tensor]]:
    """Return the operation on all tensors as one graph, as a step exchanges its gradients."""
    act = {
        "allreduce": partial(hvd.allreduce, op=hvd.Sum),
        "allgather": hvd.allgather,
        "broadcast": partial(hvd.broadcast, root_rank=0),
        "reducescatter": partial(hvd.reducescatter, op=hvd.Sum),
    }[collective]
    name = f"hvdperf.{collective}.{sum(elements)}"

    @training.graph(input_signature=[tf.TensorSpec([count], tf.float32) for count in elements])
    def exchange(*tensors: tf.Tensor) -> list[tf.Tensor]:
        return [act(tensor, name=f"{name}.{i}") for i, tensor in enumerate(tensors)]

    return exchange.get_concrete_function()  # type: ignore[no-any-return]
