"""Pytest sessions and commands that begin quickly: forked from a process that has imported pytest
and the suite.

For those that start no ranks and are not looked at while they run. Run as a script, this module is
that process: it takes a request a line, and answers each with a line. tests/test_cli.py,
tests/session/ and tests/timeline/nights/ start both without it, too.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class Warm:
    """A process that forks others, one after the other."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            cwd=ROOT,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def pytest(
        self, arguments: Sequence[str], settings: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run `pytest ARGUMENTS` in the project's root and return how it ended. settings: of its
        environment, beside those of the process."""
        return self._ended("pytest", arguments, ROOT, settings)

    def hvdperf(
        self, words: Sequence[str], cwd: Path, settings: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run `hvdperf WORDS` and return how it ended. settings: its whole environment."""
        return self._ended("hvdperf", words, cwd, settings)

    def _ended(
        self, program: str, arguments: Sequence[str], cwd: Path, settings: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = [program, list(arguments), str(cwd), dict(settings)]
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        status, stdout, stderr = json.loads(self._process.stdout.readline())
        return subprocess.CompletedProcess(arguments, status, stdout, stderr)

    def close(self) -> None:
        self._process.communicate()


@cache
def _warm() -> Warm:
    made = Warm(os.environ)
    atexit.register(made.close)
    return made


def hvdperf(*words: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run `hvdperf WORDS` in a directory to its end, and return it with its output. Its environment
    is the tests', but for what Python itself reads when it starts."""
    return _warm().hvdperf(list(map(str, words)), cwd, os.environ)


def _become(
    program: str, arguments: list[str], cwd: str, settings: dict[str, str], streams: Sequence[Any]
) -> None:
    """Turn a child, after the fork, into the program."""
    devnull = os.open(os.devnull, os.O_RDONLY)
    for descriptor, stream in enumerate((devnull, *(stream.fileno() for stream in streams))):
        os.dup2(stream, descriptor)
    sys.argv = [str(Path(sys.executable).with_name(program)), *arguments]
    os.chdir(cwd)
    status: Any = 1
    try:
        status = _pytest(arguments, settings) if program == "pytest" else _hvdperf(settings)
    except SystemExit as ended:
        status = ended.code or 0
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _pytest(arguments: Sequence[str], settings: Mapping[str, str]) -> int:
    import pytest

    os.environ.update(settings)
    if "-p" in arguments:
        # Plugins of the tests' own are found as by `python -m pytest`.
        sys.path.insert(1, str(ROOT))
    return pytest.console_main()


def _hvdperf(settings: Mapping[str, str]) -> int:
    from hvdperf.__main__ import main

    os.environ.clear()
    os.environ.update(settings)
    return main()


def _main() -> None:
    sys.path[0] = str(Path(sys.executable).parent)  # as that of the script `pytest`
    sys.path.insert(1, str(ROOT))
    # No plugin: pytest rewrites the assertions of plugins when it imports them.
    import hvdperf.__main__
    import hvdperf.session.ending
    import hvdperf.session.pytest_session  # noqa: F401

    sys.path.remove(str(ROOT))
    for line in sys.stdin:
        program, arguments, cwd, settings = json.loads(line)
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            child = os.fork()
            if child == 0:
                _become(program, arguments, cwd, settings, (stdout, stderr))
            _, status = os.waitpid(child, 0)
            told = []
            for stream in (stdout, stderr):
                stream.seek(0)
                told.append(stream.read().decode())
        print(json.dumps([os.waitstatus_to_exitcode(status), *told]), flush=True)


if __name__ == "__main__":
    _main()
