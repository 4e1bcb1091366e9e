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

from hvdperf.errors import UserError
from hvdperf.machine.host import local_machine
from hvdperf.machine.placement import local_offers, place
from hvdperf.machine.probe import probe as probe_machine
from hvdperf.machine.stack import probe
from hvdperf.paths import CACHE
from hvdperf.records.documents import now
from hvdperf.records.fingerprinting import fingerprint
from hvdperf.records.outcome import Measure
from hvdperf.script.arms import AS_IT_IS, FIRST_STEPS, Figure, Run, Runner, steps_of
from hvdperf.script.checks import problems
from hvdperf.script.recorded import Rank
from hvdperf.timeline.nights.falls import judge_speeds
from hvdperf.timeline.nights.night import (
    FORMAT,
    SCRIPT,
    Costs,
    Night,
    Part,
    Speeds,
    path_of,
    read_nights,
    write_night,
)
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
) -> Night:
    """Measure a night of a script and keep it. directory: takes what is recorded. results: holds
    the nights. steps: of a run; None for as many as take some seconds. Raises UserError if this
    night was measured before, if a run does not train, or if a check of the training fails."""
    nights = results / NIGHTS
    nights.mkdir(parents=True, exist_ok=True)
    with alone(nights / ".lock", "another night is being measured here; wait for its end"):
        today = datetime.now(UTC).date()
        if path_of(nights, series, today).exists():
            raise UserError(f"--series {series}: the night of {today} (UTC) is measured already")
        given = ["--series", series, *([] if steps is None else ["--steps", f"{steps}"])]
        words = shlex.join(["hvdperf", "run", *given, "--", *command])
        night = Night(FORMAT, series, today, now(), words)
        with suppress(OSError, MemoryError):
            night = replace(night, probe=probe_machine())
        runner = Runner(command, directory)
        if steps is None:
            steps = steps_of([runner.run(AS_IT_IS, "first", FIRST_STEPS)])
        night = replace(night, parts=(_part(command, runner, steps, False, say),))
        read = read_nights(nights)
        before = [each for each in read.of.get(series, ()) if each.night < today]
        judged = judge_speeds([*before, night], read.accepted.get(series, ()))
        if judged.suspects:
            say(f"measure again what is slower: {judged.told}")
            again = _part(command, runner, steps, True, say)
            night = replace(night, parts=(*night.parts, again))
        night = replace(night, ended_at=now())
        write_night(nights, night)
        return night


def _part(command: Sequence[str], runner: Runner, steps: int, again: bool, say: Say) -> Part:
    """Run the script RUNS times, and return that as a part of the night."""
    began = time.monotonic()
    runs = []
    for number in range(1, RUNS + 1):
        run = runner.run(AS_IT_IS, f"{'again-' * again}{number}", steps)
        wrong = problems(run.job)
        if wrong:
            raise UserError(f"a check of the training fails: {wrong[0].what}; {wrong[0].mend}")
        runs.append(run)
        usual = 1000 * run.seconds(Figure.USUAL, by_sample=False)
        say(f"run {number} of {RUNS}: a usual step takes {usual:.2f} ms")
    job = runs[0].job
    machine = local_machine()
    stack = probe(Path(job[0].prefix) / "bin" / "python", CACHE)
    slots = place(local_offers(machine))
    name, size = Path(job[0].arguments[0]).name, len(job)
    start, memory = (
        tuple(max(of(rank) for rank in run.job) for run in runs) for of in (_start, _memory)
    )
    return Part(
        is_gate=False,
        session=runner.directory.name,
        exit_status=0,
        minutes=(time.monotonic() - began) / 60,
        hosts=tuple(sorted({rank.host for rank in job})),
        fingerprint=fingerprint(machine, stack, "mpirun", slots),
        asked=dict.fromkeys(SCRIPT, shlex.join(command)),
        cases=(),
        speeds=tuple(
            Speeds(f"{name}, {figure.value}", size, tuple(_speed(run, figure) for run in runs))
            for figure in Figure
        ),
        again=again,
        costs=(
            Costs(Measure.START, name, size, start),
            Costs(Measure.MEMORY, name, size, memory),
        ),
    )


def _speed(run: Run, figure: Figure) -> float:
    """Return the samples a second of all ranks; the steps a second where batches are unknown."""
    seconds = run.seconds(figure, by_sample=run.has_samples)
    return (len(run.job) if run.has_samples else 1) / seconds


def _start(rank: Rank) -> float:
    """Return the seconds from the begin of the process to the end of its first step."""
    assert rank.steps is not None
    first = rank.steps.rows[0] if rank.steps.rows else None
    return (first.end if first is not None else rank.steps.begun) - rank.marks["process"]


def _memory(rank: Rank) -> float:
    return float(rank.peak_memory)
