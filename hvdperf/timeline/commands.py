"""The commands of the timeline: nightly and regressions, of unattended nights; history and bisect,
of the throughput across Horovod and TensorFlow releases."""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from hvdperf.cli import REFUSED, Commands, add_command, complain, option
from hvdperf.columns import Columns, wrapped
from hvdperf.errors import UserError, refusing
from hvdperf.files import write_whole
from hvdperf.paths import CACHE, CHECKOUT, RESULTS, ROOT, shown
from hvdperf.session.commands import from_here
from hvdperf.session.ending import NOT_WRITTEN, exit_status
from hvdperf.timeline import places
from hvdperf.timeline.nights.night import (
    BRANCH,
    OVERDUE_H,
    Accepted,
    Night,
    add_accepted,
    check_series,
    read_nights,
)
from hvdperf.timeline.releases import backfill
from hvdperf.timeline.releases.raw import Axis, check_known, keep, keep_sessions, read_history
from hvdperf.timeline.store import HISTORY, INDEX, NIGHTS, write
from hvdperf.verdict import Verdict

if TYPE_CHECKING:
    from hvdperf.timeline.nights.run import NightPlan


def add_to(commands: Commands) -> None:
    """Add the commands nightly and regressions, and in a checkout history and bisect."""
    text = (
        "Find regressions overnight: measure unattended, publish, watch. Nights are published to a "
        "git repository, so that another machine can watch them."
    )
    tasks = add_command(commands, "nightly", text).add_subparsers(required=True, metavar="TASK")
    _add_run(tasks)

    text = "Publish all finished nights to a git repository."
    add = add_command(tasks, "publish", text, publish_nights)
    option(add, "url URL", "Publish to this git repository.")
    _add_places(add)

    text = "Write the page of all nights and releases."
    _add_places(add_command(tasks, "index", text, write_page), repository=False)

    text = (
        "Report each series in one line: its latest night, or MISSING if the next is overdue. "
        "Exit status: 11 if a series is MISSING, otherwise the status of the worst verdict."
    )
    add = add_command(tasks, "watch", text, watch_nights)
    text = "Report a series as MISSING if its latest night is more than HOURS hours old."
    group = _add_which_nights(add)
    option(group, "--overdue HOURS", text, OVERDUE_H, f"{OVERDUE_H:g}", type=float)
    text = "Write the state of all series to this file, as JSON; - for stdout instead of text."
    option(add, "--json FILE", text, told="none")
    text = "Write the text of an issue for each finding to this directory."
    option(_add_places(add), "--issues DIR", text, told="none", type=Path)

    text = (
        "Accept the current performance of a series as its new baseline. Regressions up to this "
        "night no longer FAIL, here and, once published, elsewhere."
    )
    add = add_command(tasks, "accept", text, accept)
    option(add, "--series NAME", "Accept this series. Required.", required=True)
    option(
        add, "--night DATE", "Accept regressions up to the night of this date.", told="the last one"
    )
    text = "The reason, which the page and `hvdperf regressions` show. Required."
    option(add, "--why REASON", text, required=True)
    _add_places(add, repository=False)

    add = add_command(tasks, "prune", "Remove the sessions and pages of old nights.", prune)
    option(add, "--keep DAYS", "Keep the last DAYS days.", 90, type=int)
    _add_places(add, repository=False)

    text = "List the regressions found in all series, with the commands that reproduce them."
    add = add_command(commands, "regressions", text, list_regressions)
    group = _add_which_nights(add)
    option(group, "--since DATE", "List changes since this date, such as 2026-01-01.", told="all")
    option(group, "--better", "List improvements, too.", told="only regressions")
    _add_places(add)

    # The history builds environments, for which it needs the files of a checkout.
    if CHECKOUT:
        _add_history(commands)


def _add_run(tasks: Commands) -> None:
    text = (
        "Measure one night: doctor, A/A test, session, and with --against an A/B test against a "
        "pinned stack. An interrupted night is resumed. Options after -- are passed to pytest."
    )
    add = add_command(tasks, "run", text, run_night)
    group = add.add_argument_group("what to measure")
    option(group, "--profile NAME", "Measure this profile.", "nightly")
    text = "Compare with the stack installed for this Python interpreter."
    option(group, "--against PYTHON", text, "", "judge by thresholds")
    text = "Measure only if `hvdperf doctor` finds no problem."
    option(group, "--require-fit", text, told="measure anyway")
    option(group, "--no-pair", "Skip the A/A test.", told="run it first")
    text = "Pass these options to pytest."
    group.add_argument("pytest", nargs=argparse.REMAINDER, metavar="-- ...", help=text)
    group = add.add_argument_group("where and when")
    text = "Put these words before pytest, such as 'mpirun -np 4'."
    option(group, "--launch WORDS", text, "", "none")
    option(group, "--series NAME", "Add the night to this series.", "nightly")
    text = (
        "Measure each node on its own. Use --launch to start one process per node; without it, "
        "only this node is measured."
    )
    option(group, "--by-node", text, told="measure all nodes together")
    option(group, "--night DATE", "Record this as the night of DATE.", told="today, in UTC")
    group = _add_places(add)
    option(group, "--publish URL", "Also publish to this git repository.", told="do not publish")
    text = "Append a summary of the night to this file, in Markdown."
    option(group, "--summary FILE", text, told="no summary", type=Path)


def _add_which_nights(add: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    group = add.add_argument_group("which nights")
    text = "Read this series. The option may be repeated."
    option(group, "--series NAME", text, [], "all", action="append")
    text = "Read the nights of this git repository."
    option(group, "--published URL", text, told="those of --results")
    return group


def _add_places(add: argparse.ArgumentParser, repository: bool = True) -> argparse._ArgumentGroup:
    group = add.add_argument_group("places")
    text = "Directory of nights and sessions."
    option(group, "--results DIR", text, RESULTS, "results", type=Path)
    if repository:
        option(group, "--branch NAME", "Use this branch of the git repository.", BRANCH)
    return group


def _add_history(commands: Commands) -> None:
    top = add_command(
        commands,
        "history",
        "Show the throughput across Horovod and TensorFlow releases, and fill gaps.",
    )
    tasks = top.add_subparsers(required=True, metavar="COMMAND")

    text = "Write the git repositories that asv reads."
    add_command(tasks, "releases", text, write_releases)
    text = "Convert sessions into asv results."
    add = add_command(tasks, "import", text, import_sessions)
    text = "Convert the sessions of this directory."
    option(add, "--sessions DIR", text, places.SESSIONS, "results/runs", type=Path)
    text = "Write the asv sites: one by Horovod release and one by TensorFlow release."
    add_command(tasks, "publish", text, publish)
    add = add_command(tasks, "preview", "Serve the sites on this machine.", preview)
    option(add, "--port N", "Serve on this port.", 8080, type=int)
    text = "Build and measure the missing combinations of releases."
    add = add_command(tasks, "backfill", text, fill_matrix)
    for name, versions in (("horovod", backfill.HOROVOD), ("tensorflow", backfill.TENSORFLOW)):
        option(add, f"--{name} V,V", "Measure these releases.", ",".join(versions))
    option(add, "--again", "Retry combinations that could not be built before.", told="skip them")
    text = "Show the state of each combination."
    option(add, "--list", text, told="build and measure, then show it")
    text = "Find releases that changed the throughput, in stored results."
    add_command(tasks, "changes", text, list_changes)
    # For hvdperf/timeline/asv/benchmarks: JSON on stdout.
    text = "Print the cases of the profile `history`, as JSON."
    add_command(tasks, "params", text, print_parameters)
    text = "Measure one installed stack, and print the results as JSON."
    add = add_command(tasks, "measure", text, measure_stack)
    text = "Measure the stack of this interpreter."
    option(add, "--stack PYTHON", text, required=True, type=Path)
    text = "Test common uses of Horovod on an installed stack, with each Keras version it has."
    add = add_command(tasks, "uses", text, try_uses_of_stack)
    text = "Try the stack of this interpreter."
    option(add, "--stack PYTHON", text, Path(sys.executable), "this one", type=Path)
    add_command(tasks, "machine", "Print the label of this machine.", print_machine)
    _add_bisect(commands)


def _add_bisect(commands: Commands) -> None:
    text = (
        "Find the release that changed the throughput. Releases are built, and each is compared "
        "with the --from release in a session of a few minutes."
    )
    add = add_command(commands, "bisect", text, bisect)
    group = add.add_argument_group("which releases")
    text = "Search the releases of this package. Default: tensorflow."
    choices = [axis.value for axis in Axis]
    group.add_argument("--along", choices=choices, default="tensorflow", help=text)
    option(group, "--from V", "Start with this older release.", dest="first", required=True)
    option(group, "--to V", "End with this newer release.", dest="last", required=True)
    option(group, "--at V", "Use this release of the other package.", required=True)
    group = add.add_argument_group("what to measure")
    option(group, "--model NAME", "Train this network, such as vgg_16_s.", required=True)
    option(group, "--np N", "Train on N ranks.", type=int, required=True)
    text = "Limit each session to MIN minutes."
    option(group, "--budget MIN", text, told="set by the profile", type=float)


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


# Commands import what they need themselves: publishing and watching need neither pytest nor asv, of
# which asv takes a second to import, and planning a session some tenths of one.


def run_night(arguments: argparse.Namespace) -> int:
    from hvdperf.timeline.nights.run import NightPlan, run

    more = arguments.pytest
    if more and more[0] != "--":
        raise UserError(f"{more[0]}: is no option of nightly run; options of pytest come after --")
    launch = _words("--launch", arguments.launch)
    starts_nodes = arguments.by_node and bool(launch)
    is_node = arguments.by_node and not launch
    # Another status than 0 would make mpirun end the other nodes; the verdict is in the document.
    ends_with_0 = is_node and _on_its_own()
    # pytest runs in the checkout, wherever this runs.
    plan = NightPlan(
        results=arguments.results.absolute(),
        series=check_series(arguments.series),
        night=_night(arguments.night),
        profile=from_here("profile", arguments.profile),
        against=from_here("against", arguments.against),
        require_fit=arguments.require_fit,
        pair=not arguments.no_pair,
        launch=() if arguments.by_node else launch,
        arguments=tuple(more[1:]),
        node=check_series(socket.gethostname(), "--by-node: the host's name") if is_node else "",
    )
    if starts_nodes:
        night = _on_each_node(launch, plan)
    else:
        night = run(plan, lambda line: print(f"nightly: {line}", flush=True))
    night, verdict, slower = told_next_to_others(night, plan.results)
    status = exit_status([verdict])
    try:
        if arguments.summary is not None:
            _append_summary(arguments.summary, night, verdict, slower, plan.results)
        if night.ended_at is not None:
            if not plan.node:
                write_nights_page(plan.results)
            if arguments.publish:
                _publish(arguments.publish, plan.results, arguments.branch)
    except UserError as error:
        complain(str(error))
        return status or NOT_WRITTEN
    return 0 if ends_with_0 else status


def _on_each_node(launch: Sequence[str], plan: NightPlan) -> Night:
    """Have each node measure itself, and return the night of all of them. Raises UserError if no
    node has begun one."""
    from hvdperf.timeline.processes import ended

    fit = ["--require-fit"] if plan.require_fit else []
    options = [
        *(f"--series={plan.series}", f"--night={plan.night}", f"--profile={plan.profile}"),
        *(f"--against={plan.against}", f"--results={plan.results}", *fit),
        *([] if plan.pair else ["--no-pair"]),
    ]
    # The launcher finds the command in the activated environment of each node.
    command = ["hvdperf", "nightly", "run", "--by-node", *options, "--", *plan.arguments]
    status = ended([*launch, *command])
    nights = read_nights(plan.directory).of.get(plan.series, ())
    found = next((night for night in nights if night.night == plan.night), None)
    ended_with = f"--launch {shlex.join(launch)}: ended with status {status}; see its output"
    if found is None:
        raise UserError(f"{ended_with}; no node has begun the night")
    if status:
        complain(ended_with)
    return found


def _on_its_own() -> bool:
    """Forget the launcher that started this command on several nodes, so that what follows has this
    node alone. Return whether there was one."""
    from hvdperf.machine.starting import rank_environment

    kept = rank_environment(sys.executable)
    of_launcher = [name for name in os.environ if name not in kept]
    for name in of_launcher:
        del os.environ[name]
    return bool(of_launcher)


def told_next_to_others(night: Night, results: Path) -> tuple[Night, Verdict, Sequence[str]]:
    """Print a night next to those before it. Return it so, with its verdict, and what is slower, in
    lines."""
    from hvdperf.timeline.nights.series import Series

    read = read_nights(results / NIGHTS, [night.series], night.node)
    known = [each for each in read.of[night.series] if each.night <= night.night]
    series = Series(night.series, known, read.accepted[night.series])
    lines = [*series.slower(), *series.speeds.lines()]
    night = series.last or night
    for line in wrapped(
        f"{night.series}, night of {night.night}: {series.verdict.value} ({night.told})"
    ):
        print(line, flush=True)
    for line in lines:
        print(f"  {line}", flush=True)
    return night, series.verdict, lines


def _append_summary(
    path: Path, night: Night, verdict: Verdict, slower: Sequence[str], results: Path
) -> None:
    """Append the night and its sessions to a file, in Markdown. Raises UserError, also if a session
    has no report."""
    texts = [f"# {night.series}, night of {night.night}: {verdict.value}", f"{night.told}."]
    texts += [f"{line[:1].upper()}{line[1:]}." for line in slower]
    texts += [f"Not ready to measure: {line}" for line in night.unfit]
    report = [sys.executable, "-m", "hvdperf", "report", "--format", "markdown"]
    for part in night.parts:
        words = [*report, str(results / "runs" / part.session)]
        done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise UserError(f"--summary {path}: {part.session} has no report; see above")
        if part.kind.is_gate:
            texts.append("Below, a session against the reference stack is judged alone.")
        texts.append(done.stdout.strip())
    with refusing(f"--summary {path}: ", OSError), open(path, "a", encoding="utf-8") as stream:
        stream.write("\n\n".join(texts) + "\n")


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
    write_nights_page(results)
    return 0


def write_nights_page(results: Path) -> None:
    from hvdperf.timeline.page.index import write_index

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
    from hvdperf.timeline.nights.watch import Watched, badness, state_of, write_issues

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
    series = [Series(n, found.of.get(n, ()), found.accepted.get(n, ())) for n in names]
    states = [Watched(each, now, hours) for each in series]
    for state in states if arguments.json != "-" else ():
        print(state.line())
        for text in state.series.slower():
            print(f"  {text}")
    if arguments.json is not None:
        document = json.dumps([state_of(state) for state in states], indent=1, default=str)
        if arguments.json == "-":
            print(document)
        else:
            with refusing(f"--json {arguments.json}: ", OSError):
                write_whole(Path(arguments.json), f"{document}\n")
    if arguments.issues is not None:
        with refusing(f"--issues {arguments.issues}: ", OSError):
            write_issues(states, arguments.issues)
    return max((state.status for state in states), key=badness)


def list_regressions(arguments: argparse.Namespace) -> int:
    from hvdperf.timeline.nights.changes import Standing, repeat
    from hvdperf.timeline.nights.series import Series

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
        many = f"{len(nights)} night{'s' * (len(nights) != 1)}"
        print(f"{name}: {many}, {nights[0].night} to {nights[-1].night}")
        if wanted:
            print(table.header)
        for change, standing in wanted:
            why = series.why(change.since) if standing is Standing.ACCEPTED else ""
            told = f"{standing.value}: {why}" if why else standing.value
            word = "" if standing is Standing.OPEN else f" ({told})"
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
    why = " ".join(arguments.why.split())
    if not why:
        raise UserError("--why: is empty; say why the series may stay as it is, for those who ask")
    add_accepted(directory / name, Accepted(night, why))
    write_nights_page(arguments.results)
    print(f"{name}: accepted as it was in the night of {night}: {why}")
    return 0


def prune(arguments: argparse.Namespace) -> int:
    from hvdperf.timeline.nights.night import remove_older

    if not arguments.results.is_dir():
        raise UserError(f"--results {shown(arguments.results)}: there is no such directory")
    for line in remove_older(arguments.results, arguments.keep):
        print(line)
    return 0


def write_releases(_: argparse.Namespace) -> int:
    from hvdperf.timeline.asv.export import make_repositories

    make_repositories()
    return 0


def import_sessions(arguments: argparse.Namespace) -> int:
    sessions: Path = arguments.sessions
    if sessions != places.SESSIONS and not sessions.is_dir():
        raise UserError(f"--sessions {sessions}: no such directory; give one such as results/runs")
    for line in keep_sessions(sessions, places.RAW):
        print(line)
    return _make_trees()


def _make_trees() -> int:
    """Write what asv reads, and return the exit status."""
    from hvdperf.timeline.asv.export import make_trees

    results, refused = make_trees()
    machines = {result.machine for result in results}
    trees = ", ".join(shown(path) for path in places.RESULTS.values())
    print(f"{len(results)} raw results of {len(machines)} machines in {trees}")
    return _told(refused)


def _told(refused: Sequence[str]) -> int:
    """Complain about the files that were left out, and return the exit status."""
    for line in refused:
        complain(line)
    return REFUSED if refused else 0


def publish(_: argparse.Namespace) -> int:
    from hvdperf.timeline.asv.site import make_offline

    for axis, html in places.HTML.items():
        configuration = places.CONFIGURATION[axis]
        done = subprocess.run(
            [sys.executable, "-m", "asv", "publish", "--config", configuration],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["it printed nothing"]
            raise UserError(f"asv publish --config {shown(configuration)} failed: {said[0]}")
        make_offline(html)
        print(f"{axis.value} releases on the x-axis: {shown(html)}")
    return 0


def preview(arguments: argparse.Namespace) -> int:
    from hvdperf.timeline.asv.site import serve

    if not 0 <= arguments.port <= 65535:
        raise UserError(f"--port {arguments.port}: must be between 0 and 65535")
    serve(places.SITE, arguments.port)
    return 0


def fill_matrix(arguments: argparse.Namespace) -> int:
    from hvdperf.timeline.releases.backfill import this_machine

    horovod, tensorflow = (_versions(axis, getattr(arguments, axis.value)) for axis in Axis)
    results, _ = read_history(places.RAW)
    wanted = list(backfill.combinations(results, this_machine(), horovod, tensorflow))
    status = 0
    if not arguments.list:
        wanted = backfill.fill(wanted, lambda line: print(line, flush=True), again=arguments.again)
        status = _make_trees()
    for line in backfill.table(wanted):
        print(line)
    return status


def _versions(axis: Axis, text: str) -> list[str]:
    """Return the versions of a text such as `0.28.0,0.28.1`. Raises UserError for an unknown one,
    and if there is none."""
    versions = [part.strip() for part in text.split(",") if part.strip()]
    for version in versions:
        check_known(axis, f"--{axis.value}", version)
    if not versions:
        raise UserError(
            f"--{axis.value} {text}: names no version; give one, such as those of "
            "hvdperf/timeline/releases/releases.toml"
        )
    return versions


def list_changes(_: argparse.Namespace) -> int:
    from hvdperf.timeline.releases.by_release import report, series_of

    results, refused = read_history(places.RAW)
    for text in report(series_of(results)):
        print(text)
    return _told(refused)


def bisect(arguments: argparse.Namespace) -> int:
    from hvdperf.timeline.releases.bisect import Asked, bisect_command

    asked = Asked(
        along=Axis(arguments.along),
        at=arguments.at,
        model=arguments.model,
        world_size=arguments.np,
        budget_minutes=arguments.budget,
    )
    return bisect_command(arguments.first, arguments.last, asked)


def print_parameters(_: argparse.Namespace) -> int:
    from hvdperf.timeline.releases.backfill import parameters

    print(json.dumps(parameters()))
    return 0


def measure_stack(arguments: argparse.Namespace) -> int:
    from statistics import median

    from hvdperf.timeline.releases.backfill import measure

    result = measure(arguments.stack, quiet=True)
    keep(result, places.RAW)
    figures = {
        f"{each.model}/{each.replica}/{each.world_size}": median(each.values)
        for each in result.results
    }
    print(json.dumps(figures))
    return 0


def try_uses_of_stack(arguments: argparse.Namespace) -> int:
    from hvdperf.machine.stack import probe
    from hvdperf.timeline.releases.uses import try_stack

    stack = probe(arguments.stack, CACHE, {**os.environ, "TF_USE_LEGACY_KERAS": "0"})
    for legacy in (False, True)[: 1 + stack.has_tf_keras]:
        found = try_stack(
            arguments.stack, CACHE, legacy, lambda line: print(f"uses: {line}", flush=True)
        )
        print(f"uses: {shown(write(places.USES / f'{found.name}.json', found))}")
    return 0


def print_machine(_: argparse.Namespace) -> int:
    from hvdperf.timeline.releases.backfill import this_machine

    print(this_machine())
    return 0
