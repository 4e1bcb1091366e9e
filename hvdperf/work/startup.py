"""Launches that start, and do nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from hvdperf.explain.attribution import attribute_slow_start, attribute_start
from hvdperf.plan.comparisons import Comparison
from hvdperf.records.outcome import Attribution
from hvdperf.records.rounds import Launch, Round
from hvdperf.work.base import Durations, Hosts, LiveLaunches, Pairs, RoundRequest, Work
from hvdperf.worker.protocol import Phase


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
        only_trace = all(map(_is_of_trace, comparisons))
        return Phase.TRACE if only_trace else Phase.BROADCAST

    def measure(self, live: LiveLaunches, request: RoundRequest) -> None:
        """Do nothing: the start was all."""

    @classmethod
    def observe(cls, comparison: Comparison, measured: Round) -> list[float]:
        """Return ln(seconds), or ln of the ratio of speeds of two stacks."""
        ours, theirs = (
            startup_seconds(comparison, measured.of(side.arm)) for side in comparison.sides
        )
        return [math.log(ours) if comparison.is_of_one_arm else math.log(theirs / ours)]

    @classmethod
    def cause(cls, comparison: Comparison, pairs: Pairs, hosts: Hosts) -> Attribution | None:
        phase = comparison.question.spec.part
        if comparison.is_of_one_arm:
            return attribute_slow_start(phase, [launch for launch, _ in pairs], hosts)
        return attribute_start(phase, pairs, hosts)

    @classmethod
    def durations(cls, comparison: Comparison, rounds: Sequence[Round]) -> Durations:
        seconds = []
        for measured in rounds:
            launch = measured.of(comparison.candidate.arm)
            with suppress(LookupError, ValueError, ZeroDivisionError):
                seconds.append(startup_seconds(comparison, launch))
        return Durations(seconds, {})


def _is_of_trace(comparison: Comparison) -> bool:
    return comparison.question.spec.part == Phase.TRACE.value


def startup_seconds(comparison: Comparison, launch: Launch) -> float:
    """Return the seconds that the slowest rank took for the phase; for the trace, per gradient
    tensor."""
    seconds = max(rank[comparison.question.spec.part] for rank in launch.startup_seconds)
    return seconds / launch.metadata[0].gradient_tensors if _is_of_trace(comparison) else seconds
