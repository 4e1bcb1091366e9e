"""Strategy `horovod`: one process a replica, gradients averaged by DistributedGradientTape."""

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

    def agree(self, variables: list[tf.Variable]) -> None:
        hvd.broadcast_variables(variables, root_rank=0)

    def barrier(self) -> None:
        hvd.allreduce(self._barrier_token, name="hvdperf.barrier")
