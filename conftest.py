"""The suite's plugin. It has the fixtures that the cases in perf/ use."""

import sys

from hvdperf import pytest_addoption, pytest_plugins

__all__ = ["pytest_addoption", "pytest_plugins"]

# The pytest of another Python is found first where nobody has activated the environment.
try:
    import msgspec  # noqa: F401
except ModuleNotFoundError as missing:
    print(
        f"ERROR: {sys.executable} has no {missing.name}; activate the environment of this checkout "
        "(. ./activate), which `make env` builds",
        file=sys.stderr,
    )
    sys.exit(4)
