"""The commands of unattended nights: nightly and regressions."""

from __future__ import annotations

import argparse
import math
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from hvdperf.cli import Commands, add_command, complain, option
from hvdperf.columns import Columns, wrapped
from hvdperf.errors import UserError
from hvdperf.paths import RESULTS, ROOT, shown
from hvdperf.session.commands import from_here
from hvdperf.session.ending import NOT_WRITTEN, exit_status
from hvdperf.timeline import places
from hvdperf.timeline.nights.night import (
    BRANCH,
    OVERDUE_H,
    Night,
    check_series,
    read_nights,
    write_accepted,
)
from hvdperf.timeline.store import HISTORY, NIGHTS
from hvdperf.verdict import Verdict


def add_to(commands: Commands) -> None:
    """Add the commands nightly, which has commands of its own, and regressions."""
    text = (
        "Measure unattended, publish, and watch. A night is published to a git repository, and "
        "watched from elsewhere."
    )
    tasks = add_command(commands, "nightly", text).add_subparsers(required=True, metavar="TASK")
    _add_run(tasks)

    text = "Publish all ended nights to a git repository."
    add = add_command(tasks, "publish", text, publish_nights)
    option(add, "url URL", "Publish to this git repository.")
    _add_places(add)

    text = "Write the page of all nights and releases."
    _add_places(add_command(tasks, "index", text, write_page), repository=False)

    text = (
        "Say whether the nights come, and how they ended. A series is MISSING if its next night is "
        "overdue. Exit status: 11 if one is MISSING, else that of the worst verdict."
    )
    add = add_command(tasks, "watch", text, watch_nights)
    text = "Call a series MISSING this many hours after its last night."
    group = _add_which_nights(add)
    option(group, "--overdue HOURS", text, OVERDUE_H, f"{OVERDUE_H:g}", type=float)
    text = "Write texts of issues into this directory."
    option(_add_places(add), "--issues DIR", text, told="none", type=Path)

    text = (
        "Accept that a series is slower. What became slower up to this night FAILs no more, here "
        "and, once it is published, elsewhere."
    )
    add = add_command(tasks, "accept", text, accept)
    option(add, "--series NAME", "Accept this series as it is. Required.", required=True)
    option(add, "--night DATE", "Up to the night of this date.", told="the last one")
    _add_places(add, repository=False)

    add = add_command(tasks, "prune", "Remove sessions and pages of nights long ago.", prune)
    option(add, "--keep DAYS", "Keep those of the last DAYS days.", 90, type=int)
    _add_places(add, repository=False)

    text = "List lasting changes over nights, with the commands that repeat them."
    add = add_command(commands, "regressions", text, list_regressions)
    group = _add_which_nights(add)
    option(group, "--since DATE", "List changes since this date, such as 2026-01-01.", told="all")
    option(group, "--better", "List improvements, too.", told="only regressions")
    _add_places(add)


def _add_run(tasks: Commands) -> None:
    text = (
        "Measure one night: doctor, A/A pair, session, gate. A night that was interrupted goes on. "
        "Options after -- are passed on to pytest."
    )
    add = add_command(tasks, "run", text, run_night)
    group = add.add_argument_group("what to measure")
    option(group, "--profile NAME", "Measure this profile.", "nightly")
    text = "Compare with the stack of this interpreter."
    option(group, "--against PYTHON", text, "", "judge by thresholds")
    text = "Measure only if doctor finds no problem."
    option(group, "--require-fit", text, told="measure anyway")
    option(group, "--no-pair", "Leave out the A/A pair.", told="measure it first")
    text = "Pass these options on to pytest."
    group.add_argument("pytest", nargs=argparse.REMAINDER, metavar="-- ...", help=text)
    group = add.add_argument_group("where and when")
    text = "Put these words before pytest, such as 'mpirun -np 4'."
    option(group, "--launch WORDS", text, "", "none")
    option(group, "--series NAME", "Add the night to this series.", "nightly")
    option(group, "--night DATE", "Measure the night of this date.", told="today, in UTC")
    group = _add_places(add)
    option(group, "--publish URL", "Publish to this git repository, too.", told="do not")
    text = "Append the night to this file, in Markdown."
    option(group, "--summary FILE", text, told="do not", type=Path)


def _add_which_nights(add: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    group = add.add_argument_group("which nights")
    text = "Read this series. The option may be repeated."
    option(group, "--series NAME", text, [], "all", action="append")
    text = "Read the nights of this git repository."
    option(group, "--published URL", text, told="those of --results")
    return group


def _add_places(add: argparse.ArgumentParser, repository: bool = True) -> argparse._ArgumentGroup:
    group = add.add_argument_group("places")
    text = "Keep nights and sessions in this directory."
    option(group, "--results DIR", text, RESULTS, "results", type=Path)
    if repository:
        option(group, "--branch NAME", "Use this branch of the git repository.", BRANCH)
    return group


def _date(name: str, text: str) -> date:
    """Return the date. Raises UserError for a text that is none."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UserError(f"{name} {text}: is no date such as 2026-01-31") from None


def _words(name: str, text: str) -> tuple[str, ...]:
    """Return the words of a text as a shell splits it. Raises UserError."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        problem = f"{error}".lower()
        raise UserError(f"{name} {text}: {problem}; close every quotation mark") from None


# Commands import what they need themselves: publishing and watching need neither pytest nor asv.


def run_night(arguments: argparse.Namespace) -> int:
    from hvdperf.timeline.nights.run import NightPlan, run

    more = arguments.pytest
    if more and more[0] != "--":
        raise UserError(f"{more[0]}: is no option of nightly run; options of pytest come after --")
    # pytest runs in the checkout, wherever this runs.
    plan = NightPlan(
        results=arguments.results.absolute(),
        series=check_series(arguments.series),
        night=_night(arguments.night),
        profile=from_here("profile", arguments.profile),
        against=from_here("against", arguments.against),
        require_fit=arguments.require_fit,
        pair=not arguments.no_pair,
        launch=_words("--launch", arguments.launch),
        arguments=tuple(more[1:]),
    )
    night = run(plan, lambda line: print(f"nightly: {line}", flush=True))
    verdict, slower = _compared(night, plan.results)
    status = exit_status([verdict])
    told = f"{night.series}, night of {night.night}: {verdict.value} ({night.told})"
    for line in wrapped(told):
        print(line, flush=True)
    for line in slower:
        print(f"  {line}", flush=True)
    try:
        if arguments.summary is not None:
            _append_summary(arguments.summary, night, verdict, slower, plan.results)
        if night.ended_at is not None:
            _write_page(plan.results)
            if arguments.publish:
                _publish(arguments.publish, plan.results, arguments.branch)
    except UserError as error:
        complain(str(error))
        return status or NOT_WRITTEN
    return status


def _compared(night: Night, results: Path) -> tuple[Verdict, Sequence[str]]:
    """Return the verdict of a night next to those before it, and what fell, in lines."""
    from hvdperf.timeline.nights.series import falls, verdict_of

    read = read_nights(results / NIGHTS, [night.series])
    known = [each for each in read.of[night.series] if each.night <= night.night]
    found, waits = falls(known, read.accepted[night.series])
    fall = found.get(len(known) - 1)
    return verdict_of(night, fall), [*(fall.lines() if fall else ()), *filter(None, [waits])]


def _append_summary(
    path: Path, night: Night, verdict: Verdict, slower: Sequence[str], results: Path
) -> None:
    """Append the night and its sessions to a file, in Markdown."""
    texts = [f"# {night.series}, night of {night.night}: {verdict.value}", f"{night.told}."]
    texts += [f"{line[:1].upper()}{line[1:]}." for line in slower]
    texts += [f"Unfit: {line}" for line in night.unfit]
    report = [sys.executable, "-m", "hvdperf", "report", "--format", "markdown"]
    for part in night.parts:
        words = [*report, str(results / "runs" / part.session)]
        done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        texts.append(done.stdout.strip())
    try:
        with open(path, "a", encoding="utf-8") as stream:
            stream.write("\n\n".join(texts) + "\n")
    except OSError as error:
        raise UserError(f"--summary {path}: {error.strerror}") from None


def _night(text: str | None) -> date:
    today = datetime.now(UTC).date()
    night = today if text is None else _date("--night", text)
    if night > today + timedelta(days=1):
        raise UserError(f"--night {text}: has not come yet")
    return night


def write_page(arguments: argparse.Namespace) -> int:
    results: Path = arguments.results
    if not any((results / folder).is_dir() for folder in (NIGHTS, HISTORY)):
        raise UserError(f"{shown(results / NIGHTS)}: there are no nights; measure one: nightly run")
    _write_page(results)
    return 0


def _write_page(results: Path) -> None:
    from hvdperf.timeline.page.index import INDEX, write_index

    until = datetime.now(UTC).date()
    path = write_index(results / NIGHTS / INDEX, results, results / "report", places.SITE, until)
    print(f"nights: {shown(path)}")


def publish_nights(arguments: argparse.Namespace) -> int:
    _publish(arguments.url, arguments.results, arguments.branch)
    return 0


def _publish(url: str, results: Path, branch: str) -> None:
    from hvdperf.timeline.processes import without_secret
    from hvdperf.timeline.publish import place_of, publish, told

    added = publish(place_of(url, results, branch), results, complain)
    print(f"published to {without_secret(url)}, branch {branch}: {told(added) or 'nothing new'}")


def _nights_directory(arguments: argparse.Namespace) -> Path:
    """Return the directory of the nights to read: that of the results, or of a clone."""
    from hvdperf.timeline.publish import fetched, place_of

    results: Path = arguments.results
    if arguments.published is None:
        return results / NIGHTS
    return fetched(place_of(arguments.published, results, arguments.branch))


def watch_nights(arguments: argparse.Namespace) -> int:
    from hvdperf.timeline.nights.series import Series
    from hvdperf.timeline.nights.watch import badness, watched, write_issues

    hours: float = arguments.overdue
    if not 0 < hours < math.inf:
        raise UserError(f"--overdue {hours:g}: give hours above zero, such as 28")
    for name in arguments.series:
        check_series(name)
    found = read_nights(_nights_directory(arguments))
    for line in found.left_out:
        complain(line)
    names = arguments.series or list(found.of)
    if not names:
        raise UserError("there is no night of any series yet; name those that should be: --series")
    now = datetime.now(UTC)
    series = [Series(n, found.of.get(n, ()), found.accepted.get(n, date.min)) for n in names]
    states = [watched(each, now, hours) for each in series]
    for state in states:
        print(state.line())
        for text in state.series.slower():
            print(f"  {text}")
    if arguments.issues is not None:
        try:
            write_issues(states, arguments.issues)
        except OSError as error:
            raise UserError(f"--issues {arguments.issues}: {error.strerror}") from None
    return max((state.status for state in states), key=badness)


def list_regressions(arguments: argparse.Namespace) -> int:
    from hvdperf.timeline.nights.series import Series, Standing, repeat

    since = "" if arguments.since is None else f"{_date('--since', arguments.since)}"
    directory = _nights_directory(arguments)
    found = read_nights(directory, arguments.series)
    for line in found.left_out:
        complain(line)
    if not found.of:
        raise UserError(f"{shown(directory)}: there are no nights; measure one: nightly run")
    table = Columns(("since", -10), ("change (95 %)", -26), ("nights", 6), (" line", 0))
    for name, nights in found.of.items():
        series = Series(name, nights, found.accepted[name])
        wanted = [
            (change, standing)
            for change, standing in series.changes
            if (change.is_worse or arguments.better) and change.since >= since
        ]
        print(f"{name}: {len(nights)} nights, {nights[0].night} to {nights[-1].night}")
        if wanted:
            print(table.header)
        for change, standing in wanted:
            word = "" if standing is Standing.OPEN else f" ({standing.value})"
            row = (change.since, change.size, change.count)
            print(table.row(*row, f" {change.line.name}{word}"))
            for mark in change.marks:
                print(f"    that night: {mark}")
            if command := repeat(nights[change.at], change.line):
                print(f"    again: {command}")
        for node in series.found.nodes:
            text = f"{100 * (node.change - 1):+.1f} % on {node.nights} nights, {node.lines} lines"
            print(f"  a host that differs: {', '.join(node.hosts)}: {text}; left out above")
        if not wanted:
            what = "changed" if arguments.better else "become worse"
            print(f"  nothing has {what}{f' since {since}' if since else ''}")
    return 0


def accept(arguments: argparse.Namespace) -> int:
    name = check_series(arguments.series)
    directory = arguments.results / NIGHTS
    last = read_nights(directory, [name]).of[name][-1].night
    night = last if arguments.night is None else _date("--night", arguments.night)
    if night > last:
        raise UserError(f"--night {night}: is after the last night, {last}")
    write_accepted(directory / name, night)
    _write_page(arguments.results)
    print(f"{name}: accepted as it was in the night of {night}")
    return 0


def prune(arguments: argparse.Namespace) -> int:
    from hvdperf.timeline.nights.night import remove_older

    if not arguments.results.is_dir():
        raise UserError(f"--results {shown(arguments.results)}: there is no such directory")
    for line in remove_older(arguments.results, arguments.keep):
        print(line)
    return 0
