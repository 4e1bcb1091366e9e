"""What the plugin does about signals, and about files that other plugins write."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hvdperf.session.plugin import (
    check_files_of_others,
    pytest_sessionstart,
    refuse_other_plugins,
)

SESSION: Any = None


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Those of the session that these tests are a part of, afterwards."""
    signals = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(each) for each in signals]
    yield
    for each, handler in zip(signals, before, strict=True):
        signal.signal(each, handler)


def test_a_terminal_that_is_closed_ends_the_session_as_ctrl_c_does_and_once():
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    pytest_sessionstart(SESSION)
    assert callable(signal.getsignal(signal.SIGHUP)), "it would end this process"
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGHUP)
    signal.raise_signal(signal.SIGHUP)  # and cuts nothing short that cleans up


def test_under_nohup_a_session_goes_on():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    pytest_sessionstart(SESSION)
    signal.raise_signal(signal.SIGHUP)


def test_a_file_that_was_only_checked_does_not_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("D", "expanded")
    option = SimpleNamespace(xmlpath="$D/x.xml", benchmark_json=Path("$D/x.json"))
    config: Any = SimpleNamespace(option=option)
    check_files_of_others(config)
    assert {path.name: list(path.iterdir()) for path in tmp_path.iterdir()} == {
        "expanded": [],
        "$D": [],
    }
    Path("$D/x.json").write_text("earlier")
    check_files_of_others(config)
    assert Path("$D/x.json").read_text() == "earlier"


@pytest.mark.parametrize(
    ("option", "value"),
    [("numprocesses", 2), ("tx", ["2*popen"]), ("reruns", 1), ("count", 3), ("forked", True)],
)
def test_plugins_that_repeat_spread_or_isolate_cases_are_refused(option, value):
    config: Any = SimpleNamespace(option=SimpleNamespace(**{option: value}))
    with pytest.raises(pytest.UsageError):
        refuse_other_plugins(config)
    harmless: dict[str, Any] = {"numprocesses": None, "tx": [], "reruns": None, "count": 1}
    config = SimpleNamespace(option=SimpleNamespace(**harmless))
    refuse_other_plugins(config)
