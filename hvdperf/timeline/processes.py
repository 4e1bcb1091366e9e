"""Runs sessions of the suite, and git, each in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from hvdperf.errors import UserError
from hvdperf.paths import ROOT

# Exit statuses of pytest after an interruption, an internal error and bad input. After any other
# status the session has ended, and its documents can be used, whatever the verdict.
NO_SESSION = (2, 3, 4)
# Seconds for which a signal may go unnoticed.
WAIT_S = 1.0
# Signals that are passed on to a command: schedulers send the others before the time is up.
_PASSED = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)

# Seconds that a command of git may take.
_DEADLINE_S = 600.0
# What a hook of git that runs this command would hand on.
_OF_OTHERS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")


def is_without_session(status: int) -> bool:
    """Return whether pytest with this exit status, negative for a signal, did not end a session."""
    return status < 0 or status in NO_SESSION


def run_to_end(
    command: Sequence[str],
    output: TextIO | None = None,
    cwd: Path | None = ROOT,
    env: Mapping[str, str] | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> int:
    """Run a command to its end and return its exit status, negative for a signal. output: takes its
    stdout; None for this process's. cwd: None for this process's. meanwhile: is called every WAIT_S
    seconds. Raises OSError if the command does not start.

    Ctrl-C reaches the command by itself, and SIGTERM is passed on to it, as is what schedulers send
    before. The command then gets the time that it needs to end its ranks and to clean up. A signal
    that this process ignores, as in the background of a script, the command ignores as well.
    """
    early: list[int] = []
    # Before the command starts, since a signal may come as soon as it runs.
    passed = [each for each in _PASSED if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, lambda number, _: early.append(number)) for each in passed}
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        process = subprocess.Popen(command, cwd=cwd, env=env, stdout=output)
        for each in passed:
            signal.signal(each, lambda number, _: process.send_signal(number))
        for number in early:
            process.send_signal(number)
        # A signal that arrives just before this waits would be handled only at the end of the wait.
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(WAIT_S)
            meanwhile()
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def run_session(arguments: Sequence[str], results: Path, lost: str, quiet: bool = False) -> Path:
    """Run one session, and return the directory of its documents.

    arguments: of pytest. results: the directory for --results. lost: text that begins the error
    message, such as `nothing was measured of X`. quiet: send pytest's output to stderr instead of
    stdout. Raises UserError if there was no session.
    """
    before = set(results.glob("runs/*"))
    command = [sys.executable, "-m", "pytest", *arguments, f"--results={results}"]
    status = run_to_end(command, sys.stderr if quiet else None)
    new = sorted(set(results.glob("runs/*")) - before)
    if is_without_session(status) or not new:
        raise UserError(f"{lost}: pytest ended with status {status}; see its output above")
    return new[-1]


@dataclass(frozen=True)
class Git:
    """A repository. directory: git's own. name: the repository in messages. work_tree: None for a
    bare one."""

    directory: Path
    name: str
    work_tree: Path | None = None

    def run(self, *words: str, given: str = "") -> str:
        """Run a command of git and return what it prints. given: its input. Raises UserError."""
        done = self.tried(*words, given=given)
        if done.returncode != 0:
            raise self.failed(words, done.stderr)
        return done.stdout

    def tried(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command of git, whatever its exit status. Raises UserError only without git, and
        if the command does not end."""
        # Without a terminal git must not ask for a password, which nobody would answer.
        own = {name: value for name, value in os.environ.items() if name not in _OF_OTHERS}
        # Named, because git would else look for a repository in the directories above.
        here = [f"--git-dir={self.directory}"]
        if self.work_tree is not None:
            here.append(f"--work-tree={self.work_tree}")
        try:
            return subprocess.run(
                ["git", *here, *words],
                cwd=self.work_tree,
                input=given,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                env={**own, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
                timeout=_DEADLINE_S,
            )
        except FileNotFoundError:
            raise UserError("git is not installed: apt-get install git") from None
        except subprocess.TimeoutExpired:
            raise UserError(f"git {words[0]} did not end in {_DEADLINE_S:.0f} s") from None

    def failed(self, words: tuple[str, ...], said: str) -> UserError:
        """Return the error of a command that failed. said: what it printed to stderr."""
        # Options such as `-c user.name=x` come before the command.
        command = next(word for word in words if re.fullmatch("[a-z][a-z-]+", word))
        lines = [line for line in said.splitlines() if line.strip()] or ["it said nothing"]
        told = next((line for line in lines if line.startswith(("fatal:", "error:"))), lines[-1])
        return UserError(f"{self.name}: git {command}: {without_secret(told)}")


def without_secret(url: str) -> str:
    """Return an address without the name and password in it."""
    return re.sub(r"(?<=://)[^/@]*@", "", url)
