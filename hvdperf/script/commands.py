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
from hvdperf.paths import RESULTS, shown
from hvdperf.report.apart import write_apart
from hvdperf.script.page.html import page
from hvdperf.script.recorded import RECORDS, last_job, read_ranks
from hvdperf.script.run import run
from hvdperf.script.told import lines
from hvdperf.script.training import Training, training_of
from hvdperf.session.ending import EXIT_STATUS
from hvdperf.verdict import Verdict

REPORT = "report.txt"


def add_to(commands: Commands) -> None:
    """Add the command run."""
    text = (
        "Run a training script as it is, and say what limits it. The command is what you type "
        "without it, such as `hvdperf run -- horovodrun -np 8 python train.py`. Its output and its "
        "exit status stay what they are; the report comes after it."
    )
    add = add_command(commands, "run", text, run_script)
    option(add, "--steps N", "End the script after N steps.", told="its own end", type=int)
    text = "End with exit status 7 if a check of the training fails."
    option(add, "--check", text, told="with that of the command")
    text = "Write what ranks recorded to a new directory below this one."
    option(add, "--results DIR", text, RESULTS, "results", type=Path)
    add.add_argument("words", metavar="COMMAND", nargs="*", help="Run this, after --.")


def run_script(arguments: argparse.Namespace) -> int:
    command: list[str] = arguments.words
    if not command:
        raise UserError("there is no command; give it after --: hvdperf run -- python train.py")
    steps: int | None = arguments.steps
    if steps is not None and steps < 1:
        raise UserError(f"--steps {steps}: must be 1 or more")
    results: Path = arguments.results.absolute()
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}"
    directory = results / "scripts" / name
    with refusing(f"--results {shown(results)}: ", OSError):
        directory.mkdir(parents=True)
    status = run(command, directory, steps)
    ranks, refused = read_ranks(directory)
    for line in refused:
        complain(line)
    job, jobs = last_job(ranks)
    if not job:
        complain(
            "no rank was seen: nothing in the command called hvd.init with a Python that reads "
            "PYTHONPATH (python -I, -E and -S do not)"
        )
        return status
    training = training_of(job, jobs)
    text = _text(training)
    print(f"\n{text}", end="")
    print(f"recorded: {shown(directory)}")
    with refusing(f"{shown(directory)}: ", OSError):
        write_whole(directory / REPORT, text)
    print(write_apart(directory, Path.cwd()))
    if arguments.check and training.wrong:
        return EXIT_STATUS[Verdict.INVALID]
    return status


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
    training = training_of(*last_job(ranks))
    name = directory.resolve().name
    return {"html": lambda: page(training, name), "terminal": lambda: _text(training)}
