"""Strategy `single`: plain TensorFlow on one device, without any of Horovod."""

from hvdperf.worker import training
from hvdperf.worker.strategies.base import Facts
from hvdperf.worker.strategies.replica import ReplicaTrainer


class SingleTrainer(ReplicaTrainer):
    """See Trainer in base.py. Several passes take the place of as many replicas, whose averages
    would move once an update."""

    def build(self) -> Facts:
        facts = super().build()
        training.age_over(self.parts, self._passes)
        return facts
