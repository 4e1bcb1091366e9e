"""What the plugin does about signals."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from hvdperf.session.plugin import pytest_sessionstart

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
