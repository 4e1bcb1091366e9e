"""The commands of unattended nights: nightly and regressions."""

from __future__ import annotations

import argparse
import shlex
from datetime import UTC, date, datetime
from pathlib import Path

from hvdperf.cli import Commands, complain
from hvdperf.columns import Columns, wrapped
from hvdperf.errors import UserError
from hvdperf.history import places
from hvdperf.nightly.night import NIGHTS, RESULTS, check_series, own_part, read_nights
from hvdperf.paths import shown
from hvdperf.session.terminal.cases import NOT_WRITTEN, exit_status

INDEX = "index.html"


def add_to(commands: Commands) -> None:
    """Add the commands nightly, which has commands of its own, and regressions."""
    top = commands.add_parser(
        "nightly",
        help="measure unattended, publish, and watch",
        description="Measure a night, publish nights to a git repository, and watch from elsewhere "
        "that they come.",
    )
    tasks = top.add_subparsers(required=True, metavar="TASK")

    add = tasks.add_parser(
        "run",
        help="measure one night: doctor, A/A pair, session, gate",
        description="Measure one night, or go on with it if it was interrupted. Options after -- "
        "are passed on to pytest.",
    )
    add.add_argument("--series", default="nightly", metavar="NAME", help="default: nightly")
    add.add_argument("--profile", default="nightly", help="default: nightly")
    add.add_argument("--against", default="", metavar="PYTHON", help="the reference stack")
    add.add_argument(
        "--launch", default="", metavar="WORDS", help="before pytest, such as 'mpirun -np 4'"
    )
    add.add_argument("--night", metavar="DATE", help="default: today, in UTC")
    add.add_argument(
        "--require-fit", action="store_true", help="measure only if doctor finds no problem"
    )
    add.add_argument("--no-pair", action="store_true", help="leave out the A/A pair")
    add.add_argument("--publish", metavar="URL", help="publish to this git repository, too")
    _add_places(add)
    add.add_argument("pytest", nargs=argparse.REMAINDER, metavar="-- ...", help="of pytest")
    add.set_defaults(command=run_night)

    add = tasks.add_parser("publish", help="publish all ended nights to a git repository")
    add.add_argument("url", metavar="URL", help="a git repository")
    _add_places(add)
    add.set_defaults(command=publish_nights)

    add = tasks.add_parser("index", help="write the page of all nights")
    _add_places(add)
    add.set_defaults(command=write_page)

    add = tasks.add_parser(
        "watch",
        help="say whether the nights come, and how they ended",
        description="Print the last verdict of each series, or MISSING if the next night is "
        "overdue. Exit status: 11 if one is MISSING, else that of the worst verdict.",
    )
    add.add_argument("--published", metavar="URL", help="read this git repository")
    add.add_argument("--series", action="append", default=[], metavar="NAME")
    add.add_argument("--overdue", type=float, metavar="HOURS", help="default: 36")
    add.add_argument("--issues", type=Path, metavar="DIR", help="write texts of issues below DIR")
    _add_places(add)
    add.set_defaults(command=watch_nights)

    add = tasks.add_parser("prune", help="remove sessions and pages of nights long ago")
    add.add_argument("--keep", type=int, default=90, metavar="DAYS", help="default: 90")
    _add_places(add)
    add.set_defaults(command=prune)

    add = commands.add_parser(
        "regressions",
        help="list lasting changes over nights, with the commands that repeat them",
    )
    add.add_argument("--since", type=_date, metavar="DATE", help="such as 2026-01-01")
    add.add_argument("--published", metavar="URL", help="read this git repository")
    add.add_argument("--series", action="append", default=[], metavar="NAME")
    add.add_argument("--better", action="store_true", help="list improvements, too")
    _add_places(add)
    add.set_defaults(command=list_regressions)


def _add_places(add: argparse.ArgumentParser) -> None:
    add.add_argument(
        "--results", type=Path, default=RESULTS, metavar="DIR", help="default: results"
    )
    add.add_argument("--branch", metavar="NAME", help="of the repository; default: hvdperf-nights")


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: is no date such as 2026-01-31") from None


# Commands import what they need themselves: publishing and watching need no SciPy and no pytest.


def run_night(arguments: argparse.Namespace) -> int:
    from hvdperf.nightly.run import Wish, run

    more = arguments.pytest[1:] if arguments.pytest[:1] == ["--"] else arguments.pytest
    wish = Wish(
        results=arguments.results,
        series=check_series(arguments.series),
        night=f"{_date_of(arguments.night)}",
        profile=arguments.profile,
        against=arguments.against,
        require_fit=arguments.require_fit,
        pair=not arguments.no_pair,
        launch=tuple(shlex.split(arguments.launch)),
        arguments=tuple(more),
    )
    night = run(wish, lambda line: print(f"nightly: {line}", flush=True))
    status = exit_status([row.verdict for _, row in night.cases] or [night.verdict])
    for line in wrapped(
        f"{night.series}, night of {night.night}: {night.verdict.value} ({night.told})"
    ):
        print(line, flush=True)
    try:
        write_page(arguments)
        if arguments.publish:
            arguments.url = arguments.publish
            publish_nights(arguments)
    except UserError as error:
        complain(str(error))
        return status or NOT_WRITTEN
    return status


def _date_of(text: str | None) -> date:
    if text is None:
        return datetime.now(UTC).date()
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UserError(f"--night {text}: is no date such as 2026-01-31") from None


def write_page(arguments: argparse.Namespace) -> int:
    from hvdperf.nightly.index import write_index

    nights = arguments.results / NIGHTS
    pages = arguments.results / "report"
    print(f"nights: {shown(write_index(nights / INDEX, nights, pages, places.SITE))}")
    return 0


def publish_nights(arguments: argparse.Namespace) -> int:
    from hvdperf.nightly.publish import BRANCH, place_of, publish, told

    place = place_of(arguments.url, arguments.results, arguments.branch or BRANCH)
    added = publish(place, arguments.results, complain)
    print(f"published to {place.url}, branch {place.branch}: {told(added) or 'nothing new'}")
    return 0


def _nights_directory(arguments: argparse.Namespace) -> Path:
    """Return the directory of the nights to read: that of the results, or of a clone."""
    from hvdperf.nightly.publish import BRANCH, fetched, place_of

    if arguments.published is None:
        return arguments.results / NIGHTS  # type: ignore[no-any-return]
    return fetched(place_of(arguments.published, arguments.results, arguments.branch or BRANCH))


def watch_nights(arguments: argparse.Namespace) -> int:
    from hvdperf.nightly.watch import OVERDUE_H, watched, write_issues

    found = read_nights(_nights_directory(arguments))
    for line in found.left_out:
        complain(line)
    overdue = OVERDUE_H if arguments.overdue is None else arguments.overdue
    names = arguments.series or list(found.of)
    if not names:
        raise UserError("there is no night of any series yet; name those that should be: --series")
    now = datetime.now(UTC)
    states = [watched(name, found.of.get(name, ()), now, overdue) for name in names]
    for state in states:
        print(state.line())
    if arguments.issues is not None:
        write_issues(states, arguments.issues)
    return max((state.status for state in states), key=_badness)


def _badness(status: int) -> int:
    """Return the rank of an exit status: missing is worst, then FAIL."""
    order = (11, 1, 7, 10, 6)
    return len(order) - order.index(status) if status in order else 0


def list_regressions(arguments: argparse.Namespace) -> int:
    from hvdperf.nightly.index import change_text
    from hvdperf.nightly.lines import changes
    from hvdperf.nightly.watch import command_of

    found = read_nights(_nights_directory(arguments), arguments.series)
    for line in found.left_out:
        complain(line)
    table = Columns(("since", -10), ("change (95 %)", -26), ("nights", 6), (" line", 0))
    for name, nights in found.of.items():
        told, nodes = changes(nights)
        shown_ = [
            change
            for change in told
            if (change.is_worse or arguments.better)
            and (arguments.since is None or change.night.night >= f"{arguments.since}")
        ]
        print(f"{name}: {len(nights)} nights, {nights[0].night} to {nights[-1].night}")
        if shown_:
            print(table.header)
        for change in shown_:
            word = "" if change.is_worse else " (better)"
            row = (change.night.night, change_text(change), change.nights_since)
            print(table.row(*row, f" {change.line.name}{word}"))
            for mark in change.marks:
                print(f"    that night: {mark}")
            own = own_part(change.night)
            rows = own.cases if own is not None else ()
            case = next((row for row in rows if row.name == change.line.name), None)
            command = command_of(case) if case else _throughput_command(change.line)
            print(f"    again: {command}")
        for node in nodes:
            text = (
                f"{', '.join(node.hosts)}: {100 * (node.change - 1):+.1f} % on {node.nights} nights"
            )
            print(f"  a host that differs: {text}, in {node.lines} lines; left out above")
        if not shown_:
            print("  nothing has become worse")
    return 0


def _throughput_command(line) -> str:  # type: ignore[no-untyped-def]
    return (
        f"pytest perf/test_scaling.py --models {line.model} --world-sizes {line.world_size} "
        "-k weak_scaling"
    )


def prune(arguments: argparse.Namespace) -> int:
    from hvdperf.nightly.prune import remove_older

    for line in remove_older(arguments.results, arguments.keep):
        print(line)
    return 0
