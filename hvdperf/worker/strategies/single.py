"""Strategy `single`: plain TensorFlow on one device, without any of Horovod."""

from hvdperf.worker import training
from hvdperf.worker.strategies.base import Facts
from hvdperf.worker.strategies.replica import ReplicaTrainer


class SingleTrainer(ReplicaTrainer):
    """The Trainer (base.py) of a single replica. Several passes stand in for as many replicas. The
    moving averages of those would move once per update, so `build` makes these age as slowly."""

    def build(self) -> Facts:
        facts = super().build()
        training.age_over(self.parts, self._passes)
        return facts
