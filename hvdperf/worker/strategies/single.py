"""Strategy `single`: plain TensorFlow on one device, without Horovod."""

from hvdperf.worker import training
from hvdperf.worker.strategies.base import Facts
from hvdperf.worker.strategies.replica import ReplicaTrainer


class SingleTrainer(ReplicaTrainer):
    """The Trainer (base.py) of a single replica. Several passes stand in for as many replicas. The
    moving averages of replicas move once per update, so `build` slows down those of the passes."""

    def build(self) -> Facts:
        facts = super().build()
        training.slow_averages(self.parts, self._passes)
        return facts
