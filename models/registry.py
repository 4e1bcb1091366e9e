"""The names of hvdperf.models that a file of one's own networks needs."""

from hvdperf.models.registry import Network, Scale, Shard, Task

__all__ = ["Network", "Scale", "Shard", "Task"]
