"""Shows the progress of a session: a line for each of its events, and one for what it is at if
nothing has been written for long."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

from hvdperf.session.scheduler import Doing

# Seconds without a line of progress after which the next activity is written, too.
QUIET_S = 20.0


def until(doing: Doing, now: float) -> str:
    """Return the time left at `now` (monotonic clock, seconds) in words, such as `, next look in
    40 s`. If no look is predicted, return the rest of the time, such as `, 40 s left`."""
    if doing.next_look is None:
        left = doing.ends - now
        return f", {left:.0f} s left" if left > 0 else ""
    left = doing.next_look - now
    return f", next look in {left:.0f} s" if left > 0 else ", next look due"


class ProgressReporter:
    """Reports progress through pytest's terminal reporter, if there is one.

    plugins: pytest's plugin manager. began: when the session began (monotonic clock, seconds).
    """

    def __init__(self, plugins: Any, began: float) -> None:
        self._plugins = plugins
        self._began = self._said_at = began

    def say(self, text: str) -> None:
        """Write a line of progress, past pytest's capture."""
        self._said_at = time.monotonic()
        # There is none under `-p no:terminal`.
        reporter = self._plugins.getplugin("terminalreporter")
        if reporter is None:
            return
        capture = self._plugins.getplugin("capturemanager")
        with nullcontext() if capture is None else capture.global_and_fixture_disabled():
            reporter.ensure_newline()
            reporter.write_line(f"[{self._said_at - self._began:6.1f} s] {text}")
            reporter.flush()

    def note(self, doing: Doing) -> None:
        """Write what the session is at, if nothing has been written for QUIET_S."""
        now = time.monotonic()
        if now > self._said_at + QUIET_S:
            self.say(f"{doing.where}{until(doing, now)}: {doing.what}")
