"""Strategy `single`: plain TensorFlow on one device, without any of Horovod."""

from harness.worker import training
from harness.worker.replica import ReplicaTrainer
from harness.worker.trainer import Facts


class SingleTrainer(ReplicaTrainer):
    """See harness.worker.trainer.Trainer. Several passes take the place of as many replicas, whose
    averages would move once an update."""

    def build(self) -> Facts:
        facts = super().build()
        training.age_over(self.parts, self._passes)
        return facts
