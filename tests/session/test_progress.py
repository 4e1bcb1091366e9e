"""How long it will be, as the live line says it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hvdperf.session.progress import QUIET_S, ProgressReporter, fitted, open_terminal, until
from hvdperf.session.scheduler import Doing
from tests.support.terminals import Terminal

ROOT = Path(__file__).resolve().parents[2]

# Writes two whole lines while it is at something long, and one afterwards. What it does in between
# is given as an argument.
SCRIPT = """
import os, sys, time
from hvdperf.session import progress as live
live.INTERVAL_S = 0.02
line = live.Line(lambda: "it takes its time, which is long")
print("begun", end="", flush=True)
with line.running(live.open_terminal(sys.stdout, os.getpid())):
    time.sleep(0.1)
    for text in ("", "one", "two"):
        with line.hidden():
            print(text, flush=True)
        exec(sys.argv[1])
print("over", flush=True)
"""
LIVE = b"it takes its time, which is long\x1b[K"
EXPECTED = ["begun", "one", "two", "over", ""]


def command(between: str = "time.sleep(0.2)") -> list[str]:
    return [sys.executable, "-c", SCRIPT, between]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("short", "short"),
        ("123456789", "123456789"),
        ("1234567890", "123456..."),
        ("two\nlines", "two"),
        ("\x1b[K\tü", "?[K??"),
        ("", ""),
    ],
)
def test_it_fits_a_line_and_moves_no_cursor(text, expected):
    assert fitted(text, 10) == expected


def test_it_is_to_be_seen_and_is_gone_before_anything_is_written():
    there = Terminal(command(), ROOT)
    assert there.end() == 0
    assert there.shown() == EXPECTED
    # Not on the line that had been begun.
    assert b"begun\r\n" in there.output
    assert there.output.count(b"\r" + LIVE) > 3
    # Erased once for every line that is written over it.
    assert there.output.count(b"\r\x1b[K") == 3


def test_in_a_pipe_there_is_nothing():
    done = subprocess.run(command(), cwd=ROOT, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("\n".join(EXPECTED), "")


@pytest.mark.parametrize(
    ("columns", "seen"),
    [
        (33, b"\r" + LIVE),
        (32, b"\rit takes its time, which is ...\x1b[K"),
    ],
)
def test_it_is_never_wider_than_the_terminal(columns, seen):
    there = Terminal(command(), ROOT, columns=columns)
    there.wait_for(seen)
    assert there.end() == 0
    assert there.shown() == EXPECTED


def below_a_shell(*arguments: str) -> list[str]:
    """So that it may have a process group of its own, which the terminal's then is not."""
    return ["bash", "-c", '"$@" & wait', "bash", *arguments]


GROUPED = SCRIPT.replace("import os, sys, time", "import os, sys, time; os.setpgid(0, 0)")
OF_ANOTHER = SCRIPT.replace("os.getpid()", "os.getppid()")


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (command(), {"columns": 19}),
        # As mpirun gives its ranks, whose output may go to a file.
        (command(), {"own": False}),
        # In the background it would write over what is typed.
        (below_a_shell(sys.executable, "-c", GROUPED, "time.sleep(0.2)"), {}),
        # What has started it goes on writing elsewhere.
        ([sys.executable, "-c", OF_ANOTHER, "time.sleep(0.2)"], {}),
    ],
    ids=["too narrow", "nobody sits there", "in the background", "of another process"],
)
def test_on_other_terminals_there_is_nothing(words, options):
    there = Terminal(words, ROOT, **options)
    assert there.end() == 0
    assert b"\x1b" not in there.output
    assert there.shown() == EXPECTED


def test_who_goes_to_the_background_erases_nothing_any_more():
    there = Terminal(below_a_shell(*command("time.sleep(0.2); os.setpgid(0, 0)")), ROOT)
    assert there.end() == 0
    assert LIVE in there.output
    assert b"\r\x1b[K" not in there.output


def test_ctrl_c_leaves_nothing_of_it():
    there = Terminal(command("time.sleep(60)"), ROOT)
    there.wait_for(LIVE)
    there.press(b"\x03")
    there.end()
    lines = there.shown()
    assert "it takes its time" not in "".join(lines)
    assert lines[0] == "begun"
    assert "KeyboardInterrupt" in lines


def test_what_is_no_terminal_is_not_watched():
    with open(os.devnull, "w") as nowhere:
        assert open_terminal(nowhere, os.getpid()) is None
    with io.StringIO() as nothing:
        assert open_terminal(nothing, os.getpid()) is None


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
