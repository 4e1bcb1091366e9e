"""The line about the page at a session's end: written, refused, or interrupted."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from hvdperf.report import plugin
from tests.report.test_session import GOOD
from tests.support.reports import session_of


@pytest.fixture
def directory(tmp_path, monkeypatch) -> Path:
    """The directory of a session, below the working directory."""
    monkeypatch.chdir(tmp_path)
    return session_of(tmp_path / "results", GOOD)


def instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    """Have a shell script stand in for the interpreter that writes the page."""
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\n{does}\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


def test_a_page_is_named_as_seen_from_the_working_directory(directory, tmp_path):
    said = plugin._written(directory, tmp_path)
    assert said == f"report: results/report/{directory.name}.html"
    assert (tmp_path / "results" / "report" / f"{directory.name}.html").is_file()


def test_a_page_that_is_not_written_is_a_line_with_the_command_that_writes_it(
    directory, tmp_path, monkeypatch
):
    instead(tmp_path, monkeypatch, "echo 'a warning' >&2; echo 'the disk is full' >&2; exit 2")
    assert plugin._written(directory, tmp_path) == (
        f"no report: the disk is full; to write it: hvdperf report results/runs/{directory.name}"
    )


def test_ctrl_c_ends_the_writing_and_nothing_else(directory, tmp_path, monkeypatch):
    instead(tmp_path, monkeypatch, "touch begun; exec sleep 60")

    def press() -> None:
        deadline = time.monotonic() + 10
        while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    # These tests may run in the background of a script, where Ctrl-C is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    pressing = threading.Thread(target=press)
    pressing.start()
    try:
        said = plugin._written(directory, tmp_path)
    finally:
        pressing.join()
        signal.signal(signal.SIGINT, before)
    assert said == (
        f"no report: interrupted; to write it: hvdperf report results/runs/{directory.name}"
    )
