"""Pytest sessions and commands that begin quickly: forked from a process that has imported pytest
and the suite.

For those that start no ranks and are not looked at while they run. Run as a script, this module is
that process: it takes a request a line, and answers each with a line. tests/test_cli.py,
tests/session/ and tests/timeline/nights/ start both without it, too.
"""

from __future__ import annotations

import atexit
import gc
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
    """A process that forks others, one after the other. program: what these run, `pytest` or
    `hvdperf`."""

    def __init__(self, program: str, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, program],
            cwd=ROOT,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, arguments: Sequence[str], settings: Mapping[str, str], cwd: Path = ROOT
    ) -> subprocess.CompletedProcess[str]:
        """Run the program in a directory and return how it ended. settings: of its environment,
        besides those of the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = [list(arguments), dict(settings), str(cwd)]
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        status, stdout, stderr = json.loads(self._process.stdout.readline())
        return subprocess.CompletedProcess(arguments, status, stdout, stderr)

    def close(self) -> None:
        self._process.communicate()


@cache
def _warm() -> Warm:
    made = Warm("hvdperf", os.environ)
    atexit.register(made.close)
    return made


def hvdperf(*words: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run `hvdperf WORDS` in a directory to its end, and return it with its output. Its environment
    is the tests', but for what Python itself reads when it starts."""
    return _warm().run(list(map(str, words)), os.environ, cwd)


def _become(
    program: str, arguments: list[str], settings: dict[str, str], cwd: str, streams: Sequence[Any]
) -> None:
    """Turn a child, after the fork, into the program."""
    devnull = os.open(os.devnull, os.O_RDONLY)
    for descriptor, stream in enumerate((devnull, *(stream.fileno() for stream in streams))):
        os.dup2(stream, descriptor)
    os.environ.update(settings)
    os.chdir(cwd)
    sys.argv = [str(Path(sys.executable).with_name(program)), *arguments]
    status: Any = 1
    try:
        status = _pytest(arguments) if program == "pytest" else _hvdperf()
    except SystemExit as ended:
        status = ended.code or 0
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _pytest(arguments: Sequence[str]) -> int:
    import pytest

    if "-p" in arguments:
        # Plugins of the tests' own are found as by `python -m pytest`.
        sys.path.insert(1, str(ROOT))
    return pytest.console_main()


def _hvdperf() -> int:
    from hvdperf.__main__ import main

    return main()


def _main() -> None:
    (program,) = sys.argv[1:]
    sys.path[0] = str(Path(sys.executable).parent)  # as that of the script
    sys.path.insert(1, str(ROOT))
    if program == "pytest":
        # No plugin: pytest rewrites the assertions of plugins when it imports them.
        import hvdperf.session.ending
        import hvdperf.session.pytest_session
    else:
        import hvdperf.__main__  # noqa: F401
    sys.path.remove(str(ROOT))
    # Children share what has been imported: a round of the garbage collector would copy it.
    gc.freeze()
    for line in sys.stdin:
        arguments, settings, cwd = json.loads(line)
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            child = os.fork()
            if child == 0:
                _become(program, arguments, settings, cwd, (stdout, stderr))
            _, status = os.waitpid(child, 0)
            told = []
            for stream in (stdout, stderr):
                stream.seek(0)
                told.append(stream.read().decode())
        print(json.dumps([os.waitstatus_to_exitcode(status), *told]), flush=True)


if __name__ == "__main__":
    _main()
