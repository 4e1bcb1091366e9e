"""Runs git, and turns what it says into one line."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from hvdperf.errors import UserError

# Seconds that a command of git may take.
_DEADLINE_S = 600.0
# What a hook of git that runs this command would hand on.
_OF_OTHERS = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")


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
