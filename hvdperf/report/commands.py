"""The commands that show results: report, compare, predict and explain."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from hvdperf.cli import REFUSED, Commands, complain
from hvdperf.errors import UserError
from hvdperf.paths import RESULTS, shown
from hvdperf.report.compare import comparison
from hvdperf.report.content import Report
from hvdperf.report.prediction_text import forecast
from hvdperf.report.published_table import PRINTED, REQUIRED, explain, lines, read_table
from hvdperf.report.session import session_report
from hvdperf.report.sources import newest_session, read_sources, results_of
from hvdperf.report.writing import FORMATS, write
from hvdperf.results.archive import read_session


def add_to(commands: Commands) -> None:
    """Add the commands report, compare, predict and explain."""
    add = commands.add_parser("report", help="write a session's report, as a page or as tables")
    which = add.add_mutually_exclusive_group()
    which.add_argument(
        "session", type=Path, nargs="?", metavar="SESSION", help="results/runs/...; default: newest"
    )
    which.add_argument(
        "--results",
        type=Path,
        default=RESULTS,
        metavar="DIR",
        help="results directory; the newest session in it is used; default: results",
    )
    _add_output(add)
    add.set_defaults(command=report_session)

    add = commands.add_parser("compare", help="compare two sessions")
    add.add_argument("first", type=Path, metavar="A", help="such as results/runs/...")
    add.add_argument("second", type=Path, metavar="B")
    _add_output(add)
    add.set_defaults(command=compare_sessions)

    add = commands.add_parser(
        "predict",
        help="predict the efficiency at more nodes, with a model",
        description="Predict the efficiency of weak scaling at twice and four times the largest "
        "number of nodes, by continuing the trend of its last doubling. The session must have "
        "used several nodes.",
    )
    add.add_argument("session", type=Path, metavar="SESSION", help="such as results/runs/...")
    add.set_defaults(command=predict)

    add = commands.add_parser(
        "explain",
        help="explain why the speedups by speed and by time of a published table differ",
        description="Explain why the speedups by speed and by time of a published table "
        f"differ. FILE: a JSON object with the lists {', '.join(REQUIRED)}, and "
        f"with {' and '.join(PRINTED)} if the table prints them.",
    )
    add.add_argument("file", type=Path, metavar="FILE", help="such as tests/published/lab11.json")
    add.set_defaults(command=explain_table)


def _add_output(add: argparse.ArgumentParser) -> None:
    add.add_argument("--format", choices=FORMATS, default="html", help="default: html")
    add.add_argument(
        "--out",
        type=Path,
        metavar="PATH",
        help="output file, for csv a directory; default: below results/report, or stdout for text",
    )


def report_session(arguments: argparse.Namespace) -> int:
    directory = arguments.session or newest_session(arguments.results)
    results = results_of(directory)
    sources = read_sources(directory, results)
    if sources.archive.session is None and not sources.archive.cases:
        why = next(iter(sources.archive.left_out), "it holds no document of a session")
        raise UserError(f"{shown(directory)}: nothing to report: {why}; give results/runs/...")
    return _written(session_report(sources), arguments, results, directory.resolve().name)


def compare_sessions(arguments: argparse.Namespace) -> int:
    first, second = (read_session(each) for each in (arguments.first, arguments.second))
    names = "-and-".join(each.directory.resolve().name for each in (first, second))
    return _written(comparison(first, second), arguments, results_of(arguments.second), names)


def _written(report: Report, arguments: argparse.Namespace, results: Path, name: str) -> int:
    for line in report.left_out:
        complain(line)
    print(write(report, arguments.format, arguments.out, results / "report" / name))
    return 0


def predict(arguments: argparse.Namespace) -> int:
    archive = read_session(arguments.session)
    found = forecast(archive)
    for line in filter(None, (archive.unfinished, *archive.left_out, *found.refusals)):
        complain(line)
    for line in found.lines:
        print(line)
    return REFUSED if found.refusals else 0


def explain_table(arguments: argparse.Namespace) -> int:
    path: Path = arguments.file
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: {error}") from None
    except RecursionError:
        raise UserError(f"{path}: nested too deeply for a table") from None
    if not isinstance(document, dict):
        raise UserError(f"{path}: is not a JSON object")
    for line in lines(explain(read_table(document, str(path)))):
        print(line)
    return 0
