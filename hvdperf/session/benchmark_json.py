"""Feeds pytest-benchmark from the workers' clocks: a timer that advances by measured durations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hvdperf.json_records import plain
from hvdperf.judge.observations import startup_seconds
from hvdperf.judge.training_runs import samples
from hvdperf.plan.question import LaunchMode
from hvdperf.records.outcome import Outcome
from hvdperf.records.rounds import median_speed


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
    durations, details = _measured(outcome)
    if durations:
        benchmark.extra_info.update(**_common_info(outcome), **details)
        clock.replay(durations, benchmark)


def _measured(outcome: Outcome) -> tuple[list[float], dict[str, Any]]:
    """Return the candidate's durations, in seconds, and further extra_info."""
    comparison = outcome.comparison
    arm, mode = comparison.candidate.arm, comparison.question.mode
    launches = [measured.of(arm) for measured in outcome.rounds]
    if mode is LaunchMode.STARTUP:
        timed = launches if outcome.observations else []
        return [startup_seconds(comparison, launch) for launch in timed], {}
    if mode.is_run:
        # A launch that ended before its time has no run.
        runs = [launch.run for launch in launches if launch.run]
        return [max(rank.seconds for rank in ranks) for ranks in runs], {
            "samples": [samples(ranks) for ranks in runs],
            "validation": [plain(ranks[0].validation) for ranks in runs],
        }
    if comparison.collective is not None:
        # A turn is once through all sizes.
        turns: dict[tuple[int, int], float] = {}
        for number, launch in enumerate(launches):
            for series in launch.series:
                if series.transfer.collective is comparison.collective and series.repeats:
                    turn = number, series.turn
                    turns[turn] = turns.get(turn, 0.0) + series.seconds
        return list(turns.values()), {}
    blocks, reference = (
        [block for each in outcome.rounds for block in each.of(side.arm).of_kind(side.kind)]
        for side in comparison.sides
    )
    if not blocks:
        return [], {}
    return [block.seconds for block in blocks], {
        "images_per_second": median_speed(blocks),
        "images_per_second_reference": median_speed(reference) if reference else None,
        "steps_per_block": blocks[0].steps,
        "gradient_bytes": launches[0].metadata[0].gradient_bytes,
    }


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
