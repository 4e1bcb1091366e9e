"""Compares a script with itself under other settings, in another environment, or at another
revision: short runs of both in turn, and a verdict on each of two figures.

Each run is cut after the same number of steps on all ranks, in a copy of the directory in which
the script is started (hvdperf.worker.script.copies). A pair of runs is a round, judged by the
suite's rule for one stack against another.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from hvdperf.columns import Columns, figure_text, wrapped
from hvdperf.interim import judge_rounds
from hvdperf.machine.host import local_machine
from hvdperf.plan.options import Sampling
from hvdperf.plan.terms import Term
from hvdperf.script.arms import (
    AS_IT_IS,
    FIRST_STEPS,
    LAUNCH,
    Arm,
    Figure,
    Interrupted,
    Run,
    Runner,
    launch_settings,
    steps_of,
)
from hvdperf.script.checks import problems
from hvdperf.script.terms import TERMS, parts_of
from hvdperf.stats import Row
from hvdperf.verdict import REGRESSION, Judgement, Verdict, is_bounded, must_be, worst
from hvdperf.work.in_turn import Budget, Group, in_turn

# Rounds after which a verdict is tried.
LOOKS = (8, 12, 24)
_MS = 1000.0

Say = Callable[[str], None]


class Comparison(Group[str]):
    """Runs of the command and of another arm in turn: a pair of runs is a round. pairs: the
    command's run and the other one's. wrong: the check of a run that fails. code: that each of them
    ran, in words. judged: the verdict on each figure, by all pairs. run_pair: measures a pair, by
    its number from 0 on."""

    def __init__(
        self,
        other: Arm,
        budget_s: float = math.inf,
        run_pair: Callable[[int], tuple[Run, Run]] | None = None,
    ) -> None:
        sampling = Sampling(LOOKS, early=False)
        super().__init__((other.name,), sampling, Budget(time.monotonic(), budget_s))
        self.other, self.wrong = other, ""
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

    def measure(self, wanted: Sequence[str], turns: int) -> dict[str, Row]:
        assert self._run_pair is not None
        self.add(self._run_pair(self.done))
        return {}

    def add(self, pair: tuple[Run, Run]) -> None:
        """Add a pair of runs, as the command's and the other arm's."""
        self.pairs.append(pair)
        self.wrong = self.wrong or _wrong(self.other, pair)

    def counted(self, case: str) -> int:
        return len(self.pairs)

    def judge(self, wanted: Sequence[str], is_over: bool = False) -> None:
        for figure in Figure if self.pairs else ():
            rows = [[value] for value in self.ratios(figure)]
            judgement = judge_rounds(rows, REGRESSION, LOOKS, None, is_over)
            if self.wrong:
                judgement = replace(judgement, verdict=Verdict.INVALID, reason=self.wrong)
            self.judged[figure] = judgement
        verdicts = {each.verdict for each in self.judged.values()}
        if is_over or self.is_final(self.other.name) or Verdict.INCONCLUSIVE not in verdicts:
            self.left.clear()

    def finish(self) -> None:
        self.judge(self.left, is_over=True)

    def ratios(self, figure: Figure) -> list[float]:
        """Return for each pair ln(speed of the command / speed of the other arm)."""
        return [
            math.log(other.seconds(figure, self.by_sample) / own.seconds(figure, self.by_sample))
            for own, other in self.pairs
        ]

    @property
    def is_faster(self) -> bool:
        """Return whether the rule that FAILs a slower command would FAIL the other arm."""
        rows = [[-value] for value in self.ratios(Figure.LOW)]
        judgement = judge_rounds(rows, REGRESSION, LOOKS, None, forced=True)
        return judgement.verdict is Verdict.FAIL


def compare(
    command: Sequence[str],
    other: Arm,
    directory: Path,
    steps: int | None,
    budget_s: float,
    say: Say,
) -> Comparison:
    """Run both arms in turn until both figures are decided, or time is up. directory: takes what is
    recorded. steps: of a run; None for as many as take SECONDS. say: takes a line for each pair.
    Ctrl-C ends it early. Raises UserError if a run does not train."""
    runner = Runner(command, directory)
    began = time.monotonic()
    first = []
    if steps is None or other.name == LAUNCH:
        first = [runner.run(AS_IT_IS, "first-0", steps or FIRST_STEPS)]
    if other.name == LAUNCH:
        settings = launch_settings(
            first[0].job, len(os.sched_getaffinity(0)), bool(local_machine().gpus)
        )
        other = Arm(" ".join(map("=".join, settings.items())), settings)
        say(f"settings of hvdperf's launches: {other.name}")
    arms = (AS_IT_IS, other)
    if steps is None:
        first.append(runner.run(other, "first-1", FIRST_STEPS))
        steps = steps_of(first)
        say(f"each run takes {steps} steps")

    def run_pair(number: int) -> tuple[Run, Run]:
        order = (0, 1) if number % 2 == 0 else (1, 0)
        done = {at: runner.run(arms[at], f"{number + 1}-{at}", steps) for at in order}
        if number == 0:
            runner.check_code(other, done[0], done[1])
            found.code = [runner.code(arms[at], done[at]) for at in (0, 1)]
        own, its = (_MS * done[at].seconds(Figure.LOW, False) for at in (0, 1))
        say(f"pair {number + 1}: {Figure.LOW.value} of steps {own:.2f} ms, other {its:.2f} ms")
        return done[0], done[1]

    found = Comparison(other, budget_s - (time.monotonic() - began), run_pair)
    try:
        in_turn([found])
    except Interrupted:
        found.finish()
    return found


def _wrong(other: Arm, pair: tuple[Run, Run]) -> str:
    """Return which check of a run fails, since the speed of such a training means nothing."""
    for arm, run in zip((AS_IT_IS, other), pair, strict=True):
        for problem in problems(run.job):
            return f"{arm.name}: {problem.what}; {problem.mend}"
    return ""


_TABLE = Columns(("step", -15), ("speed", -21), ("limit", -10), ("rounds", 6), ("verdict", -12))


def told(found: Comparison) -> list[str]:
    """Return the result in lines."""
    unit = "samples" if found.by_sample else "steps"
    lines = wrapped(f"Speed of the command in {unit}/s, relative to: {found.other.name}")
    lines += ["", _TABLE.header]
    judged = found.judged
    for figure, each in judged.items():
        cells = (figure_text(each.figure), must_be(each), each.rounds, each.verdict.value)
        lines.append(_TABLE.row(figure.value, *cells))
    lines += wrapped(_in_words(judged[Figure.LOW], found))
    for arm, runs in zip((AS_IT_IS, found.other), zip(*found.pairs, strict=True), strict=True):
        short = min(runs, key=lambda run: run.count).short
        lines += wrapped(f"{arm.name}: {short}" if short else "")
    for reason in dict.fromkeys(each.reason for each in judged.values() if each.reason):
        lines += wrapped(reason)
    lines += ["", *_by_term(found)]
    for code in filter(None, found.code):
        lines += wrapped(code)
    return lines


def _in_words(judgement: Judgement, found: Comparison) -> str:
    """Return whether the command is faster or slower than the other arm, by the figure that other
    programs disturb least; "" if it has no interval, or means nothing. Chance alone makes small
    differences, so only one that the rule calls is a difference."""
    figure, name = judgement.figure, found.other.name
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


def _by_term(found: Comparison) -> list[str]:
    """Return where the two differ: the mean of a usual step by term and rank."""
    sums: tuple[dict[tuple[int, Term], list[float]], ...] = ({}, {})
    for pair in found.pairs:
        for own, run in zip(sums, pair, strict=True):
            parts = parts_of(run.job)
            for each in parts.by_rank if parts is not None else ():
                for term in TERMS:
                    seconds = each.terms.get(term, 0.0)
                    own.setdefault((each.rank, term), []).append(seconds)
    if not sums[0] or sums[0].keys() != sums[1].keys():
        return []
    more = {key: fmean(sums[0][key]) - fmean(sums[1][key]) for key in sums[0]}
    table = Columns(("typical step, ms", -34), ("command", 9), ("other", 9), ("change", 9))
    lines = [table.header]
    ranks = {rank for rank, _ in more}
    for term in (
        term for term in TERMS if any(any(own[rank, term]) for own in sums for rank in ranks)
    ):
        both = [_MS * fmean(fmean(own[rank, term]) for rank in ranks) for own in sums]
        lines.append(
            table.row(term.value, *(f"{ms:.2f}" for ms in both), f"{both[0] - both[1]:+.2f}")
        )
    # Waiting for another rank is that rank's time.
    changed = {key: each for key, each in more.items() if key[1] is not Term.STRAGGLER}
    rank, term = max(changed, key=lambda key: abs(changed[key]))
    alone = all(
        abs(seconds) < abs(changed[rank, term]) / 2
        for (other, its), seconds in changed.items()
        if its is term and other != rank
    )
    where = "" if len(ranks) == 1 else f" on rank {rank}" if alone else " on all ranks"
    lines += wrapped(
        f"largest difference: {term.value}{where}, {_MS * changed[rank, term]:+.2f} ms per step"
    )
    return lines


def verdict_of(found: Comparison) -> Verdict:
    """Return the verdict that decides for both figures."""
    return worst([each.verdict for each in found.judged.values()])
