"""How a `python -m` with commands ends."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest

from hvdperf import cli
from hvdperf.__main__ import parser
from hvdperf.paths import ROOT
from hvdperf.programs import run

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
    done = run([sys.executable, "-c", TALKS, str(lines)], ROOT)
    assert (done.status, done.errors) == (status, told)


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


COLOURS, MOST = ("red", "blue"), 0.5


@dataclass(frozen=True)
class Where:
    """Where it is.

    places
        --results DIR: Directory of
            results. Default: results.
    """

    results: Path = Path("results")


def paint(
    *files: Path,
    where: Where,
    colour: str = "red",
    limit_s: float = MOST,
    from_: date | None = None,
    also: tuple[int, ...] = (),
    dry: bool = False,
) -> int:
    """Paint files. No more than
    {MOST:g} are painted.

    FILE ...: Paint 100 % of these.
    --colour {COLOURS}: Take this.

    places
        --limit S: End after S seconds.
        --from DATE: Begin here. Default: anywhere.

    --also N: Add this.
    --dry: Only say it. Default: paint.
    """
    print(files, where, colour, limit_s, from_, also, dry)
    return 3


def painted(*words: str) -> int:
    top = cli.Parser(prog="paint", description=cli.description_of(paint))
    cli.add_options(top, paint)
    return cli.run(top, command_line=words)


def test_a_function_is_called_with_what_its_docstring_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert painted("a") == 3
    default = (Path("a"),), Where(), "red", MOST, None, (), False
    assert capsys.readouterr().out == " ".join(map(str, default)) + "\n"
    words = "a b --dry --also=1 --also=2 --from=2026-01-31 --limit=2 --colour=blue --results=r"
    assert painted(*words.split()) == 3
    given = (Path("a"), Path("b")), Where(Path("r")), "blue", 2.0, date(2026, 1, 31), (1, 2), True
    assert capsys.readouterr().out == " ".join(map(str, given)) + "\n"


def test_the_help_is_the_docstring_with_the_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        painted("--help")
    text = " ".join(capsys.readouterr().out.split())
    for part in (
        "Paint files. No more than 0.5 are painted. positional arguments: FILE Paint 100 % of",
        "--colour {red,blue} Take this. Default: red. --also N Add this. --dry Only say it. Def",
        "places: --results DIR Directory of results. Default: results. --limit S End after S "
        "seconds. Default: 0.5. --from DATE Begin here. Default: anywhere.",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("--colour=green", "--colour green: is unknown; known are red, blue\n"),
        ("--limit=x", "--limit x: is not a number\n"),
        ("--also=1.5", "--also 1.5: is not a whole number\n"),
        ("--from=May", "--from May: is no date such as 2026-01-31\n"),
    ],
)
def test_a_bad_value_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], word: str, told: str
) -> None:
    assert painted("a", word) == cli.REFUSED
    assert capsys.readouterr().err == told


def test_an_error_names_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["list", "everything"])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("hvdperf list: argument WHAT: invalid choice: 'everything'")
    assert line.endswith("; see hvdperf list --help")


@pytest.mark.parametrize(("command", "takes_words"), [("run", True), ("compare", False)])
def test_only_a_command_that_takes_words_says_where_they_go(
    capsys: pytest.CaptureFixture[str], command: str, takes_words: bool
) -> None:
    with pytest.raises(SystemExit):
        cli.run(parser(), command_line=[command, "a", "-np", "2"])
    assert ("after --" in capsys.readouterr().err) is takes_words


def test_the_version_names_the_commit() -> None:
    told = run([sys.executable, "-m", "hvdperf", "--version"], ROOT).output
    commit = run(["git", "rev-parse", "--short=12", "HEAD"], ROOT).output.strip()
    assert re.fullmatch(rf"\d+\.\d+\.\d+ \({commit}\+?\)\n", told)
