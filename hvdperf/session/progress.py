"""Shows the progress of a session: a line for each of its events, and one for what it is at if
nothing has been written for long."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

# Seconds without a line of progress after which the next activity is written, too.
QUIET_S = 20.0


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

    def note(self, text: str) -> None:
        """Write what the session is at, if nothing has been written for QUIET_S."""
        if time.monotonic() > self._said_at + QUIET_S:
            self.say(text)
