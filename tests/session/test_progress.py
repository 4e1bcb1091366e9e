"""How long it will be, as lines of progress say it."""

from __future__ import annotations

from types import SimpleNamespace

from hvdperf.session.pytest_session import QUIET_S, ProgressReporter


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
        progress.note(f"at {now[0]:.0f} s")
    assert len(written) == 2
    assert written[1].endswith(f"at {QUIET_S + 1.0:.0f} s")
