"""Shows the progress of a session: lines for its events, and a live line below them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from hvdperf.launch.outer import shown_by
from hvdperf.session.terminal import live_line
from hvdperf.session.workload_run import Doing

# Seconds without a line of progress after which the next activity is told, too.
QUIET_S = 60.0


def until(doing: Doing, now: float) -> str:
    """Return the time left at `now` (monotonic clock, seconds) in words, such as `, next interim
    analysis in 40 s`. If no look is predicted, return the rest of the time, such as `, 40 s
    left`."""
    if doing.next_look is None:
        left = doing.ends - now
        return f", {left:.0f} s left" if left > 0 else ""
    left = doing.next_look - now
    return f", next interim analysis in {left:.0f} s" if left > 0 else ", next interim analysis due"


class ProgressReporter:
    """Reports progress through pytest's terminal reporter, if there is one.

    plugins: pytest's plugin manager. began: when the session began (monotonic clock, seconds).
    """

    def __init__(self, plugins: Any, began: float) -> None:
        self._plugins = plugins
        self._began = began
        self._doing: Doing | str = ""
        self._line = live_line.Line(self._now)
        self._is_live, self._said_at = False, began

    def say(self, text: str) -> None:
        """Write a line of progress, past pytest's capture."""
        self._doing = text
        self._said_at = time.monotonic()
        reporter = self._reporter
        if reporter is None:
            return
        with self._uncaptured(), self._line.hidden():
            reporter.ensure_newline()
            reporter.write_line(f"{self._elapsed()} {text}")
            reporter.flush()

    def note(self, doing: Doing) -> None:
        """Set what the live line shows from now on. Without a live line, write it if nothing has
        been written for QUIET_S, as on a busy machine."""
        self._doing = doing
        if not self._is_live and time.monotonic() > self._said_at + QUIET_S:
            self.say(f"{doing.where}{until(doing, time.monotonic())}: {doing.what}")
            self._doing = doing

    @contextmanager
    def long_work(self) -> Iterator[None]:
        """Show the live line if somebody watches a terminal with markup, and did not ask for
        quiet."""
        reporter, terminal = self._reporter, None
        if reporter is not None and reporter.hasmarkup and reporter.verbosity >= 0:
            with self._uncaptured():
                terminal = live_line.open_terminal(sys.stdout, shown_by())
        self._is_live = terminal is not None
        with self._line.running(terminal):
            yield

    def _now(self) -> str:
        doing = self._doing
        if isinstance(doing, str):
            return f"{self._elapsed()} {doing}"
        return f"{self._elapsed()} {doing.where}{until(doing, time.monotonic())}: {doing.what}"

    def _elapsed(self) -> str:
        return f"[{time.monotonic() - self._began:6.1f} s]"

    @property
    def _reporter(self) -> Any:
        """Return pytest's terminal reporter; None under `-p no:terminal`."""
        return self._plugins.getplugin("terminalreporter")

    def _uncaptured(self) -> Any:
        capture = self._plugins.getplugin("capturemanager")
        return nullcontext() if capture is None else capture.global_and_fixture_disabled()
