"""`python -m report`: a session as one page, or as tables; `compare`: two of them side by side."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness.archive import read_session
from harness.commands import complain, run
from report.compare import comparison
from report.content import Report
from report.places import REPORTS, RESULTS, results_of
from report.session import session_report
from report.sources import newest_session, read_sources
from report.writing import FORMATS, write

COMMANDS = ("session", "compare")


def main() -> int:
    """The exit status: 0, or 2 where something was refused, each with a line on stderr."""
    words = sys.argv[1:]
    # Without a command it is a session's report that is wanted.
    if not words or words[0] not in (*COMMANDS, "-h", "--help"):
        words = [COMMANDS[0], *words]
    return run(parser(), command_line=words)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m report", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    add = commands.add_parser("session", help="a session's report (the default)")
    add.add_argument(
        "session", type=Path, nargs="?", metavar="SESSION", help="results/runs/...; default: newest"
    )
    add.add_argument(
        "--results", type=Path, default=RESULTS, metavar="DIR", help="of the newest session"
    )
    _add_output(add)
    add.set_defaults(command=report_session)

    add = commands.add_parser("compare", help="two sessions side by side")
    add.add_argument("first", type=Path, metavar="A", help="such as results/runs/...")
    add.add_argument("second", type=Path, metavar="B")
    _add_output(add)
    add.set_defaults(command=compare_sessions)
    return top


def _add_output(add: argparse.ArgumentParser) -> None:
    add.add_argument("--format", choices=FORMATS, default="html", help="default: html")
    add.add_argument(
        "--out",
        type=Path,
        metavar="PATH",
        help="file, of csv a directory; default: below results/report, or stdout for text",
    )


def report_session(arguments: argparse.Namespace) -> int:
    directory = arguments.session or newest_session(arguments.results)
    results = results_of(directory)
    sources = read_sources(directory, results)
    name = directory.resolve().name
    return _written(session_report(sources), arguments, results / REPORTS / name)


def compare_sessions(arguments: argparse.Namespace) -> int:
    first, second = (read_session(each) for each in (arguments.first, arguments.second))
    names = "-and-".join(each.directory.resolve().name for each in (first, second))
    place = results_of(arguments.second) / REPORTS / names
    return _written(comparison(first, second), arguments, place)


def _written(report: Report, arguments: argparse.Namespace, place: Path) -> int:
    for line in report.left_out:
        complain(line)
    print(write(report, arguments.format, arguments.out, place))
    return 0


if __name__ == "__main__":
    sys.exit(main())
