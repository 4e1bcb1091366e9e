"""The commands of the timeline: nightly and regressions, of unattended nights; history and bisect,
of the throughput across Horovod and TensorFlow releases."""

from __future__ import annotations

import json
import math
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from statistics import median

from hvdperf.cli import REFUSED, Command, Group, complain
from hvdperf.columns import wrapped
from hvdperf.errors import UserError, refusing
from hvdperf.files import write_whole
from hvdperf.paths import CHECKOUT, RESULTS, shown
from hvdperf.session.commands import from_here
from hvdperf.session.ending import NOT_WRITTEN, exit_status
from hvdperf.timeline import history, stacks
from hvdperf.timeline.lines import Standing
from hvdperf.timeline.nights import night as documents
from hvdperf.timeline.nights.night import OVERDUE_H, Night, check_series, read_nights
from hvdperf.timeline.nights.run import NightPlan, run
from hvdperf.timeline.nights.series import Series
from hvdperf.timeline.nights.watch import Watched, badness, state_of, write_issues
from hvdperf.timeline.pages import write_index
from hvdperf.timeline.processes import run_to_end, without_secret
from hvdperf.timeline.publish import Place, added_in_words, fetched, publish
from hvdperf.timeline.store import INDEX, NIGHTS
from hvdperf.verdict import Verdict


@dataclass(frozen=True)
class Results:
    """Where nights and sessions are.

    places
        --results DIR: Directory of nights and sessions. Default: results.
    """

    results: Path = RESULTS


@dataclass(frozen=True)
class WhichNights:
    """Which nights are read.

    which nights
        --series NAME: Read this series. The option may be repeated. Default: all.
        --published URL: Read the nights of this git repository. Default: those of --results.
    """

    series: tuple[str, ...] = ()
    published: str | None = None


@dataclass(frozen=True)
class NightRequest:
    """A night to measure.

    what to measure
        --profile NAME: Measure this profile.
        --against PYTHON: Compare with the stack installed for this Python interpreter. Default:
            judge by thresholds.
        --require-fit: Measure only if `hvdperf doctor` finds no problem. Default: measure anyway.

    where and when
        --launch WORDS: Put these words before pytest, such as 'mpirun -np 4'. Default: none.
        --series NAME: Add the night to this series.
        --by-node: Measure each node on its own. Use --launch to start one process per node; without
            it, only this node is measured. Default: measure all nodes together.
        --night DATE: Record this as the night of DATE. Default: today, in UTC.

    places
        --publish URL: Also publish to this git repository. Default: do not publish.
    """

    profile: str = "nightly"
    against: str = ""
    require_fit: bool = False
    launch: str = ""
    series: str = "nightly"
    by_node: bool = False
    night: date | None = None
    publish: str | None = None


# asv takes a second to import, so only the commands that need it import it.


def run_night(*pytest: str, request: NightRequest, where: Results) -> int:
    """Measure one night: doctor, session, and with --against an A/B test against a pinned
    stack. An interrupted night is resumed. Options after -- are passed to pytest.

    what to measure
        -- ...: Pass these options to pytest.
    """
    dashes, *more = pytest or ["--"]
    if dashes != "--":
        raise UserError(f"{dashes}: is no option of nightly run; options of pytest come after --")
    try:
        launch = tuple(shlex.split(request.launch))
    except ValueError as error:
        problem = f"{error}".lower()
        raise UserError(
            f"--launch {request.launch}: {problem}; close every quotation mark"
        ) from None
    starts_nodes = request.by_node and bool(launch)
    is_node = request.by_node and not launch
    # Another status than 0 would make mpirun end the other nodes; the verdict is in the document.
    ends_with_0 = is_node and _on_its_own()
    today = datetime.now(UTC).date()
    date_of_night = request.night or today
    if date_of_night > today + timedelta(days=1):
        raise UserError(f"--night {date_of_night}: has not come yet")
    # pytest runs in the checkout, wherever this runs.
    plan = NightPlan(
        results=where.results.absolute(),
        series=check_series(request.series),
        night=date_of_night,
        profile=from_here("profile", request.profile),
        against=from_here("against", request.against),
        require_fit=request.require_fit,
        launch=() if request.by_node else launch,
        arguments=tuple(more),
        node=check_series(socket.gethostname(), "--by-node: the host's name") if is_node else "",
    )
    if starts_nodes:
        night = _on_each_node(launch, plan)
    else:
        night = run(plan, lambda line: print(f"nightly: {line}", flush=True))
    status = exit_status([told_next_to_others(night, plan.results)])
    try:
        if night.ended_at is not None:
            if not plan.node:
                write_nights_page(plan.results)
            if request.publish:
                publish_nights(request.publish, Results(plan.results))
    except UserError as error:
        complain(str(error))
        return status or NOT_WRITTEN
    return 0 if ends_with_0 else status


def _on_each_node(launch: Sequence[str], plan: NightPlan) -> Night:
    """Have each node measure itself, and return the night of all of them. Raises UserError if no
    node has begun one."""
    fit = ["--require-fit"] if plan.require_fit else []
    options = [
        *(f"--series={plan.series}", f"--night={plan.night}", f"--profile={plan.profile}"),
        *(f"--against={plan.against}", f"--results={plan.results}", *fit),
    ]
    # The launcher finds the command in the activated environment of each node.
    command = ["hvdperf", "nightly", "run", "--by-node", *options, "--", *plan.arguments]
    status = run_to_end([*launch, *command])
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


def told_next_to_others(night: Night, results: Path) -> Verdict:
    """Print a night as judged with those before it, and return its verdict."""
    read = read_nights(results / NIGHTS, [night.series], night.node)
    known = [each for each in read.of[night.series] if each.night <= night.night]
    series = Series(night.series, known, read.accepted[night.series])
    lines = [*series.slower(), *series.speeds.lines()]
    night = series.last or night
    head = f"{night.series}, night of {night.night}: {series.verdict.value} ({night.told})"
    for line in (*wrapped(head), *(f"  {line}" for line in lines)):
        print(line, flush=True)
    return series.verdict


def write_page(where: Results) -> int:
    """Write the page of all nights."""
    results = where.results
    if not (results / NIGHTS).is_dir():
        raise UserError(f"{shown(results / NIGHTS)}: there are no nights; measure one: nightly run")
    write_nights_page(results)
    return 0


def write_nights_page(results: Path) -> None:
    until = datetime.now(UTC).date()
    path = write_index(results / NIGHTS / INDEX, results, results / "report", until)
    print(f"nights: {shown(path)}")


def publish_nights(url: str, where: Results) -> int:
    """Publish all finished nights to a git repository.

    URL: Publish to this git repository.
    """
    added = publish(Place(url, where.results), complain)
    place = f"{without_secret(url)}, branch {documents.BRANCH}"
    print(f"published to {place}: {added_in_words(added) or 'nothing new'}")
    return 0


def _read(which: WhichNights, where: Results, series: Sequence[str] = ()) -> documents.Nights:
    """Return the nights to read: those of the results, or of a clone. series: those that have to be
    there; all by default."""
    directory = where.results / NIGHTS
    if which.published is not None:
        directory = fetched(Place(which.published, where.results))
    found = read_nights(directory, series)
    for line in found.left_out:
        complain(line)
    return found


def watch_nights(
    which: WhichNights,
    where: Results,
    *,
    overdue_hours: float = OVERDUE_H,
    json_: str | None = None,
    issues: Path | None = None,
) -> int:
    """Report each series in one line: its latest night, or MISSING if the next is overdue. Exit
    status: 11 if a series is MISSING, otherwise the status of the worst verdict.

    which nights
        --overdue HOURS: Report a series as MISSING if its latest night is more than HOURS hours
            old. Default: {OVERDUE_H:g}.

    --json FILE: Write the state of all series to this file, as JSON; - for stdout instead of text.
        Default: none.

    places
        --issues DIR: Write the text of an issue for each finding to this directory. Default: none.
    """
    if not 0 < overdue_hours < math.inf:
        raise UserError(f"--overdue {overdue_hours:g}: give hours above zero, such as 28")
    for name in which.series:
        check_series(name)
    found = _read(which, where)
    names = which.series or list(found.of)
    if not names:
        raise UserError("there is no night of any series yet; name those that should be: --series")
    now = datetime.now(UTC)
    series = [Series(n, found.of.get(n, ()), found.accepted.get(n, ())) for n in names]
    states = [Watched(each, now, overdue_hours) for each in series]
    for state in states if json_ != "-" else ():
        print(state.line())
        for text in state.series.slower():
            print(f"  {text}")
    if json_ is not None:
        document = json.dumps([state_of(state) for state in states], indent=1, default=str)
        if json_ == "-":
            print(document)
        else:
            with refusing(f"--json {json_}: ", OSError):
                write_whole(Path(json_), f"{document}\n")
    if issues is not None:
        with refusing(f"--issues {issues}: ", OSError):
            write_issues(states, issues)
    return max((state.status for state in states), key=badness)


def list_regressions(
    which: WhichNights, where: Results, *, since: date | None = None, better: bool = False
) -> int:
    """List the regressions found in all series, with the commands that reproduce them.

    which nights
        --since DATE: List changes since this date, such as 2026-01-01. Default: all.
        --better: List improvements, too. Default: only regressions.
    """
    found = _read(which, where, which.series)
    if not found.of:
        published = which.published and without_secret(which.published)
        place = published or shown(where.results / NIGHTS)
        raise UserError(f"{place}: there are no nights; measure one: nightly run")
    for name, nights in found.of.items():
        series = Series(name, nights, found.accepted[name])
        wanted = [
            each
            for each in series.findings
            if (better or each.standing is not Standing.BETTER) and each.since >= f"{since or ''}"
        ]
        many = f"{len(nights)} night{'s' * (len(nights) != 1)}"
        print(f"{name}: {many}, {nights[0].night} to {nights[-1].night}")
        for each in wanted:
            first, *more = each.lines()
            print(f"  {first} ({each.standing.value})")
            for line in more:
                print(f"    {line}")
        for node in series.found.nodes:
            text = f"{100 * (node.change - 1):+.1f} % on {node.nights} nights"
            print(f"  a host that differs: {', '.join(node.hosts)}: {text}; left out above")
        if not wanted:
            what = "changed" if better else "become worse"
            print(f"  nothing has {what}{f' since {since}' if since else ''}")
    return 0


def accept(where: Results, *, series: str, night: date | None = None, why: str) -> int:
    """Accept the current performance of a series as its new baseline. Regressions up to this night
    no longer FAIL, here and, once published, elsewhere.

    --series NAME: Accept this series. Required.
    --night DATE: Accept regressions up to the night of this date. Default: the last one.
    --why REASON: The reason, which the page and `hvdperf regressions` show. Required.
    """
    name = check_series(series)
    directory = where.results / NIGHTS
    last = read_nights(directory, [name]).of[name][-1].night
    night = night or last
    if night > last:
        raise UserError(f"--night {night}: is after the last night, {last}")
    why = " ".join(why.split())
    if not why:
        raise UserError("--why: is empty; say why the series may stay as it is, for those who ask")
    documents.add_accepted(directory / name, documents.Accepted(night, why))
    write_nights_page(where.results)
    print(f"{name}: accepted as it was in the night of {night}: {why}")
    return 0


def prune(where: Results, *, keep: int = 90) -> int:
    """Remove the sessions and pages of old nights.

    --keep DAYS: Keep the last DAYS days.
    """
    if not where.results.is_dir():
        raise UserError(f"--results {shown(where.results)}: there is no such directory")
    for line in documents.remove_older(where.results, keep):
        print(line)
    return 0


def import_sessions(*, sessions: Path = history.SESSIONS) -> int:
    """Convert sessions into asv results.

    --sessions DIR: Convert the sessions of this directory. Default: results/runs.
    """
    if sessions != history.SESSIONS and not sessions.is_dir():
        raise UserError(f"--sessions {sessions}: no such directory; give one such as results/runs")
    for line in history.keep_sessions(sessions, history.RAW):
        print(line)
    return _make_trees()


def _make_trees() -> int:
    """Write what asv reads, and return the exit status."""
    from hvdperf.timeline.asv_site import make_trees

    results, refused = make_trees()
    machines = {result.machine for result in results}
    trees = ", ".join(shown(path) for path in history.RESULTS.values())
    print(f"{len(results)} raw results of {len(machines)} machines in {trees}")
    for line in refused:
        complain(line)
    return REFUSED if refused else 0


def publish_sites() -> int:
    """Write the asv sites: one by Horovod release and one by TensorFlow release."""
    from hvdperf.timeline.asv_site import make_offline, make_repositories

    make_repositories()
    for axis, html in history.HTML.items():
        configuration = history.CONFIGURATION[axis]
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


def fill_matrix(*, list_: bool = False) -> int:
    """Build and measure the last Horovod with each TensorFlow that this machine has not measured.

    --list: Show the missing TensorFlow releases. Default: build and measure them.
    """
    results, _ = history.read_history(history.RAW)
    missing = stacks.missing(results, stacks.this_machine())
    if list_:
        print("\n".join(missing) or "no release is missing")
        return 0
    stacks.fill(missing, lambda line: print(line, flush=True))
    return _make_trees()


# For hvdperf/timeline/asv/benchmarks: JSON on stdout.
def print_parameters() -> int:
    """Print the cases of the profile `history`, as JSON."""
    print(json.dumps(stacks.parameters()))
    return 0


def measure_stack(*, stack: Path) -> int:
    """Measure one installed stack, and print the results as JSON.

    --stack PYTHON: Measure the stack of this interpreter.
    """
    result = stacks.measure(stack, quiet=True)
    history.keep(result, history.RAW)
    figures = {
        f"{each.model}/{each.replica}/{each.world_size}": median(each.values)
        for each in result.results
    }
    print(json.dumps(figures))
    return 0


def print_machine() -> int:
    """Print the label of this machine, for `asv run --machine`."""
    print(stacks.this_machine())
    return 0


COMMANDS: dict[str, Command] = {
    "nightly": Group(
        "Find regressions overnight: measure unattended, publish, watch. Nights are published to a "
        "git repository, so that another machine can watch them.",
        "TASK",
        {
            "run": run_night,
            "publish": publish_nights,
            "index": write_page,
            "watch": watch_nights,
            "accept": accept,
            "prune": prune,
        },
    ),
    "regressions": list_regressions,
}
# The history builds environments, for which it needs the files of a checkout.
if CHECKOUT:
    COMMANDS["history"] = Group(
        "Show the throughput across Horovod and TensorFlow releases, and fill gaps.",
        "COMMAND",
        {
            "import": import_sessions,
            "publish": publish_sites,
            "backfill": fill_matrix,
            "params": print_parameters,
            "measure": measure_stack,
            "machine": print_machine,
        },
    )
    COMMANDS["bisect"] = stacks.bisect_releases
