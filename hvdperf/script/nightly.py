"""A night of a training script: short runs of it, kept and judged like a night of the suite's own
networks (hvdperf.timeline.nights)."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from hvdperf.errors import UserError, refusing
from hvdperf.json_records import Unreadable
from hvdperf.machine.host import local_machine
from hvdperf.machine.placement import Slot
from hvdperf.machine.probe import probe as probe_machine
from hvdperf.machine.stack import probe
from hvdperf.models.own_networks import LAUNCHERS
from hvdperf.paths import CACHE, shown
from hvdperf.records.documents import SUMMARY_FORMAT, Kind, Result, Summary, now
from hvdperf.records.fingerprinting import fingerprint
from hvdperf.records.outcome import Measure
from hvdperf.script.arms import AS_IT_IS, FIRST_STEPS, Figure, Interrupted, Run, Runner, steps_of
from hvdperf.script.checks import problems
from hvdperf.script.recorded import Rank
from hvdperf.script.training import start_of
from hvdperf.timeline.nights import night as documents
from hvdperf.timeline.nights.falls import judge_speeds
from hvdperf.timeline.store import NIGHTS, alone

# Runs of a night, and as many again of what is slower than on the nights before.
RUNS = 6

Say = Callable[[str], None]


def measure_night(
    command: Sequence[str],
    series: str,
    directory: Path,
    results: Path,
    steps: int | None,
    say: Say,
) -> documents.Night:
    """Measure a night of a script and keep it. If a run does not train, or a check of the training
    fails, the night has that as its reason, and may be measured again. directory: takes what is
    recorded. results: holds the nights. steps: of a run; None for as many as take some seconds.
    Raises UserError if this night was measured before, or if somebody ends a run."""
    nights = results / NIGHTS
    nights.mkdir(parents=True, exist_ok=True)
    with alone(nights / ".lock", "another night is being measured here; wait until it finishes"):
        today = datetime.now(UTC).date()
        path = documents.path_of(nights, series, today)
        with refusing(f"{shown(path)}: ", Unreadable, then="; move it away"):
            is_measured = path.exists() and not documents.read_night(path).reason
        if is_measured:
            raise UserError(
                f"--series {series}: the night of {today} (UTC) has been measured already"
            )
        given = ["--series", series, *([] if steps is None else ["--steps", f"{steps}"])]
        words = shlex.join(["hvdperf", "run", *given, "--", *command])
        night = documents.Night(documents.FORMAT, series, today, now(), words)
        with suppress(OSError, MemoryError):
            night = replace(night, probe=probe_machine())
        runner = Runner(command, directory)
        try:
            if steps is None:
                steps = steps_of([runner.run(AS_IT_IS, "first", FIRST_STEPS)])
            night = replace(night, parts=(_part(command, runner, steps, Kind.OWN, say),))
            read = documents.read_nights(nights)
            before = [each for each in read.of.get(series, ()) if each.night < today]
            judged = judge_speeds([*before, night], read.accepted.get(series, ()))
            if judged.suspects:
                say(f"repeat the runs, because some are slower: {judged.told}")
                again = _part(command, runner, steps, Kind.AGAIN, say)
                night = replace(night, parts=(*night.parts, again))
        except Interrupted:
            raise
        except UserError as error:
            night = replace(night, reason=str(error))
        night = replace(night, ended_at=now())
        documents.write_night(nights, night)
        return night


def _part(command: Sequence[str], runner: Runner, steps: int, kind: Kind, say: Say) -> Summary:
    """Run the script RUNS times, and return that as a part of the night."""
    began = time.monotonic()
    runs = []
    for number in range(1, RUNS + 1):
        run = runner.run(AS_IT_IS, f"{'again-' * kind.is_again}{number}", steps)
        wrong = problems(run.job)
        if wrong:
            raise UserError(f"a check of the training fails: {wrong[0].what}; {wrong[0].mend}")
        runs.append(run)
        low = 1000 * run.seconds(Figure.LOW, by_sample=False)
        say(f"run {number} of {RUNS}: {Figure.LOW.value} of steps {low:.2f} ms")
    if runs[0].short:
        say(runs[0].short)
    job = runs[0].job
    machine = local_machine()
    stack = probe(job[0].interpreter, CACHE)
    used = [(rank, rank.steps.cores) for rank in job if rank.steps is not None]
    slots = [Slot(rank.rank, rank.host, cores.cores) for rank, cores in used if cores is not None]
    name, size = Path(job[0].arguments[0]).name, len(job)
    starts = tuple(max(map(_start_seconds, run.job)) for run in runs)
    memory = tuple(float(max(rank.peak_memory for rank in run.job)) for run in runs)
    return Summary(
        format=SUMMARY_FORMAT,
        session=runner.directory.name,
        written_at=now(),
        kind=kind,
        exit_status=0,
        minutes=(time.monotonic() - began) / 60,
        hosts=tuple(sorted({rank.host for rank in job})),
        fingerprint=fingerprint(machine, stack, _launcher(command), slots, job[0].settings),
        asked={documents.SCRIPT: shlex.join(command)},
        cases=(),
        results=(
            *(
                Result(
                    Measure.SPEED,
                    f"{name}, {figure.value}",
                    size,
                    tuple(_speed(run, figure) for run in runs),
                )
                for figure in Figure
            ),
            Result(Measure.START, name, size, starts),
            Result(Measure.MEMORY, name, size, memory),
        ),
    )


def _launcher(command: Sequence[str]) -> str:
    """Return the name of the program that starts the ranks; of the first one if it is unknown."""
    names = [Path(word).name for word in command]
    return next((name for name in names if name in LAUNCHERS), names[0])


def _speed(run: Run, figure: Figure) -> float:
    """Return the samples a second of all ranks; the steps a second where batches are unknown."""
    seconds = run.seconds(figure, by_sample=run.has_samples)
    return (len(run.job) if run.has_samples else 1) / seconds


def _start_seconds(rank: Rank) -> float:
    start = start_of(rank)
    assert start is not None
    return start.seconds
