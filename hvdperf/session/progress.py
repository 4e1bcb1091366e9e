"""Shows the progress of a session: lines for its events, and below them a line that is rewritten in
place every second.

Only a person at the terminal sees that line. It is erased before other output, and it bypasses
pytest's capture. A thread writes it and sleeps in between, because the process shares its cores
with the ranks that are measured.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, TextIO

from hvdperf.columns import WIDTH
from hvdperf.launch.outer import shown_by
from hvdperf.session.scheduler import Doing

INTERVAL_S = 1.0
# On fewer columns the line would be too short to be of use.
FEWEST_COLUMNS = 20
ERASE = "\r\x1b[K"
# Characters that might move the cursor, or take more than one column.
_ODD = re.compile(r"[^ -~]")


@dataclass(frozen=True)
class Terminal:
    """A terminal to write the line to.

    output: a descriptor to write to. screen: a descriptor of the terminal that shows the output.
    process: the process of this terminal. The terminal counts as watched while the group of this
    process is in the foreground; a background process would overwrite the user's typing.
    """

    output: int
    screen: int
    process: int

    @property
    def is_watched(self) -> bool:
        try:
            return os.tcgetpgrp(self.screen) == os.getpgid(self.process)
        except OSError:
            return False  # no terminal, or not the one that this session was started at

    @property
    def columns(self) -> int:
        try:
            return os.get_terminal_size(self.screen).columns or WIDTH
        except OSError:
            return 0

    def write(self, text: str) -> bool:
        """Write past all buffers. Return False if the terminal is gone, which is no error."""
        try:
            os.write(self.output, text.encode("ascii"))
        except OSError:
            return False
        return True

    def close(self) -> None:
        os.close(self.output)
        os.close(self.screen)


def open_terminal(output: TextIO, shown_by: int) -> Terminal | None:
    """Open the terminal that shows the output. Return None if the output goes elsewhere.

    shown_by: the process whose output the user sees: this process or its mpirun, which gives its
    ranks a terminal even if it has none itself.
    """
    opened = []
    try:
        opened.append(os.dup(output.fileno()))
        own = shown_by == os.getpid()
        opened.append(os.dup(opened[0]) if own else _output_of(shown_by))
        found = Terminal(opened[0], opened[1], shown_by)
        if os.isatty(found.output) and found.is_watched:
            return found
    except (OSError, ValueError):
        pass  # the output is not a file, or belongs to another user
    for descriptor in opened:
        os.close(descriptor)
    return None


def ends_at_a_terminal(process: int) -> bool:
    """Return whether the output of a process goes to a terminal."""
    try:
        descriptor = _output_of(process)
    except OSError:
        return False
    try:
        return os.isatty(descriptor)
    finally:
        os.close(descriptor)


def _output_of(process: int) -> int:
    """Open the device that a process's output goes to; return the descriptor. Raises OSError if
    the output does not go to a device."""
    path = os.readlink(f"/proc/{process}/fd/1")
    if not path.startswith("/dev/"):
        raise OSError(f"{path} is no device")
    return os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)


def fitted(text: str, columns: int) -> str:
    """Return the first line of the text, cut so that the last column stays empty, because terminals
    treat that column differently."""
    line = _ODD.sub("?", text.partition("\n")[0])
    return line if len(line) < columns else f"{line[: columns - 4]}..."


class Line:
    """A line that is shown while something takes long.

    text: returns the text to show; it is called every second, on a thread of its own. The line
    appears only after the first `hidden` within `running`, which ends the line of earlier output.
    """

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        # Held while something is written to the terminal.
        self._writing = threading.RLock()
        self._may_begin = False
        self._shown_at: Terminal | None = None

    @contextmanager
    def running(self, terminal: Terminal | None) -> Iterator[None]:
        """Show the line within this context. terminal: closed at the end; None for no line."""
        if terminal is None:
            yield
            return
        over = threading.Event()
        thread = threading.Thread(
            target=self._refresh, args=(terminal, over), name="live line", daemon=True
        )
        self._may_begin = False
        try:
            thread.start()
            yield
        finally:
            over.set()
            with self._writing:
                self._erase()
                self._may_begin = False
            thread.join()
            terminal.close()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Keep the line away while whole lines are written."""
        with self._writing:
            self._erase()
            yield
            self._may_begin = True

    def _refresh(self, terminal: Terminal, over: threading.Event) -> None:
        while not over.wait(INTERVAL_S):
            with self._writing:
                if not over.is_set():
                    self._show(terminal)

    def _show(self, terminal: Terminal) -> None:
        self._shown_at = None
        if not self._may_begin or not terminal.is_watched or terminal.columns < FEWEST_COLUMNS:
            return
        # Erase only what is behind the line's end: erasing the line first would flicker.
        if terminal.write(f"\r{fitted(self._text(), terminal.columns)}\x1b[K"):
            self._shown_at = terminal

    def _erase(self) -> None:
        if self._shown_at is not None and self._shown_at.is_watched:
            self._shown_at.write(ERASE)
        self._shown_at = None


# Seconds without a line of progress after which the next activity is told, too.
QUIET_S = 60.0


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
        self._began = began
        self._doing: Doing | str = ""
        self._line = Line(self._now)
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
                terminal = open_terminal(sys.stdout, shown_by())
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
