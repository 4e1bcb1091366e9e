"""Rare long steps are told with the rank on which they begin, and ranks that lie above the others;
noise is not."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from hvdperf.explain.speedup import scaling_breakdown
from hvdperf.explain.steps import (
    LongSteps,
    _mostly,
    excess,
    group_apart,
    highest,
    long_steps,
    of_steps,
)
from hvdperf.explain.time_breakdown import time_breakdown
from hvdperf.plan.arms import BlockKind, Schedule, Term
from hvdperf.plan.questions import wall_time
from hvdperf.records.rounds import Block, BlockReport, Launch, Round
from hvdperf.work.blocks import turns_of
from hvdperf.work.training import stamped
from tests.support.rounds import (
    HOROVOD_1,
    HOROVOD_2,
    WORKLOAD,
    change_reports,
    launch,
    rank_report,
    usage,
)
from tests.support.with_timestamps import COMPUTE, with_timestamps

WEAK, _ = wall_time(WORKLOAD, 2)
STEPS = 20
# The first step of a run, counted from 0, that may be told as a long one.
FIRST_LONG = 6
STEP, INPUT = 0.03, 0.002


def add_block(
    made: Launch,
    kind: BlockKind,
    turn: int,
    steps: Sequence[Sequence[float]],
    inputs: Sequence[Sequence[float]],
    foreign: float = 0.0,
) -> None:
    """Add a block. steps, inputs: seconds of each step and of its input, by rank."""
    ranks = [
        rank_report(
            sum(own),
            32 * STEPS,
            STEPS,
            step_seconds=own,
            input_seconds=waited,
            inside_seconds=sum(own) - sum(waited),
        )
        for own, waited in zip(steps, inputs, strict=True)
    ]
    turns_of(made).blocks.append(Block(kind, turn, STEPS, ranks, usage=usage(foreign)))


def launched(
    noise: random.Random,
    sd: float = 0.05,
    extra: float = 0.0,
    where: str = "input",
    kinds: Sequence[BlockKind] = (BlockKind.FULL,),
    foreign: float = 0.0,
) -> Launch:
    """Return a launch in which every 40th step of rank 0 takes `extra` seconds longer: in its
    input, or in its computing, for which rank 1 waits inside of its step."""
    made: Launch = launch(HOROVOD_2, {})
    begun = dict.fromkeys(kinds, 0)
    for turn in range(6):
        for kind in kinds:
            rows: list[list[float]] = [[], []]
            inputs: list[list[float]] = [[], []]
            for _ in range(STEPS):
                begun[kind] += 1
                long = extra if begun[kind] % 40 == 7 else 0.0
                common = STEP * noise.lognormvariate(0.0, sd)
                for rank in range(2):
                    waits = rank == 1 and kind is not BlockKind.FULL
                    rows[rank].append(common + (0.0 if waits else long))
                    begins = rank == 0 and where == "input"
                    inputs[rank].append(INPUT + (long if begins else 0.0))
            add_block(made, kind, turn, rows, inputs, foreign)
    return made


def found(seed: int, **how: object) -> LongSteps | None:
    noise = random.Random(seed)
    return long_steps([launched(noise, **how) for _ in range(8)])  # type: ignore[arg-type]


@pytest.mark.parametrize("where", ["input", "computing"])
def test_a_second_every_forty_steps_is_told(where):
    kinds = (BlockKind.FULL, BlockKind.LOCAL)
    for seed in range(20):
        told = found(seed, sd=0.13, extra=1.0, where=where, kinds=kinds)
        assert told is not None
        assert told.rank == 0
        assert told.extra_seconds == pytest.approx(1.0, rel=0.05)
        often = told.count / told.steps
        assert often == pytest.approx(1 / 40)
        assert told.share == pytest.approx(often / (often + STEP), rel=0.1)


def test_without_blocks_that_tell_the_rank_none_is_named():
    told = found(1, extra=1.0, where="computing")
    assert told is not None
    assert told.rank is None


@pytest.mark.parametrize("sd", [0.03, 0.13])
def test_noise_is_no_long_step(sd):
    assert [seed for seed in range(20) if found(seed, sd=sd) is not None] == []


def test_what_other_programs_did_is_not_told():
    assert found(1, extra=1.0, foreign=0.5) is None


def pause(launched: Launch, within: Callable[[int], bool], extra: float = 1.0) -> None:
    """Have all ranks of a launch with timestamps pause within these steps."""
    work = stamped(launched)
    rows: list[list[float]] = []
    for step, row in enumerate(work.run[0].timestamps):
        before = extra * sum(map(within, range(step)))
        rows.append([at + before for at in row])
        rows[-1][-1] += extra * within(step)
    work.run = [replace(rank, timestamps=rows) for rank in work.run]


def paused(rank: int, report: BlockReport, extra: float = 1.0) -> BlockReport:
    """Return the report with a first step that takes longer inside."""
    first, *others = report.step_seconds
    return replace(
        report,
        seconds=report.seconds + extra,
        step_seconds=[first + extra, *others],
        inside_seconds=report.inside_seconds + extra,
    )


def test_a_step_that_is_long_between_steps_names_its_rank():
    launches = [launched(random.Random(seed), extra=1.0) for seed in range(8)]
    for made in launches:
        change_reports(
            made,
            lambda _, own: replace(
                own,
                input_seconds=[min(waited, 2 * INPUT) for waited in own.input_seconds],
                inside_seconds=sum(own.step_seconds) - sum(own.input_seconds),
            ),
        )
    told = long_steps(launches)
    assert told is not None
    assert told.rank == 0


def test_a_rank_is_named_only_if_most_of_the_long_steps_begin_on_it() -> None:
    assert (_mostly([1, 1, 1, 1, 0]), _mostly([1, 1, 1, 0]), _mostly([])) == (1, None, None)


@pytest.mark.parametrize(
    ("usual", "seconds", "extra"),
    [
        ((1.0, 1.0), 2.0, 0.0),
        ((1.0, 1.0), 2.125, 1.125),
        # The median absolute deviation is 0.1, so 8 deviations are 1.19 s.
        ((0.9, 1.1), 2.15, 0.0),
        ((0.9, 1.1), 2.25, 1.15),
    ],
)
def test_a_step_is_long_that_takes_twice_the_median_and_lies_eight_deviations_above_it(
    usual: tuple[float, float], seconds: float, extra: float
) -> None:
    *others, last = excess([*usual * 10, 1.0, 1.0, seconds])
    assert set(others) == {0.0}
    assert last == pytest.approx(extra, rel=0.1 if extra else None)
    assert excess([]) == []


def with_long_blocks(count: int, extra: float = 1.0, before: float | None = None) -> Launch:
    """Return a launch in whose every 20th step, `count` times, both ranks take longer. before: of
    it the seconds before rank 0 meets the others; None for all of it."""
    made: Launch = launch(HOROVOD_2, {})
    for turn in range(6):
        own, inputs = [STEP] * STEPS, [[INPUT] * STEPS, [INPUT] * STEPS]
        if turn < count:
            own[7] += extra
            inputs[0][7] += extra if before is None else before
        add_block(made, BlockKind.FULL, turn, [own, own], inputs)
    return made


def test_long_steps_are_told_from_the_third_one_and_from_a_fiftieth_of_the_time_on() -> None:
    told = long_steps([with_long_blocks(3)])
    assert told is not None
    assert (told.rank, told.count, told.steps) == (0, 3, 120)
    assert told.extra_seconds == pytest.approx(1.0)
    assert told.share == pytest.approx(3 / (120 * STEP + 3))
    assert str(told) == "a step of rank 0 in 40 takes 1 s longer (45 % of the time)"
    assert long_steps([with_long_blocks(2)]) is None
    # Of several launches one alone tells nothing.
    assert long_steps([with_long_blocks(4), with_long_blocks(0)]) is None
    assert long_steps([with_long_blocks(4), with_long_blocks(1)]) is not None
    # 3 of 3.72 seconds a step that is 0.025 s longer.
    assert long_steps([with_long_blocks(3, 0.0255)]) is None
    assert long_steps([with_long_blocks(3, 0.031)]) is not None


@pytest.mark.parametrize(("before", "rank"), [(0.5625, 0), (0.4375, None)])
def test_a_long_step_begins_on_a_rank_that_spends_half_of_it_before_the_others(
    before: float, rank: int | None
) -> None:
    told = long_steps([with_long_blocks(4, before=before)])
    assert told is not None
    assert told.rank == rank


@pytest.mark.parametrize(("number", "told"), [(FIRST_LONG, True), (FIRST_LONG - 1, False)])
def test_the_first_five_steps_of_a_run_are_not_rare(number: int, told: bool) -> None:
    """Of the sixth one only its end is known without the step before it."""
    launches = [with_timestamps(HOROVOD_2, steps=40) for _ in range(3)]
    for made in launches:
        pause(made, lambda step: step == number)
    found = long_steps(launches)
    assert (found is not None) is told
    if found is not None:
        assert (found.count, found.steps) == (3, 3 * 34)
        assert found.extra_seconds == pytest.approx(1.0)
    assert long_steps([with_timestamps(HOROVOD_2, steps=6)] * 3) is None, "of a run of six none"


def noisy_pauses(seed: int) -> Launch:
    """Return a launch whose steps take a second longer, one in 40, and 20 ms longer, one in 15."""
    made = launched(random.Random(seed), extra=1.0)
    for timed in made.blocks:
        for rank in timed.ranks:
            assert isinstance(rank.step_seconds, list)
            for number in range(4, STEPS, 15):
                rank.step_seconds[number] += 0.05
    return made


def test_number_extra_time_and_share_belong_to_the_same_steps() -> None:
    found = long_steps([noisy_pauses(seed) for seed in range(8)])
    assert found is not None
    assert found.rank == 0
    assert found.count / found.steps == pytest.approx(1 / 40)
    assert found.extra_seconds == pytest.approx(1.0, rel=0.05)
    seconds = sum(
        max(sum(rank.step_seconds) for rank in timed.ranks)
        for seed in range(8)
        for timed in noisy_pauses(seed).blocks
    )
    assert found.share == pytest.approx(found.count * found.extra_seconds / seconds, rel=0.01)


def paused_run(world_size: int, extra: float = 1.0) -> Launch:
    """Return a launch with timestamps in which all ranks pause within some steps and blocks."""
    arm, exchange = (HOROVOD_2, 0.003) if world_size > 1 else (HOROVOD_1, 0.0)
    made = with_timestamps(arm, exchange=exchange)
    pause(made, lambda step: step % 10 == 9, extra)
    change_reports(made, lambda rank, own: paused(rank, own, extra), lambda block: block.turn == 0)
    return made


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_pause_within_a_step_is_no_communication(world_size: int) -> None:
    paused = time_breakdown(paused_run(world_size)).terms
    usual = time_breakdown(paused_run(world_size, extra=0.0)).terms
    assert paused[Term.LONG_STEPS] == pytest.approx(4.0, rel=0.01)
    for term in (Term.COMPUTE, Term.APPLY, Term.EXCHANGE, Term.BETWEEN, Term.STRAGGLER):
        assert paused[term] == pytest.approx(usual[term], abs=0.01)


def test_pauses_change_no_factor_and_no_cause() -> None:
    found = [
        scaling_breakdown(
            WEAK,
            [
                Round(
                    number, Schedule.FRESH, [paused_run(2, extra=extra), paused_run(1, extra=own)]
                )
                for number in range(6)
            ],
        )
        for extra, own in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
    ]
    for name in ("efficiency", "computation", "communication", "load_balance", "product"):
        usual, *others = (getattr(each, name).estimate for each in found)
        assert others == pytest.approx([usual, usual], rel=0.01)
    assert found[1].steady_state.estimate < 0.5 * found[0].steady_state.estimate
    step = [of_steps(paused_run(2, extra=extra), BlockKind.FULL, True) for extra in (0.0, 1.0)]
    for usual_rank, rank in zip(*step, strict=True):
        assert rank == pytest.approx(usual_rank, abs=1e-4)


def test_one_replica_communicates_with_nobody() -> None:
    """Its parts, measured alone, may leave some of a step."""
    rounds = [
        Round(number, Schedule.FRESH, [with_timestamps(HOROVOD_2), left])
        for number in range(6)
        for left in [with_timestamps(HOROVOD_1, exchange=0.003)]
    ]
    spent = scaling_breakdown(WEAK, rounds).reference
    assert spent.terms[Term.EXCHANGE] == 0.0
    assert spent.terms[Term.COMPUTE] == pytest.approx(40 * (COMPUTE + 0.003))
    assert Term.EXCHANGE not in spent.below


# Ranks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figures", "hosts", "found"),
    [
        ([1.0, 1.0, 1.0], "", ()),
        ([5.0], "", ()),
        ([1.0, 3.0], "", (1,)),
        ([3.0, 1.0, 3.5, 1.0], "", (0, 2)),
        ([1.0, 3.0, 3.0, 3.0], "", (1, 2, 3)),
        # The host separates them 0.87 and 0.62 times as well as its slowest rank does.
        ([0.0, 0.0, 4.0, 1.6], "", (2,)),
        ([0.0, 0.0, 4.0, 1.6], "aabb", (2, 3)),
        ([0.0, 0.0, 4.0, 1.0], "aabb", (2,)),
        ([4.0, 1.6, 0.0, 0.0], "aabb", (0, 1)),
        ([1.0, 1.0, 1.0, 1.0], "aabb", ()),
        ([0.0, 0.0, 4.0, 1.6], "aaaa", (2,)),
        ([0.0, 0.0, 4.0, 1.6, 0.0, 0.0], "aabbcc", (2, 3)),
    ],
)
def test_the_upper_class_is_the_one_that_separates_best(
    figures: Sequence[float], hosts: str, found: tuple[int, ...]
) -> None:
    assert highest(figures, list(hosts)) == found


def test_a_quarter_of_the_rounds_at_either_end_does_not_matter() -> None:
    rows = [[1.0, 2.0]] * 10
    group = group_apart([*rows, [9.0, 2.0], [1.0, 9.0]])
    assert group is not None
    assert (group.ranks, group.host, group.ahead) == ((1,), "", 1.0)
    # Half of the rounds do.
    assert group_apart([*rows[:4], *[[2.0, 1.0]] * 4]) is None


def test_a_group_is_named_with_its_host_and_how_far_it_is_ahead() -> None:
    rows = [[1.0, 1.5, 3.0, 4.0 + 0.125 * number] for number in range(7)]
    group = group_apart(rows, list("aabb"))
    assert group is not None
    assert (group.ranks, group.host) == ((2, 3), "b")
    assert group.ahead == (3.0 + 4.375) / 2 - 1.25
    assert group_apart(rows[:5], list("aabb")) is None, "five rounds bound nothing"
    late = group_apart([[3.0, 1.0, 1.0]] * 7, list("aab"))
    assert late is not None
    assert (late.ranks, late.host) == ((0,), ""), "not all of its host"
