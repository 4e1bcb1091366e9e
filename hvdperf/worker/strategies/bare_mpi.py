"""Strategy `bare`: nothing but MPI, for comparison with Horovod. Imports no TensorFlow.

It runs in processes of its own, because beside Horovod's background thread, which meets its peers
every millisecond, bare MPI takes up to six times as long.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from hvdperf.worker.collectives import Buffers, Exchange, Unavailable
from hvdperf.worker.learning import Constant
from hvdperf.worker.protocol import RankConfig

Facts = dict[str, Any]


class BareTrainer:
    """The part of a Trainer (base.py) that needs no model, and a Transport (collectives.py)."""

    rank = 0
    world_size = 1

    def __init__(self, config: RankConfig) -> None:
        self.config = config
        self.learning_rate = Constant([])
        self._comm: Any = None
        self._missing = ""

    def init(self) -> Facts:
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            # The cases that need MPI become INVALID; the launch does not fail.
            reason = " ".join(str(error).split())
            self._missing = (
                f"the ranks' interpreter has no working mpi4py ({reason}): install an mpi4py "
                "there that is built for Horovod's MPI"
            )
        else:
            self._comm = MPI.COMM_WORLD
            self.rank, self.world_size = self._comm.rank, self._comm.size
        transport = "none" if self._missing else "mpi"
        return {"rank": self.rank, "world_size": self.world_size, "transport": transport}

    def build(self) -> None:
        """Do nothing: there is no model."""

    input = trace = first_step = broadcast = build

    def barrier(self) -> None:
        self._comm.Barrier()

    def gradient_elements(self) -> Sequence[int]:
        raise ValueError("there is no model whose gradients could be exchanged")

    def exchange(self, collective: str, elements: Sequence[int], buffers: Buffers) -> Exchange:
        if self._missing:
            raise Unavailable(self._missing)
        sent, received = buffers
        part = len(sent) // self.world_size
        if collective == "broadcast":
            received[:] = sent
        act, result = {
            "allreduce": (partial(self._comm.Allreduce, sent, received), received),
            "allgather": (partial(self._comm.Allgather, sent[:part], received), received),
            "broadcast": (partial(self._comm.Bcast, received, root=0), received),
            "reducescatter": (
                partial(self._comm.Reduce_scatter_block, sent, received[:part]),
                received[:part],
            ),
        }[collective]

        def run() -> list[Any]:
            act()
            return [result]

        return run

    def evidence(self) -> Facts:
        return {"world_size": self.world_size, "learning_rate": 0.0, "digests": [""]}
