"""A pytest plugin that writes the report of a session at the session's end."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdperf.report.apart import write_apart


def pytest_hvdperf_written(directory: Path, config: pytest.Config) -> str:
    return write_apart(directory, config.invocation_params.dir)
