"""The networks that ranks train, their tasks, and the data that they are trained on.

A file of one's own networks needs no more than the names here. Nothing here imports TensorFlow.
"""

from hvdperf.models.registry import Network, Scale, Shard, Task

__all__ = ["Network", "Scale", "Shard", "Task"]
