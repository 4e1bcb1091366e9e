"""Every second of a run has a term, and one that has none is noticed; who keeps the others waiting
is named with its lag, and chance is not."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import median

import pytest

from hvdperf.explain.speedup import training_seconds
from hvdperf.explain.time_breakdown import (
    CHANCE,
    CLOSES_WITHIN,
    TimeBreakdown,
    beyond_chance,
    clock_set,
    disorder,
    straggler,
    time_breakdown,
    waits,
    wall_seconds,
)
from hvdperf.plan.arms import START, TERMS
from hvdperf.records.rounds import Launch, Timestamp, Timestamps
from hvdperf.work.training import WallTime, stamped
from hvdperf.worker.protocol import STARTUP, Phase
from tests.support.rounds import HOROVOD_2, change_reports
from tests.support.with_timestamps import (
    APPLY,
    BETWEEN,
    COMPUTE,
    END_S,
    INPUT,
    LAUNCH_S,
    SECONDS,
    step_timestamps,
    timestamps_of,
    with_timestamps,
)


def test_the_phases_are_those_of_a_rank():
    assert tuple(phase.value for phase in (*STARTUP[1:], Phase.READY)) == START


def test_every_second_has_its_term():
    book = time_breakdown(with_timestamps(HOROVOD_2, steps=40, exchange=0.003))
    expected = {
        "launch": LAUNCH_S,
        **SECONDS,
        "between steps": 40 * BETWEEN,
        "input wait": 40 * INPUT,
        "straggler wait": 0.0,
        "compute": 40 * COMPUTE,
        "apply": 40 * APPLY,
        "rare long steps": 0.0,
        "exposed communication": 40 * 0.003,
        "end": END_S,
    }
    assert list(book.terms) == list(TERMS)
    assert book.terms == pytest.approx(expected, abs=1e-6)
    assert sum(book.terms.values()) == pytest.approx(book.wall_seconds)
    assert book.closes
    assert book.late is None


def test_what_the_session_asked_in_between_is_not_the_runs():
    timestamps = timestamps_of(run_seconds=1.0, ranks=1)
    everything = timestamps.ended_at - timestamps.launched_at
    assert wall_seconds(timestamps) == pytest.approx(everything - 5.0)


def test_waiting_for_a_late_rank_is_neither_computing_nor_communicating():
    book = time_breakdown(with_timestamps(HOROVOD_2, late=[0.0, 0.05], exchange=0.003))
    on_time, late = book.ranks
    assert on_time["straggler wait"] == pytest.approx(40 * 0.05)
    assert late["straggler wait"] == pytest.approx(0.0, abs=1e-9)
    # Before it has its batch.
    assert late["between steps"] == pytest.approx(40 * (BETWEEN + 0.05))
    assert on_time["compute"] == pytest.approx(40 * COMPUTE, rel=0.01)
    assert on_time["exposed communication"] == pytest.approx(40 * 0.003, rel=0.02)
    assert book.closes
    assert book.late is not None
    assert book.late.rank == 1
    assert book.late.lag_seconds == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("computes", "late", "lag"),
    [([0.0, 0.016], [0.0, 0.0], 0.016), ([0.002, 0.0], [0.0, 0.002], 0)],
)
def test_waiting_for_a_rank_that_computes_longer_is_no_communication(computes, late, lag):
    """One that also begins earlier by as much keeps nobody waiting."""
    book = time_breakdown(with_timestamps(HOROVOD_2, late=late, computes=computes))
    assert (book.late is not None) is bool(lag)
    if book.late is not None:
        assert (book.late.rank, book.late.lag_seconds) == pytest.approx((1, lag))
    waited = [rank["straggler wait"] for rank in book.ranks]
    assert waited == pytest.approx([40 * lag, 0.0], abs=1e-9)
    exchanged = [rank["exposed communication"] for rank in book.ranks]
    assert exchanged == pytest.approx([0.0, 0.0], abs=1e-9)


@pytest.mark.parametrize(("extra", "least", "most"), [(0.0, 0, 3), (0.003, 16, 20)])
def test_a_rank_is_late_if_it_computes_longer_than_noise_explains(extra, least, most):
    """A case names a straggler that most of its rounds name (scaling_breakdown)."""
    noise = random.Random(1)
    named, waited = 0, []
    for _ in range(20):
        launch = with_timestamps(HOROVOD_2, computes=[0.0, extra])
        change_reports(
            launch,
            lambda _, own: replace(
                own, inside_seconds=own.inside_seconds * noise.lognormvariate(0.0, 0.05)
            ),
        )
        book = time_breakdown(launch)
        named += book.late is not None
        waited.append(book.terms["straggler wait"] / 40)
    assert least <= named <= most
    assert (median(waited) > 0) is bool(extra)


def test_blocks_that_tell_no_waits_for_batches_divide_a_step_all_the_same() -> None:
    launch = with_timestamps(HOROVOD_2)
    whole = time_breakdown(launch)
    change_reports(launch, lambda _, own: replace(own, input_seconds=[]))
    assert time_breakdown(launch).terms == pytest.approx(whole.terms)


def test_seconds_without_a_term_are_noticed() -> None:
    wall = time_breakdown(with_timestamps(HOROVOD_2)).wall_seconds
    holds, leaks = (
        with_timestamps(HOROVOD_2, unexplained=share * CLOSES_WITHIN * wall) for share in (0.9, 1.1)
    )
    assert problems_of(holds) == []
    (problem,) = problems_of(leaks)
    assert problem.startswith(f"{HOROVOD_2.name}: its time breakdown leaves 0.1")


def set_during(timestamps: Timestamps, phases: int, seconds: float, ranks: int = 2) -> Timestamps:
    """The time of day is set by so many seconds once the first so many ranks have begun so many
    phases."""
    moved = [
        [
            timestamp._replace(at=timestamp.at + seconds * (i >= phases))
            for i, timestamp in enumerate(own)
        ]
        for own in timestamps.ranks[:ranks]
    ]
    return replace(
        timestamps,
        ranks=[*moved, *timestamps.ranks[ranks:]],
        ended_at=timestamps.ended_at + seconds,
    )


PHASES = len(timestamps_of(1.0, ranks=2).ranks[0])


@pytest.mark.parametrize("seconds", [3600.0, -3600.0, 0.2, -0.2])
@pytest.mark.parametrize("phases", range(PHASES + 1))
def test_a_time_of_day_that_is_set_is_noticed_whenever_that_is(phases, seconds):
    launch = with_timestamps(HOROVOD_2)
    timestamps = stamped(launch).timestamps
    assert timestamps is not None
    sound = training_seconds(launch, 40)
    stamped(launch).timestamps = set_during(timestamps, phases, seconds)
    (problem,) = problems_of(launch)
    assert "clocks disagree: the time of day of the session" in problem
    assert f"{seconds:+.2f} s compared" in problem
    # Whatever a figure is taken from says the same as ever.
    assert training_seconds(launch, 40) == sound


@pytest.mark.parametrize("seconds", [60.0, -60.0])
@pytest.mark.parametrize("phases", range(1, PHASES))
def test_a_time_of_day_that_is_set_on_another_host_is_noticed_too(phases, seconds):
    sound = timestamps_of(1.0, ranks=2)
    own = set_during(sound, phases, seconds).ranks[1]
    said = disorder(replace(sound, ranks=[sound.ranks[0], own]))
    assert said.startswith(f"clocks disagree: the time of day of rank 1 moved by {seconds:+.2f} s")


# What a clock may move by is 0.05 s and half a thousandth of the launch, which lasts 12 s, or 10 s
# and 10,000.
@pytest.mark.parametrize(
    ("run_seconds", "seconds", "is_set"),
    [(1.0, 0.055, False), (1.0, 0.057, True), (1e4, 5.0, False), (1e4, 5.1, True)],
)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("whose", ["the session", "rank 0"])
def test_a_clock_may_be_slewed_and_no_more(whose, sign, run_seconds, seconds, is_set):
    sound = timestamps_of(run_seconds, ranks=1)
    phases = PHASES if whose == "the session" else PHASES - 1
    timestamps = set_during(sound, phases, sign * seconds)
    if whose == "rank 0":
        timestamps = replace(timestamps, ended_at=sound.ended_at)
    assert (f"of {whose} moved by {sign * seconds:+.2f} s" in clock_set(timestamps)) is is_set


@pytest.mark.parametrize(
    ("ranks", "residual", "closes"),
    [
        ([98.0], 0.02, True),
        ([97.9], 0.021, False),
        ([102.0], -0.02, True),
        ([102.1], -0.021, False),
        ([99.0, 103.0, 100.0], -0.03, False),
    ],
)
def test_the_worst_explained_rank_may_be_off_by_a_fiftieth(ranks, residual, closes):
    book = TimeBreakdown(100.0, tuple({"init": seconds} for seconds in ranks), 40, None)
    assert book.residual == pytest.approx(residual)
    assert book.closes is closes


@pytest.mark.parametrize("left", [(0, 0), (40, 0), (40, 39)])
def test_steps_that_are_not_marked_on_all_ranks_are_no_time_breakdown(left: Sequence[int]) -> None:
    launch = with_timestamps(HOROVOD_2)
    stamped(launch).blocks = []
    with pytest.raises(ValueError, match="no turn in which every kind of step was timed"):
        time_breakdown(launch)
    stamped(launch).run = [
        replace(own, timestamps=own.timestamps[:steps])
        for own, steps in zip(launch.run, left, strict=True)
    ]
    with pytest.raises(ValueError, match="not complete on all ranks"):
        time_breakdown(launch)


def problems_of(launch: Launch) -> list[str]:
    return [problem for problem in WallTime.problems(launch) if "time breakdown" in problem]


Own = list[Timestamp]


def shifted(own: Own, seconds: float) -> Own:
    return [timestamp._replace(at=timestamp.at + seconds) for timestamp in own]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda own: [*own[:4], own[5], own[4], *own[6:]],
            "rank 1 went through its phases in the order import, init, build, input, first",
        ),
        (
            lambda own: own[:3] + own[4:],
            "rank 1 went through its phases in the order import, init, build, trace",
        ),
        (
            lambda own: [*own[:6], own[6]._replace(clock=own[5].clock - 1), *own[7:]],
            "rank 1: its clock went backwards",
        ),
        (lambda own: shifted(own, -1), "rank 1 began before its launch, or ended after its end"),
        (lambda own: shifted(own, 1), "rank 1 began before its launch, or ended after its end"),
    ],
    ids=["order", "missing", "backwards", "early", "late"],
)
def test_phases_out_of_order_are_no_time_breakdown(change: Callable[[Own], Own], said: str) -> None:
    sound = timestamps_of(1.0, ranks=2)
    assert disorder(sound) == ""
    one, other = sound.ranks
    assert_no_breakdown(replace(sound, ranks=[one, change(list(other))]), said)
    # A launch that was not asked to run, or to close.
    for left in (sound.asked[1:], sound.asked[:-1]):
        never = "the launch had no order to run and then to close"
        assert_no_breakdown(replace(sound, asked=left), never)


def assert_no_breakdown(timestamps: Timestamps, said: str) -> None:
    assert disorder(timestamps).startswith(said)
    launch = with_timestamps(HOROVOD_2)
    stamped(launch).timestamps = timestamps
    with pytest.raises(ValueError, match=re.escape(said)):
        time_breakdown(launch)
    assert problems_of(launch)[0].startswith(f"{HOROVOD_2.name}: no time breakdown: {said}")


# Stragglers --------------------------------------------------------------------------------------


def waited(steps: int, late: Sequence[float]) -> list[list[float]]:
    return waits(step_timestamps(steps, late), [0.0] * len(late))


def test_a_rank_that_is_late_throughout_is_named_with_its_lag() -> None:
    for late in ([0.0, 0.05], [0.0, 0.05, 0.0, 0.01]):
        named = straggler(waited(100, late), step_seconds=0.07)
        assert named is not None
        assert (named.rank, named.share) == (1, 1.0)
        assert named.lag_seconds == pytest.approx(0.05)
    # The others wait for it, and it for nobody.
    assert [sum(own) for own in waited(10, [0.0, 0.03, 0.01])] == pytest.approx([0.3, 0.0, 0.2])
    assert straggler(waited(10, [0.0]), 0.02) is None, "one rank"
    little = waited(100, [0.0, 0.001])
    assert straggler(little, step_seconds=0.1) is None
    assert straggler(little, step_seconds=0.02) is not None
    steps = [waited(1, [0.0, 0.05 if step % 5 == 0 else 0.0]) for step in range(100)]
    rarely = [[step[rank][0] for step in steps] for rank in (0, 1)]
    assert straggler(rarely, step_seconds=0.02) is None


def drifting(seed: int, ar: float, lag: float = 0.0, steps: int = 200, ranks: int = 2):
    """Return waits of ranks whose lateness drifts: an autoregressive process of the first order,
    with a standard deviation of 3 ms. lag: of rank 0 in every step."""
    noise = random.Random(seed)
    ready = []
    for rank in range(ranks):
        own = noise.gauss(0.0, 1.0)
        row = []
        for _ in range(steps):
            row.append(0.003 * own + (lag if rank == 0 else 0.0))
            own = ar * own + math.sqrt(1 - ar * ar) * noise.gauss(0.0, 1.0)
        ready.append(row)
    last = [max(step) for step in zip(*ready, strict=True)]
    return [[b - a for a, b in zip(row, last, strict=True)] for row in ready]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("ar", [0.0, 0.5, 0.95])
def test_who_is_late_now_one_and_then_another_is_not_named(ar, ranks):
    named = [straggler(drifting(seed, ar, ranks=ranks), step_seconds=0.02) for seed in range(200)]
    assert sum(each is not None for each in named) <= 3


@pytest.mark.parametrize("ar", [0.0, 0.5])
def test_who_is_late_throughout_is_named_though_all_drift(ar):
    named = [straggler(drifting(seed, ar, lag=0.006), step_seconds=0.02) for seed in range(100)]
    assert sum(each is not None and each.rank == 0 for each in named) >= 95


@pytest.mark.parametrize(("late", "named"), [(7, True), (6, False)])
def test_who_is_late_in_seven_eighths_of_a_run_is_named_and_in_six_is_not(
    late: int, named: bool
) -> None:
    """Two of the eight stretches without a lag leave a t of 4.6, and 4.8 are needed."""
    on_time = waited(500 * (8 - late), [0.0, 0.0])
    joined = [a + b for a, b in zip(waited(500 * late, [0.01, 0.0]), on_time, strict=True)]
    assert (straggler(joined, step_seconds=0.02) is not None) is named


@pytest.mark.parametrize("trials", [1, 12, 144, 1000])
@pytest.mark.parametrize("ranks", [2, 3, 256])
def test_chance_is_the_exact_binomial_tail(trials, ranks):
    of_all = Fraction(CHANCE) * ranks**trials
    for times in {0, 1, trials // ranks, trials // ranks + 1, trials // 2 + 1, trials}:
        ways = [
            math.comb(trials, k) * (ranks - 1) ** (trials - k) for k in range(times, trials + 1)
        ]
        assert beyond_chance(times, trials, ranks) == (sum(ways) <= of_all)
    assert not beyond_chance(trials, trials, 1), "one rank is always the last"
