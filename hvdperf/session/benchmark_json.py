"""Feeds pytest-benchmark from the workers' clocks: a timer that advances by measured durations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hvdperf.json_records import plain
from hvdperf.judge.observations import startup_seconds
from hvdperf.judge.outcome import Outcome
from hvdperf.judge.training_runs import samples
from hvdperf.measure.records import Block, median_speed
from hvdperf.plan.arms import Side
from hvdperf.plan.question import LaunchMode


class ReplayedClock:
    """A clock that stands still until a block is replayed, and then advances by its duration."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def timer(self) -> Callable[[], float]:
        """Return the timer: a function, because pytest-benchmark asks a timer for its name."""

        def block_seconds() -> float:
            return self._seconds

        return block_seconds

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
    if outcome.comparison.question.mode is LaunchMode.STARTUP:
        _record_startups(clock, outcome, benchmark)
        return
    if outcome.comparison.question.mode.is_run:
        _record_runs(clock, outcome, benchmark)
        return
    if outcome.comparison.collective is not None:
        _record_collectives(clock, outcome, benchmark)
        return
    side = outcome.comparison.candidate
    blocks = _blocks(outcome, side)
    if not blocks:
        return
    reference = _blocks(outcome, outcome.comparison.reference)
    benchmark.extra_info.update(
        **_told(outcome),
        images_per_second=median_speed(blocks),
        images_per_second_reference=median_speed(reference) if reference else None,
        steps_per_block=blocks[0].steps,
        gradient_bytes=outcome.rounds[0].of(side.arm).facts[0].gradient_bytes,
    )
    clock.replay([block.seconds for block in blocks], benchmark)


def _record_startups(clock: ReplayedClock, outcome: Outcome, benchmark: Any) -> None:
    """Record the start-up time of each launch, because a start-up has no blocks."""
    if outcome.observations:
        benchmark.extra_info.update(_told(outcome))
        arm = outcome.comparison.candidate.arm
        launches = [measured.of(arm) for measured in outcome.rounds]
        seconds = [startup_seconds(outcome.comparison, launch) for launch in launches]
        clock.replay(seconds, benchmark)


def _record_runs(clock: ReplayedClock, outcome: Outcome, benchmark: Any) -> None:
    """Record each run of the candidate as one round, with the samples of all ranks and the result
    of the validation."""
    arm = outcome.comparison.candidate.arm
    # A launch that ended before its time has no run.
    runs = [ranks for measured in outcome.rounds if (ranks := measured.of(arm).run)]
    if runs:
        benchmark.extra_info.update(
            **_told(outcome),
            samples=[samples(ranks) for ranks in runs],
            validation=[plain(ranks[0].validation) for ranks in runs],
        )
        clock.replay([max(rank.seconds for rank in ranks) for ranks in runs], benchmark)


def _record_collectives(clock: ReplayedClock, outcome: Outcome, benchmark: Any) -> None:
    """Record each turn of Horovod as one round: once through all sizes."""
    comparison = outcome.comparison
    turns: dict[tuple[int, int], float] = {}
    for measured in outcome.rounds:
        for series in measured.of(comparison.candidate.arm).series:
            if series.transfer.collective is comparison.collective and series.repeats:
                turn = measured.number, series.turn
                turns[turn] = turns.get(turn, 0.0) + series.seconds
    if turns:
        benchmark.extra_info.update(_told(outcome))
        clock.replay(list(turns.values()), benchmark)


def _told(outcome: Outcome) -> dict[str, Any]:
    comparison, judgement = outcome.comparison, outcome.judgement
    return {
        "case": comparison.name,
        "word": judgement.verdict.value,
        "figure": plain(judgement.figure),
        "threshold": plain(judgement.rule),
        "rounds": judgement.rounds,
        "world_size": comparison.world_size,
    }


def _blocks(outcome: Outcome, side: Side) -> list[Block]:
    return [
        block for measured in outcome.rounds for block in measured.of(side.arm).of_kind(side.kind)
    ]
