"""Throughput across Horovod and TensorFlow releases."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hvdperf.cli import REFUSED, Commands, add_command, complain, option
from hvdperf.errors import UserError
from hvdperf.paths import shown
from hvdperf.timeline import places
from hvdperf.timeline.releases import backfill
from hvdperf.timeline.releases.raw import Axis, check_known, keep, keep_sessions, read_history


def add_to(commands: Commands) -> None:
    """Add the commands history, which has commands of its own, and bisect."""
    top = add_command(
        commands, "history", "Keep and show the throughput across Horovod and TensorFlow releases."
    )
    tasks = top.add_subparsers(required=True, metavar="COMMAND")

    text = "Write the git repositories that asv reads."
    add_command(tasks, "releases", text, write_releases)
    text = "Convert sessions into raw results, and those into the form of asv."
    add = add_command(tasks, "import", text, import_sessions)
    text = "Convert the sessions of this directory."
    option(add, "--sessions DIR", text, places.SESSIONS, "results/runs", type=Path)
    text = "Write the sites by Horovod and by TensorFlow release."
    add_command(tasks, "publish", text, publish)
    add = add_command(tasks, "preview", "Serve the sites on this machine.", preview)
    option(add, "--port N", "Serve on this port.", 8080, type=int)
    text = "Build and measure the missing combinations of releases."
    add = add_command(tasks, "backfill", text, fill_matrix)
    for name, versions in (("horovod", backfill.HOROVOD), ("tensorflow", backfill.TENSORFLOW)):
        option(add, f"--{name} V,V", "Combine these releases.", ",".join(versions))
    option(add, "--again", "Also retry what could not be built before.", told="leave it out")
    text = "Show the state of each combination."
    option(add, "--list", text, told="build and measure, then show it")
    text = "Find releases that changed the throughput, in stored results."
    add_command(tasks, "changes", text, list_changes)
    # For hvdperf/timeline/asv/benchmarks: JSON on stdout.
    text = "Print the cases of the profile history, as JSON."
    add_command(tasks, "params", text, print_parameters)
    text = "Measure one installed stack, and print it as JSON."
    add = add_command(tasks, "measure", text, measure_stack)
    text = "Measure the stack of this interpreter."
    option(add, "--stack PYTHON", text, required=True, type=Path)
    add_command(tasks, "machine", "Print the label of this machine.", print_machine)
    _add_bisect(commands)


def _add_bisect(commands: Commands) -> None:
    text = (
        "Find the release that changed the throughput, by measuring. Releases are built, and each "
        "is compared with the first one in a session of a few minutes."
    )
    add = add_command(commands, "bisect", text, bisect)
    group = add.add_argument_group("which releases")
    text = "Search the releases of this package. Default: tensorflow."
    choices = [axis.value for axis in Axis]
    group.add_argument("--along", choices=choices, default="tensorflow", help=text)
    option(group, "--from V", "Begin with this older release.", dest="first", required=True)
    option(group, "--to V", "End with this newer release.", dest="last", required=True)
    option(group, "--at V", "Use this release of the other package.", required=True)
    group = add.add_argument_group("what to measure")
    option(group, "--model NAME", "Train this network, such as vgg_16_s.", required=True)
    option(group, "--np N", "Train with N replicas.", type=int, required=True)
    text = "Give each session MIN minutes."
    option(group, "--budget MIN", text, told="those of the profile", type=float)


# Commands import what they need themselves: asv takes a second to import, and planning a session
# some tenths of one.


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
        f"{each.model}/{each.replica}/{each.world_size}": median(each.samples_per_second)
        for each in result.series
    }
    print(json.dumps(figures))
    return 0


def print_machine(_: argparse.Namespace) -> int:
    from hvdperf.timeline.releases.backfill import this_machine

    print(this_machine())
    return 0
