"""Sessions whose rounds are made up: when a case is decided, and which arms are launched for it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from bench.simulation import Looks, session_verdict
from harness.collectives import Collective
from harness.launch.group import NotStarted
from harness.needs import (
    SWEEP_TURNS,
    sampling_of,
)
from harness.plan import Sampling, Schedule, Side
from harness.questions import (
    communication,
    fixed_time,
    parity,
    sweep,
    weak_scaling,
)
from harness.transport_tools.figures import ToolRun
from harness.verdict import FEWEST_ROUNDS, Band, Verdict
from tests.support.rounds import (
    HOROVOD_1,
    HOROVOD_2,
    MIRRORED_2,
    WORKLOAD,
)
from tests.support.sessions import (
    ALL,
    BOUND,
    CEILINGS,
    COMMUNICATION,
    ENOUGH,
    FIRST_LOOK,
    GRADIENTS_OF,
    LAST_LOOK,
    LINES,
    OTHER,
    PARITY,
    SECOND_LOOK,
    STRONG,
    WEAK,
    exchanged,
    level,
    noisy,
    verdicts,
)

# Looks -----------------------------------------------------------------------------------------


def test_what_is_clear_passes_at_the_first_look(stage):
    outcomes = stage.measure(*ALL)
    assert verdicts(outcomes) == dict.fromkeys(ALL, Verdict.PASS)
    assert all(outcome.judgement.rounds == FIRST_LOOK for outcome in outcomes.values())
    assert len(stage.script.launched) == FIRST_LOOK
    assert all(outcome.passed for outcome in outcomes.values())


def test_what_is_clearly_below_fails_at_the_first_look(stage):
    stage.script.speed = noisy(0.7, 0.01)
    outcome = stage.measure(WEAK)[WEAK]
    assert outcome.judgement.verdict is Verdict.FAIL
    assert outcome.judgement.rounds == FIRST_LOOK
    assert outcome.judgement.figure.estimate == pytest.approx(0.7, rel=0.01)
    assert not outcome.passed


def test_what_is_too_close_to_call_is_looked_at_again_and_then_left_open(stage):
    stage.script.speed = noisy(0.9, 0.05)
    outcome = stage.measure(WEAK)[WEAK]
    assert outcome.judgement.verdict is Verdict.INCONCLUSIVE
    assert outcome.judgement.rounds == len(stage.script.launched) == LAST_LOOK


def test_a_second_look_decides_what_the_first_could_not(stage):
    # One of the first rounds is far below, which alone holds the lower bound down.
    def speed(side: Side, number: int) -> float:
        slow = side.arm == HOROVOD_2 and number == 2
        return level(side, number) * (0.5 if slow else 1.0)

    stage.script.speed = speed
    outcome = stage.measure(WEAK)[WEAK]
    assert outcome.judgement.verdict is Verdict.PASS
    assert outcome.judgement.rounds == SECOND_LOOK


def test_no_verdict_is_taken_between_looks(stage):
    stage.sampling = Sampling(looks=(8, 9))
    assert stage.measure(WEAK)[WEAK].judgement.rounds == 8


@pytest.mark.parametrize("looks", list(Looks))
@pytest.mark.parametrize("seed", range(10))
def test_a_session_ends_as_the_simulation_of_error_rates_has_it(stage, seed, looks):
    noise = np.random.default_rng(seed).normal(np.log(0.93), 0.06, looks.value[-1])

    def speed(side: Side, number: int) -> float:
        return level(side, number) * (np.exp(noise[number]) if side.arm == HOROVOD_2 else 1.0)

    stage.script.speed = speed
    stage.sampling = Sampling(looks=looks.value)
    outcome = stage.measure(PARITY)[PARITY]
    expected = session_verdict(noise.tolist(), looks.value, Band(0.9, 1.1))
    assert outcome.judgement.verdict is expected
    assert outcome.observations == pytest.approx(noise[: outcome.judgement.rounds])
    ended_early = outcome.judgement.rounds < looks.value[-1]
    assert (expected is Verdict.INCONCLUSIVE) <= (not ended_early)


# Which arms are launched -----------------------------------------------------------------------


def test_arms_of_what_is_decided_are_not_launched_again(stage):
    def speed(side: Side, number: int) -> float:
        if side.arm == MIRRORED_2:
            return level(side, number) * (1.3, 1.0, 0.75)[number % 3]
        return level(side, number)

    stage.script.speed = speed
    outcomes = stage.measure(*ALL)
    assert verdicts(outcomes)[PARITY] is Verdict.INCONCLUSIVE
    assert set(stage.script.launched[FIRST_LOOK - 1]) == {HOROVOD_1, HOROVOD_2, MIRRORED_2}
    assert len(stage.script.launched) == LAST_LOOK
    later = stage.script.launched[FIRST_LOOK:]
    assert all(set(arms) == {HOROVOD_2, MIRRORED_2} for arms in later)
    assert outcomes[WEAK].judgement.rounds == FIRST_LOOK


def test_an_arm_is_launched_once_a_round_however_many_need_it(stage):
    stage.measure(*ALL)
    assert [len(arms) for arms in stage.script.launched] == [3] * FIRST_LOOK


def test_a_sweep_takes_few_turns_for_they_are_long(stage):
    stage.lines = CEILINGS
    stage.sampling = Sampling(turns_min=8, turns_max=8)
    asked = sweep(WORKLOAD, 2)[0]
    stage.script.spoil = exchanged(asked, 1.2)
    # Rounds of 10 s and three turns of 1 s.
    stage.budget_s = FIRST_LOOK * 13.0
    assert verdicts(stage.measure(asked)) == {asked: Verdict.PASS}
    assert stage.script.turns == [SWEEP_TURNS] * FIRST_LOOK
    assert sampling_of([GRADIENTS_OF], stage.sampling) == stage.sampling
    assert sampling_of([asked], Sampling(turns_min=1, turns_max=2)).turns_min == 1


def test_other_tools_are_asked_once_and_judge_nothing(stage):
    asked = sweep(WORKLOAD, 2)[0]
    calls = []

    def tools(collective: Collective, world_size: int) -> list[ToolRun]:
        calls.append((collective, world_size, len(stage.script.launched)))
        return [ToolRun("osu", "/opt/osu", collective, world_size, problem="it broke")]

    stage.lines, stage.tools = CEILINGS, tools
    stage.script.spoil = exchanged(asked, 1.2)
    outcomes = stage.measure(asked)
    assert verdicts(outcomes) == {asked: Verdict.PASS}
    # Before the rounds.
    assert calls == [(Collective.ALLREDUCE, 2, 0)]
    assert [run.problem for run in outcomes[asked].tools] == ["it broke"]


@pytest.mark.parametrize("asked", [GRADIENTS_OF, BOUND, WEAK], ids=str)
def test_other_tools_are_asked_about_sweeps_only(stage, asked):
    stage.lines = (*LINES, *CEILINGS)
    stage.tools = pytest.fail
    assert [outcome.tools for outcome in stage.measure(asked).values()] == [()]


def test_other_tools_are_left_out_where_time_is_up(stage):
    stage.tools, stage.budget_s = pytest.fail, 0.0
    (outcome,) = stage.measure(sweep(WORKLOAD, 2)[0]).values()
    assert outcome.tools == ()


def test_what_is_only_shown_needs_no_second_round(stage):
    stage.cores = 1
    assert verdicts(stage.measure(WEAK)) == {WEAK: Verdict.NOT_JUDGED}
    assert len(stage.script.launched) == 1


# Budget ----------------------------------------------------------------------------------------


def test_no_round_begins_that_would_end_past_the_budget(stage):
    # A round takes 10 s and three turns of 1 s.
    stage.sampling = Sampling(turns_min=3, turns_max=3)
    stage.budget_s = 60.0
    outcome = stage.measure(WEAK)[WEAK]
    assert outcome.judgement.verdict is Verdict.INCONCLUSIVE
    assert outcome.judgement.rounds == len(stage.script.launched) == 4
    assert "4 rounds bound nothing" in outcome.judgement.reason


def restless(launched):
    """Every other turn of two replicas is a fifth slower."""
    if launched.arm == HOROVOD_2:
        launched.blocks = [
            replace(each, ranks=[{**r, "seconds": r["seconds"] * 1.2} for r in each.ranks])
            if each.turn % 2
            else each
            for each in launched.blocks
        ]


def test_where_turns_differ_more_are_taken_as_far_as_the_budget_goes(stage):
    stage.sampling = Sampling(turns_min=3, turns_max=5)
    stage.script.spoil = restless
    # Rounds of 10 s and 18 turns of 1 s.
    stage.budget_s = FIRST_LOOK * 28.0
    stage.measure(WEAK)
    first, *later = stage.script.turns[:FIRST_LOOK]
    assert first == 3
    assert all(18 <= turns <= 21 for turns in later)
    assert stage.script.clock <= stage.budget_s


def test_where_turns_are_alike_no_more_are_taken(stage):
    stage.sampling = Sampling(turns_min=3, turns_max=5)
    stage.budget_s = 10_000.0
    stage.measure(WEAK)
    assert stage.script.turns == [3, *[5] * (FIRST_LOOK - 1)]


def test_where_arms_do_not_take_turns_no_more_blocks_are_taken(stage):
    stage.sampling = Sampling(turns_min=3, turns_max=5)
    stage.schedule = Schedule.FRESH
    stage.script.spoil = restless
    stage.budget_s = 10_000.0
    stage.measure(WEAK)
    assert stage.script.turns[:2] == [3, 5]


def test_one_round_is_measured_however_small_the_budget(stage):
    stage.budget_s = 1.0
    outcome = stage.measure(WEAK)[WEAK]
    assert outcome.judgement.rounds == len(stage.script.launched) == 1


@pytest.mark.parametrize(
    ("budget_s", "rounds"),
    [
        (2 * 105.0, FIRST_LOOK),  # of 13 s, in half of it
        (2 * 103.0, FEWEST_ROUNDS),  # 7, of which the last would reach no look
        (2 * 77.0, FEWEST_ROUNDS),  # 5, and the one without which they bound nothing
        (2 * 40.0, FEWEST_ROUNDS),  # 3, and as much again
        (2 * 38.0, 2),  # not even twice its share would do: the rest is the other's
    ],
)
def test_workloads_share_what_is_left_of_the_budget(stage, budget_s, rounds):
    stage.sampling = Sampling(turns_min=3, turns_max=3)
    stage.budget_s = budget_s
    stage.later = (weak_scaling(OTHER, 2),)
    outcome = stage.measure(WEAK)[WEAK]
    assert len(stage.script.launched) == rounds
    passed = outcome.judgement.verdict is Verdict.PASS
    assert passed == (rounds >= FEWEST_ROUNDS)


def test_the_last_workload_takes_what_is_left_though_no_look_is_in_reach(stage):
    stage.sampling = Sampling(turns_min=3, turns_max=3)
    stage.budget_s = 103.0
    stage.measure(WEAK)
    assert len(stage.script.launched) == 7


def test_between_looks_a_workload_takes_the_rest_of_its_share(stage):
    stage.sampling = Sampling(turns_min=3, turns_max=3)
    stage.script.speed = noisy(0.9, 0.05)
    stage.budget_s = 2 * 10 * 13.5
    stage.later = (weak_scaling(OTHER, 2),)
    stage.measure(WEAK)
    assert len(stage.script.launched) == 10


def test_a_workload_that_starts_more_processes_gets_more_of_the_budget(stage):
    stage.sampling = Sampling(turns_min=3, turns_max=3)
    stage.budget_s = 84.0
    stage.later = (parity(OTHER, 2), weak_scaling(OTHER, 2))  # 4 processes to our 3
    stage.measure(WEAK)
    assert len(stage.script.launched) == 2


def test_a_training_run_gets_more_of_the_budget_than_a_start(stage):
    stage.sampling = Sampling(turns_min=3, turns_max=3)
    stage.budget_s = 120.0
    stage.later = (fixed_time(OTHER, 2),)  # 3 processes and two runs, 9 starts to our 3
    stage.measure(WEAK)
    assert len(stage.script.launched) == 2


def test_what_is_only_shown_takes_nothing_of_the_budget(stage):
    stage.sampling = Sampling(turns_min=3, turns_max=3)
    stage.cores = 1
    stage.budget_s = 120.0
    stage.oversubscribed = (WORKLOAD.model,)
    stage.later = (communication(OTHER, 2), communication(OTHER, 1))
    stage.measure(COMMUNICATION)  # 2 processes to the other's 1
    assert len(stage.script.launched) == 6


def test_a_first_round_that_also_has_what_is_only_shown_tells_how_long_others_are(stage):
    stage.slots = 4  # on two cores
    script = stage.script
    script.round_seconds, script.turn_seconds, script.start_seconds = 0.0, 0.0, 5.0
    stage.budget_s = 120.0
    stage.later = (weak_scaling(OTHER, 2),)
    shown = weak_scaling(WORKLOAD, 4)
    assert verdicts(stage.measure(WEAK, shown)) == {WEAK: Verdict.PASS, shown: Verdict.NOT_JUDGED}
    # 7 processes, then 3: as long as the first, six would not end in twice the share.
    assert len(script.launched) == FEWEST_ROUNDS
    assert "round 2 of 8, about 105 s to the next look" in stage.said[1]


@pytest.mark.parametrize(
    ("budget_s", "expected"),
    [
        # The first round takes turns_min, the others what is left: 7 rounds of 10 s and turns.
        (13 + 7 * (10 + 6), [3, 6, 6, 6, 6, 6, 6, 6]),
        (13 + 7 * (10 + 5), [3, 5, 5, 5, 5, 5, 5, 5]),
        (13 + 7 * (10 + 3), [3, 3, 3, 3, 3, 3, 3, 3]),
        (ENOUGH, [3, 6, 6, 6, 6, 6, 6, 6]),
    ],
)
def test_a_launch_takes_as_many_turns_as_the_budget_allows(stage, budget_s, expected):
    stage.budget_s = budget_s
    assert stage.measure(WEAK)[WEAK].judgement.verdict is Verdict.PASS
    assert stage.script.turns == expected


def test_the_fewest_turns_are_kept_where_the_budget_is_short(stage):
    stage.budget_s = 40.0
    stage.measure(WEAK)
    assert stage.script.turns == [3, 3, 3]


def test_progress_names_round_and_next_look(stage):
    stage.measure(WEAK)
    assert stage.said[0] == "resnet_50_s  round 1 of 8: start"
    assert stage.said[1].startswith("resnet_50_s  round 2 of 8, about 91 s to the next look")


def test_whoever_wants_to_know_more_is_told_what_passes_between_two_lines(stage):
    stage.budget_s = 1000.0
    began = stage.script.clock
    stage.measure(WEAK)
    assert len(stage.noted) == 2 * len(stage.said), "every line, too"
    first, turn, *_ = stage.noted
    assert (first.where, first.what) == ("resnet_50_s  round 1 of 8", "start")
    assert turn.what == "turn 1 of 3"
    assert first.next_look is None
    assert first.budget_ends == began + 1000.0
    second = stage.noted[2]
    assert second.where == "resnet_50_s  round 2 of 8"
    # The first round took 13 s, and seven more are to come; none of the clock passes in a round.
    assert second.next_look == pytest.approx(began + 8 * 13.0)


# Failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arm", "hurt"),
    [
        (MIRRORED_2, {PARITY}),
        (HOROVOD_1, {WEAK, STRONG}),
        (HOROVOD_2, set(ALL)),
    ],
)
@pytest.mark.parametrize("number", [0, 2])
def test_a_launch_that_fails_fails_what_needs_it_and_nothing_else(stage, arm, hurt, number):
    stage.script.failing[arm] = number
    outcomes = stage.measure(*ALL)
    for comparison, outcome in outcomes.items():
        if comparison in hurt:
            assert outcome.judgement.verdict is Verdict.FAIL
            assert outcome.failure is not None
            assert outcome.failure.rank == 1
            assert "rank 1 failed in phase 'block': it broke" in outcome.judgement.reason
        else:
            assert outcome.judgement.verdict is Verdict.PASS
            assert outcome.failure is None


def test_what_could_not_be_started_is_not_run_and_no_fault_of_the_stack(stage):
    stage.script.failing[MIRRORED_2] = 2
    stage.script.failure = NotStarted
    outcomes = stage.measure(*ALL)
    assert verdicts(outcomes) == {**dict.fromkeys(ALL, Verdict.PASS), PARITY: Verdict.NOT_RUN}
    assert outcomes[PARITY].judgement.reason.endswith("mirrored@2: not started: it broke")


def test_other_arms_of_what_has_failed_are_not_launched_again(stage):
    stage.script.failing[MIRRORED_2] = 1
    stage.measure(WEAK, PARITY)
    assert all(MIRRORED_2 not in arms for arms in stage.script.launched[2:])
    stage.script.launched.clear()
    stage.measure(PARITY)
    assert len(stage.script.launched) == 2


def test_rounds_of_a_case_are_those_with_all_of_its_arms(stage):
    outcome = stage.measure(*ALL)[PARITY]
    assert [measured.number for measured in outcome.rounds] == list(range(FIRST_LOOK))
    assert all(set(PARITY.arms) <= set(measured.launches) for measured in outcome.rounds)
    assert len(outcome.observations) == FIRST_LOOK


def test_timed_seconds_are_those_of_all_blocks(stage):
    outcome = stage.measure(WEAK)[WEAK]
    blocks = itertools.chain.from_iterable(
        launched.blocks for measured in outcome.rounds for launched in measured.launches.values()
    )
    assert stage.session.timed_seconds == pytest.approx(sum(block.seconds for block in blocks))
