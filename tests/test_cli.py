"""How a `python -m` with commands ends."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from hvdperf.__main__ import parser
from hvdperf.paths import ROOT

TALKS = """
import argparse, sys
from hvdperf.cli import run
from hvdperf.errors import UserError

def talk(arguments):
    for _ in range(arguments.lines):
        print("x" * 100)
    if not arguments.lines:
        raise UserError("nothing\\nto say")
    return 3

parser = argparse.ArgumentParser()
parser.add_argument("lines", type=int)
parser.set_defaults(command=talk)
sys.exit(run(parser))
"""


@pytest.mark.parametrize(("lines", "status", "told"), [(1, 3, ""), (0, 2, "nothing to say\n")])
def test_it_ends_with_the_commands_status_or_a_line(lines, status, told):
    done = subprocess.run(
        [sys.executable, "-c", TALKS, str(lines)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (status, told)


# In the buffer of what prints, and in none.
@pytest.mark.parametrize("lines", [10, 10_000])
def test_whoever_reads_no_further_sees_no_traceback(lines):
    with subprocess.Popen(
        [sys.executable, "-c", TALKS, str(lines)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 141


def test_an_error_names_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["list", "everything"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("hvdperf list: argument WHAT: invalid choice: 'everything'")
    assert line.endswith("; see hvdperf list --help")


def test_the_version_names_the_commit() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hvdperf", "--version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    commit = subprocess.run(
        ["git", "rev-parse", "--short=12", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert re.fullmatch(rf"\d+\.\d+\.\d+ \({commit}\+?\)\n", done.stdout)
