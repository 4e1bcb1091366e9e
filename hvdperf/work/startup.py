"""Launches that start, and do nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from hvdperf.explain.attribution import attribute_slow_start, attribute_start
from hvdperf.plan.comparisons import Comparison, Question
from hvdperf.records.outcome import Attribution
from hvdperf.records.rounds import Launch, Round
from hvdperf.work.base import Durations, Pair, RoundRequest, Work
from hvdperf.work.live_launches import LiveLaunches
from hvdperf.worker.protocol import Phase

# The phase that each question is about.
PHASES: Mapping[Question, Phase] = {
    Question.STARTUP_INIT: Phase.INIT,
    Question.STARTUP_TRACE: Phase.TRACE,
    Question.STARTUP_FIRST_STEP: Phase.FIRST_STEP,
    Question.STARTUP_BROADCAST: Phase.BROADCAST,
}


@dataclass
class Startup(Work):
    """A start-up. Each launch runs alone, because arms that start side by side slow each other
    down."""

    name = "startup"
    has_section = True
    forks = False

    @classmethod
    def last_phase(cls, comparisons: Sequence[Comparison]) -> Phase:
        """Return the trace if all comparisons are about it, else the broadcast."""
        only_trace = all(each.question is Question.STARTUP_TRACE for each in comparisons)
        return Phase.TRACE if only_trace else Phase.BROADCAST

    def measure(self, live: LiveLaunches, request: RoundRequest) -> None:
        """Do nothing: the start was all."""

    @classmethod
    def observe(
        cls, comparison: Comparison, measured: Round, disturbed: bool = False
    ) -> list[float]:
        """Return ln(seconds), or ln of the ratio of speeds of two stacks."""
        ours, theirs = (
            startup_seconds(comparison.question, measured.of(side.arm)) for side in comparison.sides
        )
        return [math.log(ours) if comparison.is_of_one_arm else math.log(theirs / ours)]

    @classmethod
    def cause(
        cls, comparison: Comparison, pairs: Sequence[Pair], hosts: Sequence[str]
    ) -> Attribution | None:
        phase = PHASES[comparison.question].value
        if comparison.is_of_one_arm:
            return attribute_slow_start(phase, [launch for launch, _ in pairs], hosts)
        return attribute_start(phase, pairs, hosts)

    @classmethod
    def durations(cls, comparison: Comparison, rounds: Sequence[Round]) -> Durations:
        seconds = []
        for measured in rounds:
            launch = measured.of(comparison.candidate.arm)
            with suppress(LookupError, ValueError, ZeroDivisionError):
                seconds.append(startup_seconds(comparison.question, launch))
        return Durations(seconds, {})


def startup_seconds(question: Question, launch: Launch) -> float:
    """Return the seconds that the slowest rank took for the phase; for the trace, per gradient
    tensor."""
    phase = PHASES[question].value
    seconds = max(rank[phase] for rank in launch.startup_seconds)
    tensors = launch.metadata[0].gradient_tensors
    return seconds / tensors if question is Question.STARTUP_TRACE else seconds
