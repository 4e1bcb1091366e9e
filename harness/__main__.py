"""`python -m harness`: what is done with the results of sessions that have been measured."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from harness.archive import read_session
from harness.commands import REFUSED, complain, run
from harness.errors import UserError
from harness.forecast import forecast
from harness.tables import PRINTED, REQUIRED, explain, lines, read_table


def main() -> int:
    """The exit status: 0, or 2 where something was refused, each with a line on stderr."""
    return run(parser())


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m harness", description=__doc__)
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    add = commands.add_parser(
        "predict",
        help="efficiency at more nodes, by a model",
        description="Efficiency of weak scaling at twice and four times the nodes, by a model: the "
        "trend of the largest size and of half of it. Nothing where all was measured on one node.",
    )
    add.add_argument("session", type=Path, metavar="SESSION", help="such as results/runs/...")
    add.set_defaults(command=predict)
    add = commands.add_parser(
        "explain",
        help="why the two speedups of a published table differ",
        description="Why the speedups by speed and by time of a published table differ. FILE: a "
        f"JSON object with the lists {', '.join(REQUIRED)}, and {' and '.join(PRINTED)} where "
        "they were printed.",
    )
    add.add_argument("file", type=Path, metavar="FILE", help="such as tests/published/lab11.json")
    add.set_defaults(command=explain_table)
    return top


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
        raise UserError(f"{path}: nested more deeply than any table") from None
    if not isinstance(document, dict):
        raise UserError(f"{path}: is no JSON object")
    for line in lines(explain(read_table(document, str(path)))):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
