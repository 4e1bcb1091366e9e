"""Strategy `single`: plain TensorFlow on one device, without any of Horovod."""

from harness.worker.replica import ReplicaTrainer


class SingleTrainer(ReplicaTrainer):
    """See harness.worker.trainer.Trainer."""
