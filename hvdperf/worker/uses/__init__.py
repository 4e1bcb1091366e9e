"""What people do with Horovod, each tried by a small script of its own (python -m
hvdperf.worker.uses)."""

from __future__ import annotations

from enum import Enum

# How a problem begins that no error shows.
SILENTLY = "the ranks have different"


class Use(Enum):
    """A use of Horovod, by the name that the documents have of it."""

    TAPE = "hvd.DistributedGradientTape in a loop"
    FIT = "hvd.DistributedOptimizer in model.fit"
    ALLREDUCE = "hvd.allreduce of gradients in a loop"
    BROADCAST = "hvd.broadcast_variables"
    BROADCAST_CALLBACK = "BroadcastGlobalVariablesCallback"
    METRIC_CALLBACK = "MetricAverageCallback"
    WARMUP_CALLBACK = "LearningRateWarmupCallback"
    SCHEDULE_CALLBACK = "LearningRateScheduleCallback"
    CHECKPOINT_CALLBACK = "BestModelCheckpoint"
    LOAD_KERAS = "hvd.load_model of a .keras file"
    LOAD_H5 = "hvd.load_model of an .h5 file"
    ELASTIC = "hvd.elastic"
