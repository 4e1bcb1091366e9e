"""Strategy `horovod`: one process a replica, gradients averaged by DistributedGradientTape."""

from collections.abc import Sequence
from typing import Any

import horovod.tensorflow as hvd
import tensorflow as tf

from harness.worker import training
from harness.worker.replica import ReplicaTrainer
from harness.worker.trainer import Facts


class HorovodTrainer(ReplicaTrainer):
    """See harness.worker.trainer.Trainer."""

    def init(self) -> Facts:
        training.set_up_devices(self.config)
        hvd.init()
        self.rank, self.world_size = hvd.rank(), hvd.size()
        self._barrier_token = tf.zeros([])
        return {
            "rank": hvd.rank(),
            "world_size": hvd.size(),
            "transport": "mpi" if hvd.mpi_enabled() else "gloo",
            "nccl": bool(hvd.nccl_built()),
        }

    def shared(self, tape: tf.GradientTape) -> Any:
        exchange = self.config["exchange"]
        return hvd.DistributedGradientTape(
            tape,
            compression=getattr(hvd.Compression, exchange["compression"]),
            op={"average": hvd.Average, "adasum": hvd.Adasum}[exchange["reduction"]],
            num_groups=exchange["groups"],
            sparse_as_dense=exchange["sparse_as_dense"],
        )

    def exchanged(self, gradients: Sequence[Any]) -> Sequence[Any]:
        return [hvd.allreduce(gradient, op=hvd.Average) for gradient in gradients]

    def total(self, values: Sequence[float]) -> list[float]:
        summed = hvd.allreduce(tf.constant(values, tf.float64), op=hvd.Sum, name="hvdperf.total")
        return [float(value) for value in summed]

    def agree(self, variables: list[tf.Variable]) -> None:
        hvd.broadcast_variables(variables, root_rank=0)

    def leave_group(self) -> None:
        hvd.shutdown()

    def barrier(self) -> None:
        hvd.allreduce(self._barrier_token, name="hvdperf.barrier")
