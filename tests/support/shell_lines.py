"""Checks shell lines of the documentation without running them.

A line must be valid for bash, and its commands must exist, with their options and the files that
they name. The suite's own commands are parsed by their own parsers.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest

from hvdperf.__main__ import parser
from hvdperf.errors import UserError
from hvdperf.models.registry import NETWORKS
from hvdperf.plan.profile import load_profile
from hvdperf.plan.questions import Fault
from tests.support.pages import ROOT

# Commands of others, whose arguments are taken as they are. What follows `pytest` in them is
# checked.
OTHERS = {
    *("mpirun", "srun", "salloc", "docker", "apptainer", "asv", "git", "pip", "sudo", "ssh"),
    *("cat", "cd", "curl", "echo", "eval", "mail", "register-python-argcomplete"),
}
# Words of the shell that stand before a command.
BEFORE = {"do", "then", "else", "!", "exec", "sudo"}
# Names that stand for something of the reader's.
PLACEHOLDER = re.compile(r"[A-Z][A-Z0-9_]*|my_\w+.*|mine|.*\.\.\.")
FOLDERS = ("bench", "ci", "docs", "examples", "hvdperf", "models", "perf", "tests")
ENDS = {"&&", "||", ";", "|", "(", ")", "&"}


class Checker:
    """Checks the lines of one page, in order. made: the files that lines so far would have made."""

    def __init__(self, config: pytest.Config) -> None:
        self._pytest = config._parser
        self._makefile = (ROOT / "Makefile").read_text()
        self.made: set[str] = set()

    def check(self, script: str) -> list[str]:
        """Return what is wrong in these lines, a text for each problem."""
        done = subprocess.run(
            ["bash", "-n"], input=script, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            return [f"bash: {done.stderr.strip()}"]
        return [
            f"{shlex.join(words)}: {problem}"
            for words in commands(script)
            for problem in self._problems(words)
        ]

    def _problems(self, words: Sequence[str]) -> Iterator[str]:
        name, *rest = words
        if name == "pytest" or name.endswith("/pytest"):
            yield from self._of_pytest(rest)
        elif name == "hvdperf":
            yield from self._of_hvdperf(rest)
        elif name == "make":
            yield from self._of_make(rest)
        elif name == "sbatch":
            script = next(index for index, word in enumerate(rest) if not word.startswith("-"))
            yield from self._files(rest[script : script + 1])
            yield from self._of_hvdperf(["nightly", "run", *rest[script + 1 :]])
        elif name == "python":
            if rest[:1] == ["-m"] and importlib.util.find_spec(rest[1]) is None:
                yield f"no module {rest[1]}"
        elif name in (".", "bash"):
            yield from self._files(rest[:1])
        elif name not in OTHERS:
            yield f"unknown command {name}"
        elif "pytest" in rest:
            yield from self._of_pytest(rest[rest.index("pytest") + 1 :])

    def _of_hvdperf(self, arguments: Sequence[str]) -> Iterator[str]:
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
                given = parser().parse_args(arguments)
        except SystemExit as ended:
            if ended.code:
                yield said.getvalue().strip().splitlines()[-1]
            return
        self.made.add(str(getattr(given, "out", "")))
        yield from self._files(arguments)
        yield from self._of_pytest([word for word in getattr(given, "pytest", []) if word != "--"])
        yield from self._known(profile=getattr(given, "profile", None) or "")

    def _of_pytest(self, arguments: Sequence[str]) -> Iterator[str]:
        try:
            given, unknown = self._pytest.parse_known_and_unknown_args(
                arguments, namespace=argparse.Namespace()
            )
        except pytest.UsageError as error:
            yield str(error)
            return
        if unknown:
            yield f"unknown options {unknown}"
        yield from self._files(given.file_or_dir)
        yield from self._known(given.profile, ",".join(given.models), given.inject)

    def _known(
        self, profile: str = "", models: str = "", faults: Sequence[str] = ()
    ) -> Iterator[str]:
        try:
            if profile and not profile.endswith(".toml") and not PLACEHOLDER.fullmatch(profile):
                load_profile(profile)
            for fault in faults:
                if not PLACEHOLDER.fullmatch(fault):
                    Fault.parse(fault)
        except (UserError, ValueError) as error:
            yield str(error)
        names = {network.name for network in NETWORKS.values()}
        for model in filter(None, models.split(",")):
            if model not in names and not PLACEHOLDER.fullmatch(model):
                yield f"unknown network {model}"

    def _of_make(self, arguments: Sequence[str]) -> Iterator[str]:
        for word in arguments:
            name, equals, _ = word.partition("=")
            pattern = rf"^{name} *\?=" if equals else rf"^{re.escape(word)}:"
            if not re.search(pattern, self._makefile, re.MULTILINE):
                yield f"make has no {name}"

    def _files(self, words: Sequence[str]) -> Iterator[str]:
        """Yield a problem for each of these words that is a path of the checkout and not there."""
        for word in words:
            path = word.partition("::")[0]
            folder, slash, _ = path.partition("/")
            ours = folder in FOLDERS and slash and "..." not in path
            if ours and not (ROOT / path).exists() and path not in self.made:
                yield f"there is no {path}"


def commands(script: str) -> Iterator[list[str]]:
    """Yield the words of every simple command, without redirections and settings of variables."""
    for inner in re.findall(r"\$\(([^()]*)\)", script):
        yield from commands(inner)
    script = re.sub(r"\$\(([^()]*)\)", "VALUE", script)
    for line in script.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word in ENDS:
                if found := _simple(words):
                    yield found
                words = []
            else:
                words.append(word)


def _simple(words: list[str]) -> list[str]:
    """Return a command without what stands before it or redirects it; [] if there is none."""
    while words and (words[0] in BEFORE or re.match(r"\w+=", words[0])):
        words = words[1:]
    if not words or words[0] in ("for", "done", "fi", "esac"):
        return []
    if words[0] in ("if", "while"):
        words = words[1:]
    redirects = re.compile(r"[<>&]+").fullmatch
    return [
        word
        for before, word in pairwise(["", *words])
        if not redirects(before) and not redirects(word)
    ]
