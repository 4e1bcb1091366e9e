"""The suite's plugin. It has the fixtures that the cases in perf/ use."""

from hvdperf import pytest_addoption, pytest_plugins

__all__ = ["pytest_addoption", "pytest_plugins"]
