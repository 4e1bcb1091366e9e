"""A pytest plugin with which the tables at a session's end cannot be made: `-p` and this module."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_hvdperf_tables() -> None:
    raise ZeroDivisionError("made up")
