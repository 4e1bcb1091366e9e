"""Throughput across Horovod and TensorFlow releases."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from hvdperf.cli import REFUSED, Commands, add_command, complain
from hvdperf.errors import UserError
from hvdperf.history import backfill, places
from hvdperf.history.raw import RawResult, keep, read_history
from hvdperf.history.releases import Axis, check_known
from hvdperf.paths import shown

Run = Callable[[argparse.Namespace], int]


def add_to(commands: Commands) -> None:
    """Add the commands history, which has commands of its own, and bisect."""
    top = add_command(
        commands, "history", "Keep and show the throughput across Horovod and TensorFlow releases."
    )
    subparsers = top.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Run, description: str) -> argparse.ArgumentParser:
        add = add_command(subparsers, name, description)
        add.set_defaults(command=run)
        return add

    command("releases", write_releases, "Write the git repositories that asv reads.")
    add = command(
        "import",
        import_sessions,
        "Convert sessions into raw results, and those into the form of asv.",
    )
    add.add_argument(
        "--sessions",
        type=Path,
        default=places.SESSIONS,
        metavar="DIR",
        help="Convert the sessions of this directory. Default: results/runs.",
    )
    command("publish", publish, "Write the sites by Horovod and by TensorFlow release.")
    add = command("preview", preview, "Serve the sites on this machine.")
    add.add_argument(
        "--port", type=int, default=8080, metavar="N", help="Serve on this port. Default: 8080."
    )
    add = command(
        "backfill", fill_matrix, "Build and measure the missing combinations of releases."
    )
    for option, versions in (("horovod", backfill.HOROVOD), ("tensorflow", backfill.TENSORFLOW)):
        add.add_argument(
            f"--{option}",
            default=",".join(versions),
            metavar="V,V",
            help=f"Combine these releases. Default: {','.join(versions)}.",
        )
    add.add_argument(
        "--again",
        action="store_true",
        help="Also retry what could not be built before. Default: leave it out.",
    )
    add.add_argument(
        "--list",
        action="store_true",
        help="Show the state of each combination. Default: build and measure, then show it.",
    )
    command(
        "changes", list_changes, "Find releases that changed the throughput, in stored results."
    )
    # For hvdperf/history/benchmarks: JSON on stdout.
    command("params", print_parameters, "Print the cases of the profile history, as JSON.")
    add = command("measure", measure_stack, "Measure one installed stack, and print it as JSON.")
    add.add_argument(
        "--stack",
        type=Path,
        required=True,
        metavar="PYTHON",
        help="Measure the stack of this interpreter.",
    )
    command("machine", print_machine, "Print the label of this machine.")
    _add_bisect(commands)


def _add_bisect(commands: Commands) -> None:
    add = add_command(
        commands,
        "bisect",
        "Find the release that changed the throughput, by measuring. Releases are built, and each "
        "is compared with the first one in a session of a few minutes.",
    )
    group = add.add_argument_group("which releases")
    group.add_argument(
        "--along",
        choices=[axis.value for axis in Axis],
        default="tensorflow",
        help="Search the releases of this package. Default: tensorflow.",
    )
    group.add_argument(
        "--from", dest="first", required=True, metavar="V", help="Begin with this older release."
    )
    group.add_argument(
        "--to", dest="last", required=True, metavar="V", help="End with this newer release."
    )
    group.add_argument(
        "--at", required=True, metavar="V", help="Use this release of the other package."
    )
    group = add.add_argument_group("what to measure")
    group.add_argument(
        "--model", required=True, metavar="NAME", help="Train this network, such as vgg_16_s."
    )
    group.add_argument("--np", type=int, required=True, metavar="N", help="Train with N replicas.")
    group.add_argument(
        "--budget",
        type=float,
        metavar="MIN",
        help="Give each session MIN minutes. Default: those of the profile.",
    )
    add.set_defaults(command=bisect)


# Commands import what they need themselves: asv takes a second to import, and planning a session
# some tenths of one.


def write_releases(_: argparse.Namespace) -> int:
    from hvdperf.history.importing import make_repositories

    make_repositories()
    return 0


def import_sessions(arguments: argparse.Namespace) -> int:
    from hvdperf.history.importing import keep_sessions, make_trees

    sessions: Path = arguments.sessions
    if sessions != places.SESSIONS and not sessions.is_dir():
        raise UserError(f"--sessions {sessions}: no such directory; give one such as results/runs")
    for line in keep_sessions(sessions, places.RAW):
        print(line)
    return _print_trees(*make_trees())


def _print_trees(results: Sequence[RawResult], refused: Sequence[str]) -> int:
    for line in refused:
        complain(line)
    machines = {result.machine for result in results}
    trees = ", ".join(shown(path) for path in places.RESULTS.values())
    print(f"{len(results)} raw results of {len(machines)} machines in {trees}")
    return REFUSED if refused else 0


def publish(_: argparse.Namespace) -> int:
    from hvdperf.history.site.offline import make_offline

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
    from hvdperf.history.site.serve import serve

    if not 0 <= arguments.port <= 65535:
        raise UserError(f"--port {arguments.port}: must be between 0 and 65535")
    serve(places.SITE, arguments.port)
    return 0


def fill_matrix(arguments: argparse.Namespace) -> int:
    from hvdperf.history.importing import make_trees
    from hvdperf.history.measure import this_machine

    horovod, tensorflow = (_versions(axis, getattr(arguments, axis.value)) for axis in Axis)
    results, _ = read_history(places.RAW)
    wanted = list(backfill.combinations(results, this_machine(), horovod, tensorflow))
    status = 0
    if not arguments.list:
        wanted = backfill.fill(wanted, lambda line: print(line, flush=True), again=arguments.again)
        status = _print_trees(*make_trees())
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
            "hvdperf/history/releases.toml"
        )
    return versions


def list_changes(_: argparse.Namespace) -> int:
    from hvdperf.history.changes import can_change, report
    from hvdperf.history.lines import lines
    from hvdperf.history.otava import change_points

    results, refused = read_history(places.RAW)
    for line in refused:
        complain(line)
    found = [line for axis in Axis for line in lines(results, axis) if can_change(line)]
    for text in report(found, change_points(found)):
        print(text)
    return REFUSED if refused else 0


def bisect(arguments: argparse.Namespace) -> int:
    from hvdperf.history.side_by_side import Asked, bisect_command

    asked = Asked(
        along=Axis(arguments.along),
        at=arguments.at,
        model=arguments.model,
        world_size=arguments.np,
        budget_minutes=arguments.budget,
    )
    return bisect_command(arguments.first, arguments.last, asked)


def print_parameters(_: argparse.Namespace) -> int:
    from hvdperf.history.measure import parameters

    print(json.dumps(parameters()))
    return 0


def measure_stack(arguments: argparse.Namespace) -> int:
    from statistics import median

    from hvdperf.history.measure import measure

    result = measure(arguments.stack, quiet=True)
    keep(result, places.RAW)
    figures = {
        f"{each.model}/{each.replica}/{each.world_size}": median(each.samples_per_second)
        for each in result.series
    }
    print(json.dumps(figures))
    return 0


def print_machine(_: argparse.Namespace) -> int:
    from hvdperf.history.measure import this_machine

    print(this_machine())
    return 0
