"""Sessions whose rounds are made up: when a case is decided, and which arms are launched for it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from statistics import variance

import numpy as np
import pytest

from bench.sessions import LOOKS, MOST_TURNS, Case, Session
from hvdperf.machine.disturbance import Culprit, Usage
from hvdperf.machine.noise_record import Load
from hvdperf.plan.arms import BlockKind, Side
from hvdperf.plan.profile import Sampling
from hvdperf.plan.questions import against, parity, sweep, weak_scaling
from hvdperf.session.scheduler import starts_of
from hvdperf.verdict import Band, Noise, Verdict, longer_side
from hvdperf.work.blocks import turns_of
from hvdperf.work.collectives import SWEEP_TURNS, Collectives
from hvdperf.worker.strategies import Strategy
from tests.support.rounds import HOROVOD_1, HOROVOD_2, MIRRORED_2, WORKLOAD, disturbance, usage
from tests.support.sessions import (
    ALL,
    CEILINGS,
    ENOUGH,
    FIRST_LOOK,
    GRADIENTS_OF,
    LAST_LOOK,
    OTHER,
    PARITY,
    SECOND_LOOK,
    STRONG,
    WEAK,
    exchanged,
    level,
    noisy,
    restless,
    verdicts,
)


def interrupted(stage, budget_s, *asked):
    """Measure until the budget ends, and return the outcomes with which a later part goes on."""
    stage.budget_s = budget_s
    first = stage.measure(*asked)
    stage.earlier, stage.budget_s = tuple(first.values()), ENOUGH
    stage.script.launched.clear()
    return first


# Looks -----------------------------------------------------------------------------------------


def test_what_is_clear_passes_at_the_first_look(stage):
    outcomes = stage.measure(*ALL)
    assert verdicts(outcomes) == dict.fromkeys(ALL, Verdict.PASS)
    assert all(outcome.judgement.rounds == FIRST_LOOK for outcome in outcomes.values())
    assert [len(arms) for arms in stage.script.launched] == [3] * FIRST_LOOK, "each arm once"
    for asked, outcome in outcomes.items():
        assert [measured.number for measured in outcome.rounds] == list(range(FIRST_LOOK))
        assert all(measured.has(arm) for measured in outcome.rounds for arm in asked.arms)
    assert all(outcome.passed for outcome in outcomes.values())
    rounds = outcomes[WEAK].rounds
    launches = itertools.chain.from_iterable(measured.launches for measured in rounds)
    seconds = sum(block.seconds for launched in launches for block in launched.blocks)
    assert stage.session.timed_seconds == pytest.approx(seconds)


def test_what_is_too_close_to_call_is_looked_at_again_and_then_left_open(stage):
    stage.script.speed = noisy(0.9, 0.05)
    outcome = stage.measure(WEAK)[WEAK]
    assert outcome.judgement.verdict is Verdict.INCONCLUSIVE
    assert outcome.judgement.rounds == len(stage.script.launched) == LAST_LOOK
    handed_on = [each.judgement.rounds for each in stage.opened]
    assert handed_on == list(range(1, LAST_LOOK)), "after every round"
    found = stage.session.launch_variances()
    assert found == {Load.SEVERAL: pytest.approx(variance(outcome.observations))}


def test_a_second_look_decides_what_the_first_could_not(stage):
    # One of the first rounds is far below, which alone holds the lower bound down.
    def speed(side: Side, number: int) -> float:
        slow = side.arm == HOROVOD_2 and number == 2
        return level(side, number) * (0.5 if slow else 1.0)

    stage.script.speed = speed
    outcome = stage.measure(WEAK)[WEAK]
    assert outcome.judgement.verdict is Verdict.PASS
    assert outcome.judgement.rounds == SECOND_LOOK


@pytest.mark.parametrize(
    ("variances", "rounds", "launch_sd"),
    [((0.0, 1e-4, -1e-4, 2e-4), 3, 0.02), ((0.0, 0.0, 0.0), 4, 0.05)],
    ids=["known to be quiet", "little known"],
)
def test_what_is_clear_passes_early_the_more_so_the_more_is_known_of_this_machine(
    stage, variances, rounds, launch_sd
):
    stage.sampling, stage.launch_variances = Sampling(), variances
    judgement = stage.measure(WEAK)[WEAK].judgement
    assert (judgement.verdict, judgement.rounds) == (Verdict.PASS, rounds)
    assert judgement.early.launch_sd == launch_sd
    told = "4 earlier sessions of this machine" in judgement.early.source
    assert told == (len(variances) == 4)


def test_nothing_fails_before_a_full_look(stage):
    stage.sampling = Sampling()
    stage.script.speed = noisy(0.5, 0.01)
    assert stage.measure(WEAK)[WEAK].judgement.rounds == FIRST_LOOK
    stage.budget_s = 7 * 14.0
    outcome = stage.measure(WEAK)[WEAK]
    assert (outcome.judgement.verdict, outcome.judgement.rounds) == (Verdict.INCONCLUSIVE, 7)
    assert outcome.judgement.reason.startswith("only 7 rounds: a FAIL needs 8")


def test_an_undecided_case_goes_on_from_the_rounds_of_an_earlier_part(stage):
    stage.script.speed = noisy(0.9, 0.05)
    first = interrupted(stage, 9 * 13.5, WEAK, PARITY)
    assert [o.judgement.rounds for o in first.values()] == [9, 9]
    outcome = stage.measure(WEAK, PARITY)[WEAK]
    assert len(stage.script.launched) == LAST_LOOK - 9
    assert [measured.number for measured in outcome.rounds] == list(range(LAST_LOOK))
    assert outcome.observations[:9] == first[WEAK].observations


def test_what_the_last_look_left_open_goes_on_to_a_look_at_twice_as_many_rounds(stage):
    stage.script.speed = noisy(0.9, 0.05)
    stage.earlier = tuple(stage.measure(WEAK).values())
    for rounds in (2 * LAST_LOOK, 4 * LAST_LOOK):
        outcome = stage.measure(WEAK)[WEAK]
        assert outcome.judgement.verdict is Verdict.INCONCLUSIVE
        assert outcome.judgement.rounds == rounds
        stage.earlier = (outcome,)


def test_a_later_part_may_ask_what_the_rounds_of_an_earlier_one_do_not_hold(stage):
    stage.script.speed = noisy(0.9, 0.05)
    interrupted(stage, 5 * 13.5, WEAK)
    outcomes = stage.measure(WEAK, STRONG)
    assert outcomes[WEAK].judgement.rounds == LAST_LOOK
    shared = outcomes[STRONG]
    assert shared.judgement.rounds == LAST_LOOK
    assert min(measured.number for measured in shared.rounds) == 5


def test_sweeps_go_on_side_by_side_although_each_document_has_its_own_operations(stage):
    stage.lines, asked = CEILINGS, sweep(WORKLOAD, 2)[:2]

    def spoil(launched):
        halves = []
        for each in asked:
            exchanged(each, 1.2)(launched)
            halves.append(launched.series)
        turns_of(launched).series = [series for half in halves for series in half]

    stage.script.spoil = spoil
    first = interrupted(stage, 5 * 13.5, *asked)
    assert {o.judgement.verdict for o in first.values()} == {Verdict.INCONCLUSIVE}
    outcomes = stage.measure(*asked)
    assert verdicts(outcomes) == dict.fromkeys(asked, Verdict.PASS)
    assert {o.judgement.rounds for o in outcomes.values()} == {FIRST_LOOK}


def test_a_later_part_gives_no_round_the_number_of_another(stage):
    """A case that was decided has more rounds than the one that goes on."""
    stage.script.speed = noisy(0.9, 0.05)
    first = interrupted(stage, 9 * 13.5, WEAK, PARITY)
    of_three = replace(first[PARITY], rounds=first[PARITY].rounds[:3])
    stage.earlier, stage.decided_earlier = (of_three,), (first[WEAK],)
    outcome = stage.measure(PARITY)[PARITY]
    assert [measured.number for measured in outcome.rounds][:5] == [0, 1, 2, 9, 10]


def test_a_case_that_gets_no_round_in_a_later_part_keeps_what_it_had(stage):
    stage.script.speed = noisy(0.9, 0.05)
    first = interrupted(stage, 9 * 13.5, PARITY)
    stage.budget_s = -1.0
    assert stage.measure(PARITY) == first


@pytest.mark.parametrize("looks", LOOKS.values())
@pytest.mark.parametrize("seed", range(10))
def test_a_session_ends_as_the_simulation_of_error_rates_has_it(stage, seed, looks):
    noise = np.random.default_rng(seed).normal(np.log(0.93), 0.06, looks[-1])

    def speed(side: Side, number: int) -> float:
        return level(side, number) * (np.exp(noise[number]) if side.arm == HOROVOD_2 else 1.0)

    stage.script.speed = speed
    stage.sampling = Sampling(looks=looks)
    found = stage.measure(PARITY)[PARITY]
    expected = simulated(noise, looks)
    assert (found.judgement.verdict, found.judgement.rounds) == (expected.verdict, expected.rounds)
    assert found.observations == pytest.approx(noise[: expected.rounds])


def simulated(noise, looks):
    """How a session ends in whose rounds all turns are alike."""
    case = Case(PARITY, Band(0.9, 1.1))
    turns = np.repeat(noise[:, None], MOST_TURNS, axis=1)
    session = Session({case: turns}, looks, {case.load: Noise()})
    session.run()
    return session.judged[case]


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


def test_a_sweep_takes_few_turns_for_they_are_long(stage):
    stage.lines = CEILINGS
    stage.sampling = Sampling(turns_min=8)
    asked = sweep(WORKLOAD, 2)[0]
    stage.script.spoil = exchanged(asked, 1.2)
    # Rounds of 10 s and three turns of 1 s.
    stage.budget_s = FIRST_LOOK * 13.0
    assert verdicts(stage.measure(asked)) == {asked: Verdict.PASS}
    assert stage.script.turns == [SWEEP_TURNS] * FIRST_LOOK
    assert Collectives.sampling([GRADIENTS_OF], stage.sampling) == stage.sampling
    assert Collectives.sampling([asked], Sampling(turns_min=1, turns_max=2)).turns_min == 1


def test_what_is_only_shown_is_launched_once_after_all_that_is_judged(stage):
    stage.slots = 4  # on two cores
    shown = weak_scaling(WORKLOAD, 4)
    stage.later = (weak_scaling(OTHER, 2),)
    found = stage.measure(shown, WEAK)
    assert verdicts(found) == {WEAK: Verdict.PASS, shown: Verdict.INFO}
    *judged, last = stage.script.launched
    assert set(last) == set(shown.arms)
    assert not any(set(shown.arms) <= set(arms) for arms in judged)
    assert stage.script.turns[-1] == 2


def test_what_is_only_shown_is_left_out_where_the_budget_ends(stage):
    stage.slots = 4
    stage.script.speed = noisy(0.9, 0.05)
    stage.budget_s = 100.0
    shown = weak_scaling(WORKLOAD, 4)
    outcome = stage.measure(WEAK, shown)[shown]
    assert outcome.judgement.verdict is Verdict.INFO
    assert outcome.rounds == ()
    assert not any(set(shown.arms) <= set(arms) for arms in stage.script.launched)


# Precision --------------------------------------------------------------------------------------


def test_rounds_go_on_until_every_interval_is_as_short_as_asked(stage):
    stage.slots = 4  # on two cores, so that this one is only shown
    shown = weak_scaling(WORKLOAD, 4)
    stage.sampling = replace(stage.sampling, precision=0.02)
    stage.script.speed = noisy(0.95, 0.03)
    outcomes = stage.measure(WEAK, shown)
    assert verdicts(outcomes) == {WEAK: Verdict.PASS, shown: Verdict.INFO}
    for outcome in outcomes.values():
        assert longer_side(outcome.judgement.figure) <= 0.02
        assert not outcome.needs_rounds(0.02)
    assert outcomes[WEAK].needs_rounds(0.001)
    assert outcomes[WEAK].judgement.rounds > FIRST_LOOK


def test_the_figure_that_is_precise_first_comes_first(stage):
    hopeless, long = PARITY, weak_scaling(OTHER, 2)
    stage.sampling, stage.later = replace(stage.sampling, precision=0.02), (long,)

    def speed(side: Side, number: int) -> float:
        spread = 0.4 if side.arm.strategy is Strategy.MIRRORED else 0.04
        spread = 0.06 if side.arm.workload == OTHER else spread
        noise = 1 + spread * (number % 7 - 3) / 3
        return level(side, number) * (noise if side.arm.world_size == 2 else 1.0)

    stage.script.speed = speed
    stage.budget_s = 2 * FIRST_LOOK * 15.0 + 120.0
    outcomes = stage.measure(WEAK, hopeless, long)
    assert not outcomes[WEAK].needs_rounds(0.02)
    assert outcomes[hopeless].needs_rounds(0.02)
    assert outcomes[WEAK].judgement.rounds > FIRST_LOOK


# Budget ----------------------------------------------------------------------------------------


def rounds_of(stage, workload):
    """How many rounds that workload had."""
    return sum(arms[0].workload == workload for arms in stage.script.launched)


@pytest.mark.parametrize(("budget_s", "rounds"), [(60.0, 4), (1.0, 1)])
def test_no_round_but_the_first_begins_that_would_end_past_the_budget(stage, budget_s, rounds):
    # A round takes 10 s and three turns of 1 s.
    stage.budget_s = budget_s
    judgement = stage.measure(WEAK)[WEAK].judgement
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.rounds == len(stage.script.launched) == rounds
    assert f"only {rounds} round" in judgement.reason


def test_every_workload_has_three_rounds_before_one_has_more(stage):
    stage.later = (weak_scaling(OTHER, 2),)
    stage.measure(WEAK)
    order = [arms[0].workload for arms in stage.script.launched]
    assert order[:6] == [WORKLOAD] * 3 + [OTHER] * 3


def test_time_goes_to_what_is_undecided(stage):
    slow = parity(OTHER, 2)
    stage.later = (slow,)

    def speed(side: Side, number: int) -> float:
        factor = (1.3, 1.0, 0.75)[number % 3] if side.arm.workload == OTHER else 1.0
        return level(side, number) * (factor if side.arm.strategy is Strategy.MIRRORED else 1.0)

    stage.script.speed = speed
    stage.sampling, stage.launch_variances = Sampling(), (1e-4,) * 4
    assert stage.measure(WEAK, slow)[slow].judgement.rounds == LAST_LOOK
    assert rounds_of(stage, WORKLOAD) == 3


def test_the_nearest_look_comes_first_and_one_out_of_reach_waits(stage):
    # Our rounds take 3 starts of 5 s, the other's 4; three turns take 3 s.
    script = stage.script
    script.round_seconds, script.start_seconds = 0.0, 5.0
    script.speed = noisy(0.9, 0.05)
    other = parity(OTHER, 2)
    stage.later = (other, weak_scaling(OTHER, 2))
    # Three rounds each, then the five to our look, which the other's five would not fit beside.
    stage.budget_s = 3 * 18.0 + 3 * 23.0 + 5 * 18.0 + 20.0
    stage.measure(WEAK)
    assert rounds_of(stage, WORKLOAD) == FIRST_LOOK + 1
    assert rounds_of(stage, OTHER) == 3


def test_first_rounds_take_the_fewest_turns_and_later_ones_what_they_are_worth(stage):
    stage.sampling, stage.script.spoil = Sampling(early=False), restless
    stage.measure(WEAK)
    first, later = stage.script.turns[:3], stage.script.turns[3:]
    assert first == [4, 4, 4]
    # Turns that differ by 10 % are worth more than launches that differ by 5 %.
    assert set(later) == {7}


def test_what_is_failing_is_decided_before_what_is_on_its_limit(stage):
    stage.sampling = Sampling()

    def speed(side: Side, number: int) -> float:
        failing = side.arm.workload == OTHER and side.arm.world_size == 2
        return noisy(0.9, 0.05)(side, number) * (0.5 if failing else 1.0)

    stage.script.speed = speed
    stage.later = (weak_scaling(OTHER, 2),)
    stage.measure(WEAK)
    sixth_on = [arms[0].workload for arms in stage.script.launched[6:]]
    assert sixth_on[:5] == [OTHER] * 5
    assert set(sixth_on[5:]) == {WORKLOAD}


def test_blocks_that_only_decided_cases_need_are_taken_no_more(stage):
    stage.sampling = Sampling()

    def speed(side: Side, number: int) -> float:
        return noisy(0.7, 0.01)(side, number) * (1.4 if side.kind is BlockKind.SPLIT else 1.0)

    stage.script.speed = speed
    outcomes = stage.measure(WEAK, STRONG)
    decided = outcomes[STRONG].judgement.rounds
    launches = [measured.of(HOROVOD_2) for measured in outcomes[WEAK].rounds]
    taken = [bool(launched.of_kind(BlockKind.SPLIT)) for launched in launches]
    assert decided < FIRST_LOOK
    assert taken == [number < decided for number in range(FIRST_LOOK)]


@pytest.mark.parametrize(
    ("asked", "turns"),
    # Of two stacks, the turns also explain the FAIL.
    [(WEAK, [4] * 3 + [2] * 5), (against(WEAK), [4] * 8)],
    ids=["threshold", "two stacks"],
)
def test_what_is_about_to_fail_takes_few_turns(stage, asked, turns):
    stage.sampling = Sampling()
    stage.script.spoil, stage.script.speed = restless, noisy(0.5, 0.01)
    assert verdicts(stage.measure(asked)) == {asked: Verdict.FAIL}
    assert stage.script.turns == turns


def disturbing(taken: Usage, only: int | None = None):
    """Return what lets other programs disturb the blocks of all rounds, or of only one."""

    def disturb(launched):
        if only in (None, launched.round):
            turns_of(launched).blocks = [replace(block, usage=taken) for block in launched.blocks]

    return disturb


def test_a_session_that_others_disturb_ends_after_three_rounds_of_every_workload(stage):
    stage.script.spoil = disturbing(usage(0.5))
    stage.later = (weak_scaling(OTHER, 2),)
    outcome = stage.measure(WEAK)[WEAK]
    assert len(stage.script.launched) == 6
    assert outcome.judgement.verdict is Verdict.INCONCLUSIVE
    assert (outcome.observations, outcome.judgement.rounds) == ((), 0)
    assert outcome.judgement.figure.estimate == pytest.approx(1.0), "it is shown all the same"
    assert stage.session.launch_variances() == {}


def test_a_session_that_others_disturbed_can_be_resumed_once_they_have_gone(stage):
    stage.script.spoil = disturbing(usage(0.4))
    stage.earlier = tuple(stage.measure(WEAK).values())
    stage.script.spoil = lambda launched: None
    outcome = stage.measure(WEAK)[WEAK]
    assert (outcome.judgement.verdict, outcome.judgement.rounds) == (Verdict.PASS, FIRST_LOOK)
    assert len(outcome.rounds) == 3 + FIRST_LOOK


def test_a_round_that_does_not_count_is_taken_again_before_the_last_look(stage):
    stage.script.spoil, stage.script.speed = disturbing(usage(0.4), 1), noisy(0.5, 0.01)
    stage.sampling = replace(stage.sampling, looks=(8,))
    outcome = stage.measure(WEAK)[WEAK]
    assert (outcome.judgement.verdict, outcome.judgement.rounds) == (Verdict.FAIL, 8)
    assert len(outcome.rounds) == 9


def test_rounds_that_do_not_count_are_told_beside_too_few_that_do(stage):
    make = Culprit("make", 77, 8.0, (0, 1))
    stage.script.spoil = disturbing(usage(0.4), 1)
    stage.script.disturbances = {1: disturbance(0.4, 60.0, make)}
    stage.budget_s = 3 * 14.0
    outcome = stage.measure(WEAK)[WEAK]
    assert outcome.judgement.rounds == 2
    assert "; 1 of 3 rounds do not count: other programs took 40 %" in outcome.judgement.reason
    assert "make, pid 77" in outcome.judgement.reason


def test_lines_and_what_passes_between_two_say_how_long_it_will_be(stage):
    stage.measure(WEAK)
    assert stage.said[0] == "resnet_50_s  round 1 of 8: start"
    assert stage.noted[0] == "resnet_50_s  round 1 of 8: turn 1 of 3"
    # The first round took 13 s.
    until = "resnet_50_s  round 2 of 8, about 91 s to the next look: "
    assert (stage.said[1], stage.noted[1]) == (f"{until}start", f"{until}turn 1 of 3")


# Failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arm", "hurt"), [(MIRRORED_2, {PARITY}), (HOROVOD_1, {WEAK, STRONG}), (HOROVOD_2, set(ALL))]
)
@pytest.mark.parametrize("number", [0, 2])
def test_a_launch_that_fails_fails_what_needs_it_and_nothing_else(stage, arm, hurt, number):
    stage.script.failing[arm] = number
    outcomes = stage.measure(*ALL)
    assert all(arm not in arms for arms in stage.script.launched[number + 1 :])
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
    stage.script.started = False
    outcomes = stage.measure(*ALL)
    assert verdicts(outcomes) == {**dict.fromkeys(ALL, Verdict.PASS), PARITY: Verdict.NOT_RUN}
    assert outcomes[PARITY].judgement.reason.endswith("mirrored@2: not started: it broke")


def test_a_round_of_blocks_takes_as_many_starts_as_its_arms_have_processes():
    assert starts_of([weak_scaling(WORKLOAD, 2)]) == 2 + 1
    assert starts_of([weak_scaling(WORKLOAD, 2), parity(WORKLOAD, 2)]) == 2 + 1 + 1
