"""Pytest sessions that begin quickly: forked from a process that has imported pytest and the suite.

For sessions that start no ranks and are not looked at while they run. Run as a script, this module
is that process: it takes a request a line, and answers each with a line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class WarmPytest:
    """A process that forks sessions, each in the project's root, one after the other."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            cwd=ROOT,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, arguments: Sequence[str], settings: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run `pytest ARGUMENTS` and return how it ended. settings: of its environment."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([list(arguments), dict(settings)]) + "\n")
        self._process.stdin.flush()
        status, stdout, stderr = json.loads(self._process.stdout.readline())
        return subprocess.CompletedProcess(arguments, status, stdout, stderr)

    def close(self) -> None:
        self._process.communicate()


def _become(arguments: list[str], settings: dict[str, str], streams: Sequence[Any]) -> None:
    """Turn a child, after the fork, into the session."""
    import pytest

    devnull = os.open(os.devnull, os.O_RDONLY)
    for descriptor, stream in enumerate((devnull, *(stream.fileno() for stream in streams))):
        os.dup2(stream, descriptor)
    os.environ.update(settings)
    sys.argv = [str(Path(sys.executable).with_name("pytest")), *arguments]
    status = pytest.console_main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _main() -> None:
    sys.path[0] = str(Path(sys.executable).parent)  # as that of the script `pytest`
    sys.path.insert(1, str(ROOT))
    # No plugin: pytest rewrites the assertions of plugins when it imports them.
    import hvdperf.session.ending
    import hvdperf.session.pytest_session  # noqa: F401

    sys.path.remove(str(ROOT))
    for line in sys.stdin:
        arguments, settings = json.loads(line)
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            child = os.fork()
            if child == 0:
                _become(arguments, settings, (stdout, stderr))
            _, status = os.waitpid(child, 0)
            told = []
            for stream in (stdout, stderr):
                stream.seek(0)
                told.append(stream.read().decode())
        print(json.dumps([os.waitstatus_to_exitcode(status), *told]), flush=True)


if __name__ == "__main__":
    _main()
