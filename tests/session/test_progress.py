"""How long it will be, as lines of progress say it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hvdperf.session.progress import QUIET_S, ProgressReporter, until
from hvdperf.session.scheduler import Doing


@pytest.mark.parametrize(
    ("next_look", "ends", "text"),
    [
        (130.4, 900.0, ", next look in 30 s"),
        (99.0, 900.0, ", next look due"),
        (None, 400.0, ", 300 s left"),
        (None, 100.0, ""),
    ],
)
def test_it_tells_of_the_next_look_and_until_that_is_known_of_the_budget(next_look, ends, text):
    assert until(Doing("a network", "start", next_look, ends), 100.0) == text


def test_a_long_silence_is_broken_by_what_is_going_on(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    written: list[str] = []
    reporter = SimpleNamespace(
        ensure_newline=lambda: None, write_line=written.append, flush=lambda: None
    )
    plugins = SimpleNamespace(getplugin={"terminalreporter": reporter, "capturemanager": None}.get)
    progress = ProgressReporter(plugins, 0.0)
    progress.say("start")
    for now[0] in (5.0, QUIET_S + 1.0, QUIET_S + 2.0):
        progress.note(Doing("a network", f"at {now[0]:.0f} s", None, 900.0))
    assert len(written) == 2
    assert written[1].endswith(f"at {QUIET_S + 1.0:.0f} s")
