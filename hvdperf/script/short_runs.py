"""Judges short runs of a script: against itself under other settings, in another environment or at
another revision, and against its runs of earlier nights.

A pair of runs is a round, judged by the suite's rule for one stack against another, with a verdict
on each of two figures. A night is kept and judged like one of the suite's own networks
(hvdperf.timeline.nights).
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

from hvdperf.columns import Columns, figure_text, wrapped
from hvdperf.errors import UserError, refusing
from hvdperf.explain.time_breakdown import standing_out
from hvdperf.interim import judge_rounds
from hvdperf.json_records import Unreadable
from hvdperf.machine import host, placement, probe, stack
from hvdperf.models.own_networks import LAUNCHERS
from hvdperf.paths import CACHE, shown
from hvdperf.plan.arms import Term
from hvdperf.plan.profile import Sampling
from hvdperf.records.documents import SUMMARY_FORMAT, Kind, Result, Summary, now
from hvdperf.records.fingerprinting import fingerprint
from hvdperf.records.outcome import Measure
from hvdperf.script import launch
from hvdperf.script.checks import problems
from hvdperf.script.launch import Command, Figure, Interrupted, Run
from hvdperf.script.terms import TERMS, parts_of
from hvdperf.script.training import start_of
from hvdperf.stats import Row
from hvdperf.timeline.nights import night as documents
from hvdperf.timeline.nights.falls import judge_speeds
from hvdperf.timeline.store import NIGHTS, alone
from hvdperf.verdict import REGRESSION, Judgement, Verdict, is_bounded, must_be, worst
from hvdperf.work.in_turn import Budget, Group, in_turn

# Rounds after which a verdict is tried.
LOOKS = (8, 12, 24)
# Runs of a night, and as many again of what is slower than on the nights before.
RUNS = 6
_MS = 1000.0

Say = Callable[[str], None]


# Against itself ----------------------------------------------------------------------------------


class Comparison(Group[Figure]):
    """Runs of the command and of the other one in turn: a pair of runs is a round. pairs: the
    command's run and the other one's. wrong: the check of a run that fails. code: that each side
    ran, in words, as of the first pair. judged: the verdict on each figure, by all pairs. run_pair:
    measures a pair, by its number from 0 on."""

    def __init__(
        self, name: str, budget_s: float, run_pair: Callable[[int], tuple[Run, Run]]
    ) -> None:
        sampling = Sampling(LOOKS, early=False)
        super().__init__(tuple(Figure), sampling, Budget(time.monotonic(), budget_s))
        self.name, self.wrong = name, ""
        self.pairs: list[tuple[Run, Run]] = []
        self.code: Sequence[str] = ()
        self.judged: dict[Figure, Judgement] = {}
        self._run_pair = run_pair

    @property
    def by_sample(self) -> bool:
        return all(run.has_samples for pair in self.pairs for run in pair)

    @property
    def ends_in_time(self) -> bool:
        """Return whether another pair would end in time; without one there is nothing to say."""
        return not self.pairs or super().ends_in_time

    @property
    def verdict(self) -> Verdict:
        """Return the verdict that decides for both figures."""
        return worst([each.verdict for each in self.judged.values()])

    def measure(self, wanted: Sequence[Figure], turns: int) -> dict[Figure, Row]:
        pair = self._run_pair(self.done)
        self.pairs.append(pair)
        self.wrong = self.wrong or _wrong(pair)
        return {figure: self._ratios(figure)[-1] for figure in Figure}

    def _ratios(self, figure: Figure) -> list[Row]:
        """Return ln(speed of the command / speed of the other one) by pair, all in one unit."""
        by_sample = self.by_sample
        return [
            [math.log(other.seconds(figure, by_sample) / own.seconds(figure, by_sample))]
            for own, other in self.pairs
        ]

    def judge(self, wanted: Sequence[Figure], is_over: bool = False) -> None:
        for figure in self.rows:
            judgement = judge_rounds(self._ratios(figure), REGRESSION, LOOKS, None, is_over)
            if self.wrong:
                judgement = replace(judgement, verdict=Verdict.INVALID, reason=self.wrong)
            self.judged[figure] = judgement
        verdicts = {each.verdict for each in self.judged.values()}
        if is_over or self.is_final(Figure.LOW) or Verdict.INCONCLUSIVE not in verdicts:
            self.left.clear()

    def finish(self) -> None:
        self.judge(self.left, is_over=True)

    @property
    def is_faster(self) -> bool:
        """Return whether the rule that FAILs a slower command would FAIL the other one."""
        rows = [[-value for value in row] for row in self._ratios(Figure.LOW)]
        judgement = judge_rounds(rows, REGRESSION, LOOKS, None, forced=True)
        return judgement.verdict is Verdict.FAIL


def _wrong(pair: Sequence[Run]) -> str:
    """Return which check of a run fails, since the speed of such a training means nothing."""
    for run in pair:
        for problem in problems(run.job):
            return f"{run.command.name}: {problem.told}; {problem.mend}"
    return ""


def compare(
    command: Command,
    other: Command,
    directory: Path,
    steps: int | None,
    budget_s: float,
    say: Say,
) -> Comparison:
    """Run both in turn until both figures are decided, or time is up. directory: takes what is
    recorded. steps: of a run; None for as many as take some seconds. say: takes a line for each
    pair. Ctrl-C ends it early. Raises UserError if a run does not train."""
    began = time.monotonic()
    if steps is None:
        sides = enumerate((command, other))
        steps = launch.steps_of(
            [
                launch.short_run(each, directory / f"first-{at}", launch.FIRST_STEPS)
                for at, each in sides
            ]
        )
        say(f"each run takes {steps} steps")

    def run_pair(number: int) -> tuple[Run, Run]:
        sides = [(0, command), (1, other)]
        runs = {
            at: launch.short_run(side, directory / f"{number + 1}-{at}", steps)
            for at, side in (sides if number % 2 == 0 else reversed(sides))
        }
        if number == 0:
            launch.check_code(runs[0], runs[1])
            found.code = [runs[at].code for at in (0, 1)]
        own, its = (_MS * runs[at].seconds(Figure.LOW) for at in (0, 1))
        say(f"pair {number + 1}: {Figure.LOW.value} of steps {own:.2f} ms, other {its:.2f} ms")
        return runs[0], runs[1]

    found = Comparison(other.name, budget_s - (time.monotonic() - began), run_pair)
    try:
        in_turn([found])
    except Interrupted:
        found.finish()
    return found


_TABLE = Columns(("step", -15), ("speed", -21), ("limit", -10), ("rounds", 6), ("verdict", -12))


def told(found: Comparison) -> list[str]:
    """Return the result in lines."""
    unit = "samples" if found.by_sample else "steps"
    lines = wrapped(f"Speed of the command in {unit}/s, relative to: {found.name}")
    lines += ["", _TABLE.header]
    judged = found.judged
    for figure, each in judged.items():
        cells = (figure_text(each.figure), must_be(each), each.rounds, each.verdict.value)
        lines.append(_TABLE.row(figure.value, *cells))
    lines += wrapped(_in_words(judged[Figure.LOW], found))
    sides = [[pair[at] for pair in found.pairs] for at in (0, 1)]
    for runs in sides:
        short = min(runs, key=lambda run: run.count).short
        lines += wrapped(f"{runs[0].command.name}: {short}" if short else "")
    for reason in dict.fromkeys(each.reason for each in judged.values() if each.reason):
        lines += wrapped(reason)
    lines += ["", *_by_term(*map(_typical_step, sides))]
    for code in found.code:
        lines += wrapped(code)
    return lines


def _in_words(judgement: Judgement, found: Comparison) -> str:
    """Return whether the command is faster or slower than the other one, by the figure that other
    programs disturb least; "" if it has no interval, or means nothing. Chance alone makes small
    differences, so only one that the rule calls is a difference."""
    figure, name = judgement.figure, found.name
    if figure is None or not is_bounded(figure) or judgement.verdict is Verdict.INVALID:
        return ""
    low, high = (100 * (end - 1) for end in (figure.lower, figure.upper))
    if found.is_faster:
        return f"The command is {low:.1f} to {high:.1f} % faster than with {name}."
    if judgement.verdict is Verdict.FAIL:
        return f"The command is {-high:.1f} to {-low:.1f} % slower than with {name}."
    least = 100 * (1 - REGRESSION.fail_below)
    return (
        f"No difference of more than {least:.0f} % from {name} is established: the command is "
        f"{low:+.1f} to {high:+.1f} % faster."
    )


def _typical_step(runs: Sequence[Run]) -> Mapping[tuple[int, Term], float]:
    """Return the mean ms of a typical step of runs, by rank and term."""
    known = [each for each in (parts_of(run.job) for run in runs) if each is not None]
    of_ranks = [each for parts in known for each in parts.by_rank]
    return {
        (rank, term): _MS * fmean(e.terms.get(term, 0.0) for e in of_ranks if e.rank == rank)
        for rank in {each.rank for each in of_ranks}
        for term in TERMS
    }


def _by_term(
    own: Mapping[tuple[int, Term], float], other: Mapping[tuple[int, Term], float]
) -> list[str]:
    """Return where the typical steps of the two differ."""
    if not own or own.keys() != other.keys():
        return []
    ranks = {rank for rank, _ in own}
    table = Columns(("typical step, ms", -34), ("command", 9), ("other", 9), ("change", 9))
    lines = [table.header]
    for term in TERMS:
        if any(own[rank, term] or other[rank, term] for rank in ranks):
            both = [fmean(side[rank, term] for rank in ranks) for side in (own, other)]
            cells = (f"{both[0]:.2f}", f"{both[1]:.2f}", f"{both[0] - both[1]:+.2f}")
            lines.append(table.row(term.value, *cells))
    # Waiting for another rank is that rank's time.
    more = {key: own[key] - other[key] for key in own if key[1] is not Term.STRAGGLER}
    rank, term = max(more, key=lambda key: abs(more[key]))
    is_alone = standing_out({each: abs(more[each, term]) for each in ranks}) is not None
    where = "" if len(ranks) == 1 else f" on rank {rank}" if is_alone else " on all ranks"
    lines += wrapped(
        f"largest difference: {term.value}{where}, {more[rank, term]:+.2f} ms per step"
    )
    return lines


# Night by night ----------------------------------------------------------------------------------


def measure_night(
    command: Command, series: str, directory: Path, steps: int | None, say: Say
) -> documents.Night:
    """Measure a night of a script and keep it. If a run does not train, or a check of the training
    fails, the night has that as its reason, and may be measured again. directory: takes what is
    recorded, below the results. steps: of a run; None for as many as take some seconds. Raises
    UserError if this night was measured before, or if somebody ends a run."""
    nights = directory.parents[1] / NIGHTS
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
        words = shlex.join(["hvdperf", "run", *given, "--", *command.words])
        night = documents.Night(documents.FORMAT, series, today, now(), words)
        with suppress(OSError, MemoryError):
            night = replace(night, probe=probe.probe())
        try:
            if steps is None:
                first = launch.short_run(command, directory / "first", launch.FIRST_STEPS)
                steps = launch.steps_of([first])
            night = replace(night, parts=(_part(command, directory, steps, Kind.OWN, say),))
            read = documents.read_nights(nights)
            before = [each for each in read.of.get(series, ()) if each.night < today]
            judged = judge_speeds([*before, night], read.accepted.get(series, ()))
            if judged.suspects:
                say(f"repeat the runs, because some are slower: {judged.told}")
                again = _part(command, directory, steps, Kind.AGAIN, say)
                night = replace(night, parts=(*night.parts, again))
        except Interrupted:
            raise
        except UserError as error:
            night = replace(night, reason=str(error))
        night = replace(night, ended_at=now())
        documents.write_night(nights, night)
        return night


def _part(command: Command, directory: Path, steps: int, kind: Kind, say: Say) -> Summary:
    """Run the script RUNS times, and return that as a part of the night."""
    began, runs = time.monotonic(), list[Run]()
    for number in range(1, RUNS + 1):
        run = launch.short_run(command, directory / f"{'again-' * kind.is_again}{number}", steps)
        wrong = problems(run.job)
        if wrong:
            raise UserError(f"a check of the training fails: {wrong[0].told}; {wrong[0].mend}")
        runs.append(run)
        low = _MS * run.seconds(Figure.LOW)
        say(f"run {number} of {RUNS}: {Figure.LOW.value} of steps {low:.2f} ms")
    if runs[0].short:
        say(runs[0].short)
    job = runs[0].job
    slots = [
        placement.Slot(each.rank, each.host, each.cores.cores)
        for each in job
        if each.cores is not None
    ]
    # The program that starts the ranks; the first one if that is unknown.
    programs = [Path(word).name for word in command.words]
    launcher = next((name for name in programs if name in LAUNCHERS), programs[0])
    installed = stack.probe(job[0].interpreter, CACHE)
    known = fingerprint(host.local_machine(), installed, launcher, slots, job[0].settings)
    name = Path(job[0].arguments[0]).name
    results = {(Measure.SPEED, f"{name}, {each.value}"): _speeds(runs, each) for each in Figure}
    starts = [filter(None, map(start_of, run.job)) for run in runs]
    results[Measure.START, name] = [max(each.seconds for each in own) for own in starts]
    results[Measure.MEMORY, name] = [
        float(max(rank.peak_memory for rank in run.job)) for run in runs
    ]
    return Summary(
        format=SUMMARY_FORMAT,
        session=directory.name,
        written_at=now(),
        kind=kind,
        exit_status=0,
        minutes=(time.monotonic() - began) / 60,
        hosts=tuple(sorted({rank.host for rank in job})),
        fingerprint=known,
        asked={documents.SCRIPT: shlex.join(command.words)},
        cases=(),
        results=tuple(Result(*key, len(job), tuple(each)) for key, each in results.items()),
    )


def _speeds(runs: Sequence[Run], figure: Figure) -> list[float]:
    """Return the samples a second of all ranks; the steps a second where batches are unknown."""
    return [
        (len(run.job) if run.has_samples else 1) / run.seconds(figure, run.has_samples)
        for run in runs
    ]
