"""The line at the end of a terminal that tells what is going on, rewritten in place every second.

For whoever sits before it, and for nobody else: it is never there when something else is written,
and goes past whatever captures the output. A thread writes it, which sleeps in between: the process
shares its cores with the ranks that are measured.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

from hvdperf.cli import WIDTH

INTERVAL_S = 1.0
# A line this short would tell nothing.
FEWEST_COLUMNS = 20
ERASE = "\r\x1b[K"
# What might move the cursor, or take more than one column.
_ODD = re.compile(r"[^ -~]")


@dataclass(frozen=True)
class Seat:
    """Before a terminal. output: a descriptor to write to. screen: one of the terminal that shows
    what is written there. process: who has that terminal, and is watched if its group is in the
    foreground: what runs in the background would write over what is typed there."""

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
        """Past everything that is buffered; whether it was possible. A terminal that is gone is not
        worth an error."""
        try:
            os.write(self.output, text.encode("ascii"))
        except OSError:
            return False
        return True

    def leave(self) -> None:
        os.close(self.output)
        os.close(self.screen)


def seat(output: TextIO, shown_by: int) -> Seat | None:
    """Where the output is watched; None if it goes elsewhere. shown_by: the process whose own
    output it ends in: this one, or its mpirun, which gives it a terminal whatever it has itself."""
    opened = []
    try:
        opened.append(os.dup(output.fileno()))
        own = shown_by == os.getpid()
        opened.append(os.dup(opened[0]) if own else _output_of(shown_by))
        found = Seat(opened[0], opened[1], shown_by)
        if os.isatty(found.output) and found.is_watched:
            return found
    except (OSError, ValueError):
        pass  # it is not even a file, or one of somebody else
    for descriptor in opened:
        os.close(descriptor)
    return None


def ends_at_a_terminal(process: int) -> bool:
    """Whether the output of a process does."""
    try:
        descriptor = _output_of(process)
    except OSError:
        return False
    try:
        return os.isatty(descriptor)
    finally:
        os.close(descriptor)


def _output_of(process: int) -> int:
    """A descriptor of the device that its output goes to. Raises OSError if that is none."""
    path = os.readlink(f"/proc/{process}/fd/1")
    if not path.startswith("/dev/"):
        raise OSError(f"{path} is no device")
    return os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)


def fitted(text: str, columns: int) -> str:
    """In one line that leaves the last column empty, in which terminals differ."""
    line = _ODD.sub("?", text.partition("\n")[0])
    return line if len(line) < columns else f"{line[: columns - 4]}..."


class Line:
    """text: asked every second, on a thread of its own, for what to show.

    It is there from the first `hidden` within `running` on: what has been written by then has
    ended its own line.
    """

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text
        # Held by whoever writes to the terminal.
        self._writing = threading.RLock()
        self._may_begin = False
        self._shown_at: Seat | None = None

    @contextmanager
    def running(self, seat: Seat | None) -> Iterator[None]:
        """While something takes long. seat: is left in the end; None where there is no line to be
        shown."""
        if seat is None:
            yield
            return
        over = threading.Event()
        thread = threading.Thread(
            target=self._keep_up, args=(seat, over), name="live line", daemon=True
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
            seat.leave()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """While whole lines are written."""
        with self._writing:
            self._erase()
            yield
            self._may_begin = True

    def _keep_up(self, seat: Seat, over: threading.Event) -> None:
        while not over.wait(INTERVAL_S):
            with self._writing:
                if not over.is_set():
                    self._show(seat)

    def _show(self, seat: Seat) -> None:
        self._shown_at = None
        if not self._may_begin or not seat.is_watched or seat.columns < FEWEST_COLUMNS:
            return
        # Erased behind its end, and not before it: that would flicker.
        if seat.write(f"\r{fitted(self._text(), seat.columns)}\x1b[K"):
            self._shown_at = seat

    def _erase(self) -> None:
        if self._shown_at is not None and self._shown_at.is_watched:
            self._shown_at.write(ERASE)
        self._shown_at = None
