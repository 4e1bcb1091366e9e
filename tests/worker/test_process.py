"""The state of a process, which may end at any time."""

from __future__ import annotations

import io
import os

import pytest

from hvdperf.worker import process


def test_a_process_that_ends_while_it_is_looked_at_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Ended(io.StringIO):
        def read(self, *_: object) -> str:
            raise ProcessLookupError(3, "No such process")

    monkeypatch.setattr("builtins.open", lambda *_: Ended())
    with pytest.raises(FileNotFoundError):
        process.is_stopped(os.getpid())


def test_a_process_that_runs_is_not_stopped() -> None:
    assert not process.is_stopped(os.getpid())
