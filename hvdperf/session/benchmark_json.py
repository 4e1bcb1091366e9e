"""Feeds pytest-benchmark from the workers' clocks: a timer that advances by measured durations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hvdperf.json_records import plain
from hvdperf.records.outcome import Outcome
from hvdperf.work.table import work_of


class ReplayedClock:
    """A clock that stands still until a block is replayed, and then advances by its duration."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def block_seconds(self) -> float:
        """Return the time; this is the timer of a benchmark."""
        return self._seconds

    def replay(self, durations: Sequence[float], benchmark: Any) -> None:
        """Record the durations (seconds) as the rounds of a benchmark.

        `pedantic` with one iteration a round is used because calibration cannot read such a timer.
        """
        pending = iter(durations)

        def advance() -> None:
            self._seconds += next(pending)

        benchmark.pedantic(advance, rounds=len(durations), iterations=1)


def record(clock: ReplayedClock, outcome: Outcome, benchmark: Any) -> None:
    """Record the durations of the candidate's blocks, start-ups, runs or collective operations,
    with the verdict as extra_info, and with the throughput of blocks."""
    comparison = outcome.comparison
    seconds, details = work_of(comparison.question).durations(comparison, outcome.rounds)
    if seconds:
        benchmark.extra_info.update(**_common_info(outcome), **details)
        clock.replay(seconds, benchmark)


def _common_info(outcome: Outcome) -> dict[str, Any]:
    comparison, judgement = outcome.comparison, outcome.judgement
    return {
        "case": comparison.name,
        "word": judgement.verdict.value,
        "figure": plain(judgement.figure),
        "threshold": plain(judgement.rule),
        "rounds": judgement.rounds,
        "world_size": comparison.world_size,
    }
