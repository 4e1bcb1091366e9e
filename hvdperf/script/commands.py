"""The command that measures a training script that nobody changed."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from hvdperf.cli import Commands, add_command, complain, option
from hvdperf.errors import UserError, refusing
from hvdperf.files import write_whole
from hvdperf.json_records import encode
from hvdperf.paths import RESULTS, shown
from hvdperf.report.plugin import write_apart
from hvdperf.script.against import compare, told, verdict_of
from hvdperf.script.arms import SETTING, Arm, other_arm
from hvdperf.script.nightly import measure_night
from hvdperf.script.page.html import page
from hvdperf.script.recorded import LAUNCH, RECORDS, Launch, last_job, read_launch, read_ranks
from hvdperf.script.run import run
from hvdperf.script.told import lines
from hvdperf.script.training import Training, training_of
from hvdperf.session.ending import EXIT_STATUS, exit_status
from hvdperf.timeline.commands import told_next_to_others, write_nights_page
from hvdperf.timeline.nights.night import check_series
from hvdperf.verdict import Verdict

REPORT = "report.txt"
BUDGET_MIN = 15.0
_ROOM = "make room on this disk, or name another one with --results"


def add_to(commands: Commands) -> None:
    """Add the command run."""
    text = (
        "Find out what limits your training script, unmodified. Put `hvdperf run --` before the "
        "command that you type, as in `hvdperf run -- horovodrun -np 2 python train.py`. The "
        "report follows the output of the command; the exit status is that of the command."
    )
    add = add_command(commands, "run", text, run_script)
    option(add, "--steps N", "Stop after N steps.", told="run to completion", type=int)
    text = "Exit with status 7 if gradients are not allreduced or ranks read the same data."
    option(add, "--check", text, told="exit with the status of the command")
    text = (
        "Compare the command as given with the same command using X, in short alternating runs. "
        "X is a setting (NAME=VALUE), the Python of another environment, a revision of the "
        "script's repository, or `launch` for the settings that hvdperf uses in its own launches. "
        "FAIL means that the command as given is slower than with X."
    )
    option(add, "--against X", text, told="measure the command alone")
    text = "With --against: stop after MIN minutes."
    option(add, "--budget MIN", text, BUDGET_MIN, type=float)
    text = (
        "Measure the command in short runs, record them as tonight (UTC) in this series, and "
        "compare them with its earlier nights."
    )
    option(add, "--series NAME", text, told="none")
    text = (
        "With --against or --series, let the command change files in this directory. All other "
        "files are protected; where hvdperf cannot protect them, this option allows the command "
        "to run anyway. The option may be repeated."
    )
    option(add, "--writable DIR", text, told="none", action="append", type=Path)
    text = "Write recordings and reports under this directory."
    option(add, "--results DIR", text, RESULTS, "results", type=Path)
    add.add_argument("words", metavar="COMMAND", nargs="*", help="The command to run, after --.")


def run_script(arguments: argparse.Namespace) -> int:
    command: list[str] = arguments.words
    # As a shell does, which hands on no such word.
    while command and SETTING.fullmatch(command[0]):
        name, _, value = command.pop(0).partition("=")
        os.environ[name] = value
    if not command:
        raise UserError("there is no command; give it after --: hvdperf run -- python train.py")
    steps: int | None = arguments.steps
    if steps is not None and steps < 1:
        raise UserError(f"--steps {steps}: must be 1 or more")
    results: Path = arguments.results.absolute()
    if arguments.writable:
        allowed = (str(each.absolute()) for each in arguments.writable)
        os.environ["HVDPERF_WRITABLE"] = os.pathsep.join(allowed)
    other = None
    if arguments.series is not None:
        check_series(arguments.series)
        if arguments.against is not None:
            raise UserError("--series and --against: give one of them")
    if arguments.against is not None:
        other = other_arm(arguments.against, Path.cwd())
        if not arguments.budget > 0:
            raise UserError(f"--budget {arguments.budget:g}: must be more than 0")
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}"
    directory = results / "scripts" / name
    with refusing(f"--results {shown(results)}: ", OSError):
        directory.mkdir(parents=True)
    if arguments.series is not None:
        return _night(command, arguments.series, directory, results, steps)
    if other is not None:
        return _compared(command, other, directory, steps, 60 * arguments.budget)
    status = run(command, directory, steps)
    ranks, refused = read_ranks(directory)
    for line in refused:
        complain(line)
    job, jobs = last_job(ranks)
    if any(directory.glob("*.failed")):
        complain(f"{shown(directory)}: ranks could not write all that they recorded; {_ROOM}")
    elif not job:
        complain(
            "no rank was seen: nothing in the command called hvd.init with a Python that reads "
            "PYTHONPATH (python -I, -E and -S do not)"
        )
    if not job:
        return status
    launch = Launch(tuple(command), status)
    training = training_of(job, jobs, launch)
    text = _text(training)
    print(f"\n{text}", end="")
    print(f"recorded: {shown(directory)}")
    try:
        write_whole(directory / LAUNCH, encode(launch))
        write_whole(directory / REPORT, text)
    except OSError as error:
        # The script has its own exit status, whatever happens to the report.
        complain(f"{shown(directory / REPORT)}: {error.strerror}; {_ROOM}")
    else:
        print(write_apart(directory, Path.cwd()))
    if arguments.check and training.wrong:
        return EXIT_STATUS[Verdict.INVALID]
    return status


def _say(line: str) -> None:
    print(line, flush=True)


def _night(
    command: list[str], series: str, directory: Path, results: Path, steps: int | None
) -> int:
    """Measure a night of the command, and return the exit status of its verdict."""
    night = measure_night(command, series, directory, results, steps, _say)
    _, verdict, _ = told_next_to_others(night, results)
    write_nights_page(results)
    return exit_status([verdict])


def _compared(
    command: list[str], other: Arm, directory: Path, steps: int | None, budget_s: float
) -> int:
    """Compare the command with another arm, and return the exit status of the verdict."""
    found = compare(command, other, directory, steps, budget_s, _say)
    if not found.pairs:
        raise UserError("the comparison was ended before its first pair of runs")
    text = "".join(f"{line}\n" for line in told(found))
    print(f"\n{text}", end="")
    print(f"recorded: {shown(directory)}")
    with refusing(f"{shown(directory)}: ", OSError):
        write_whole(directory / REPORT, text)
    return EXIT_STATUS[verdict_of(found)]


def _text(training: Training) -> str:
    return "".join(f"{line}\n" for line in lines(training))


def texts(directory: Path) -> Mapping[str, Callable[[], str]] | None:
    """Return what makes the report of a run from its documents, by format; None if the directory
    has no document of a rank. Raises UserError if none of them can be read."""
    if not any(directory.glob(RECORDS)):
        return None
    ranks, refused = read_ranks(directory)
    for line in refused:
        complain(line)
    if not ranks:
        raise UserError(f"{shown(directory)}: no document of a rank can be read")
    training = training_of(*last_job(ranks), read_launch(directory))
    name = directory.resolve().name
    return {"html": lambda: page(training, name), "terminal": lambda: _text(training)}
