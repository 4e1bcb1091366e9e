"""Sessions whose rounds are made up: what is said of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hvdperf.explain.speedup import FIXED, TOO_SHORT
from hvdperf.judge.judge import Judge, Rules
from hvdperf.judge.trust import doubted
from hvdperf.machine.placement import Offer, place
from hvdperf.plan.arms import Schedule, Workload
from hvdperf.plan.comparisons import Comparison, Question
from hvdperf.plan.profile import Profile, Sampling
from hvdperf.plan.questions import (
    aa,
    against,
    communication,
    fixed_epochs,
    memory,
    startup,
    strong_scaling,
    sweep,
    throughput,
    wall_time,
    weak_scaling,
)
from hvdperf.plan.thresholds import Line, Thresholds
from hvdperf.records.outcome import Outcome
from hvdperf.records.rounds import BlockReport, Launch, Round, Run
from hvdperf.verdict import Band, Ceiling, Floor, SpeedFloor, Verdict
from hvdperf.work.blocks import turns_of
from tests.support.rounds import (
    HOROVOD_1,
    HOROVOD_2,
    MIRRORED_2,
    WORKLOAD,
    change_reports,
    exchanging_round,
    one_round,
    run_report,
    usage,
)
from tests.support.sessions import (
    ALL,
    BOUND,
    CEILINGS,
    COMMUNICATION,
    FAULT_CASES,
    FIRST_LOOK,
    GRADIENTS_OF,
    LAST_LOOK,
    LINES,
    OTHER,
    PARITY,
    STRONG,
    WEAK,
    exchanged,
    noisy,
    restless,
    struck,
    verdicts,
)
from tests.support.with_timestamps import round_with_timestamps, with_timestamps

# What is judged -------------------------------------------------------------------------------


def test_replicas_that_share_a_core_are_judged_by_communication_alone(stage):
    stage.cores = 1
    outcomes = stage.measure(*ALL)
    assert verdicts(outcomes) == {
        WEAK: Verdict.INFO,
        STRONG: Verdict.INFO,
        COMMUNICATION: Verdict.PASS,
        PARITY: Verdict.INFO,
    }
    assert outcomes[WEAK].judgement.figure is not None
    assert outcomes[WEAK].judgement.rounds == 1
    assert outcomes[STRONG].judgement.figure is None
    *judged, shown = stage.script.launched
    assert judged == [[HOROVOD_2]] * FIRST_LOOK
    assert set(shown) == {HOROVOD_1, HOROVOD_2, MIRRORED_2}
    assert stage.script.turns[-1] == 2


def test_a_profile_may_name_whose_communication_is_judged_where_replicas_share_a_core(stage):
    stage.oversubscribed = (OTHER.model,)
    assert verdicts(stage.measure(COMMUNICATION)) == {COMMUNICATION: Verdict.PASS}
    stage.cores = 1
    shown = stage.measure(COMMUNICATION)[COMMUNICATION]
    assert shown.judgement.verdict is Verdict.INFO
    assert shown.judgement.figure is not None
    other = communication(OTHER, 2)
    assert verdicts(stage.measure(other)) == {other: Verdict.PASS}


def test_communication_under_two_stacks_is_not_judged_where_replicas_share_a_core(stage):
    asked = against(COMMUNICATION)
    assert verdicts(stage.measure(asked)) == {asked: Verdict.PASS}
    stage.cores = 1
    assert verdicts(stage.measure(asked)) == {asked: Verdict.INFO}


def test_a_start_up_is_judged_from_launches_of_its_own(stage):
    stage.lines = (Line(("startup_*", "*", "*", "*"), Ceiling(2.0)),)
    outcomes = stage.measure(*startup(WORKLOAD, 2))
    # Those of tests/support/rounds.py: a trace of 2.5 s and 54 tensors, a first step of 1.1 s.
    of_parts = {o.comparison.question.spec.part: o.judgement for o in outcomes.values()}
    assert {judgement.verdict for judgement in of_parts.values()} == {Verdict.PASS}
    assert of_parts["trace"].figure.estimate == pytest.approx(2.5 / 54)
    assert stage.script.schedules == {Schedule.FRESH}
    assert stage.script.launched == [[HOROVOD_2]] * FIRST_LOOK
    stage.lines = (Line(("startup_*", "*", "*", "*"), Ceiling(1.0)),)
    words = {
        c.question.spec.part: v for c, v in verdicts(stage.measure(*startup(WORKLOAD, 2))).items()
    }
    assert words["first step"] is Verdict.FAIL
    assert words["init"] is Verdict.PASS


def trained(loss: Callable[[Launch], float], growth: float = 0.0) -> Callable[[Launch], None]:
    """Gives every launch a run that ends with such a validation loss."""

    def train(launched: Launch) -> None:
        arm = launched.arm
        report = run_report(samples=100 * arm.workload.batch, loss=loss(launched), growth=growth)
        launched.work = Run([report] * arm.processes)

    return train


def test_trainings_that_end_alike_are_equivalent_and_a_worse_one_fails(stage):
    stage.lines = (Line(("convergence_*", "*", "*", "*"), Band(0.9, 1.1)),)
    asked = [c for c in fixed_epochs(WORKLOAD, 2) if c.variant == "loss-single"]
    stage.script.spoil = trained(lambda launched: 1.3 if launched.arm.world_size == 2 else 1.0)
    assert set(verdicts(stage.measure(*asked)).values()) == {Verdict.FAIL}
    stage.script.spoil = trained(lambda launched: 1.0 + 0.01 * launched.round)
    (outcome,) = stage.measure(*asked).values()
    assert outcome.judgement.verdict is Verdict.PASS
    assert outcome.judgement.figure.alpha == 0.05
    assert stage.script.schedules == {Schedule.FRESH}


def test_a_rank_that_grows_fails(stage):
    stage.lines = (Line(("memory", "*", "*", "*"), Ceiling(1.02, unit="")),)
    stage.cores = 1  # it is no speed, so it is judged where replicas share a core, too
    asked = memory(WORKLOAD, 2)
    stage.script.spoil = trained(lambda launched: 1.0, growth=5e4)
    failed = stage.measure(asked)[asked]
    assert failed.judgement.verdict is Verdict.FAIL
    assert (failed.cause.term, failed.cause.at_fault) == ("memory", ())
    stage.script.spoil = trained(lambda launched: 1.0)
    assert verdicts(stage.measure(asked)) == {asked: Verdict.PASS}


# Collective operations ------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [sweep(WORKLOAD, 2)[2], GRADIENTS_OF, BOUND], ids=str)
@pytest.mark.parametrize(("ratio", "verdict"), [(1.2, Verdict.PASS), (8.0, Verdict.FAIL)])
def test_time_through_horovod_is_held_against_a_ceiling(stage, asked, ratio, verdict):
    stage.lines = CEILINGS
    stage.script.spoil = exchanged(asked, ratio)
    (outcome,) = stage.measure(asked).values()
    assert outcome.judgement.verdict is verdict
    assert outcome.judgement.figure.estimate == pytest.approx(ratio)
    assert stage.script.schedules == {Schedule.ALTERNATE}


def test_wrong_numbers_are_invalid_at_once(stage):
    stage.lines = CEILINGS
    stage.script.spoil = exchanged(GRADIENTS_OF, 1.2, problem="number 0 is 3 instead of 2")
    (outcome,) = stage.measure(GRADIENTS_OF).values()
    assert outcome.judgement.verdict is Verdict.INVALID
    assert "number 0 is 3 instead of 2" in outcome.judgement.reason
    assert len(stage.script.launched) == 1


def test_on_gpus_host_memory_is_no_transport_to_judge_by(stage):
    stage.lines, stage.gpus = CEILINGS, ("GPU-0", "GPU-1")
    stage.script.spoil = exchanged(GRADIENTS_OF, 3.0)
    (outcome,) = stage.measure(GRADIENTS_OF).values()
    assert outcome.judgement.verdict is Verdict.INFO
    assert outcome.judgement.reason.endswith("bare MPI exchanges host memory")
    assert outcome.judgement.figure.estimate == pytest.approx(3.0)


def test_a_step_that_exchanges_more_than_gradients_is_compared_with_no_step_without(stage):
    def normalised(launched: Launch) -> None:
        launched.metadata = [replace(rank, other_exchanges=4) for rank in launched.metadata]

    stage.script.spoil = normalised
    stacks = against(COMMUNICATION)
    outcomes = stage.measure(COMMUNICATION, WEAK, stacks)
    assert verdicts(outcomes) == {
        COMMUNICATION: Verdict.INFO,
        WEAK: Verdict.PASS,
        stacks: Verdict.PASS,
    }


# Against another stack ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [(1.0, Verdict.PASS), (0.93, Verdict.FAIL), (0.958, Verdict.INCONCLUSIVE)],
)
def test_another_stack_is_held_against_margins_that_need_no_threshold(stage, ratio, verdict):
    asked = against(WEAK)
    assert asked is not None
    stage.script.speed = noisy(ratio, 0.04)
    stage.sampling = Sampling(looks=(8,), early=False)
    stage.lines = ()
    outcome = stage.measure(asked)[asked]
    assert outcome.judgement.verdict is verdict
    assert outcome.judgement.rule == Floor(fail_below=0.98, pass_from=0.95)
    assert outcome.judgement.figure.estimate == pytest.approx(ratio, rel=0.01)


def between_steps(rank: int, report: BlockReport) -> BlockReport:
    """A tenth of the steps of rank 1 passes between them."""
    if rank != 1:
        return report
    return replace(report, inside_seconds=0.9 * report.inside_seconds)


def between_steps_of_rank_1(launched: Launch) -> None:
    """A tenth of its step, under the session's own stack."""
    if not launched.arm.stack:
        change_reports(launched, between_steps)


def nowhere(launched: Launch) -> None:
    """Blocks last longer, and the steps in them do not."""
    if launched.arm.stack:
        return
    change_reports(
        launched,
        lambda rank, own: replace(
            own,
            step_seconds=[0.9 * seconds for seconds in own.step_seconds],
            inside_seconds=0.9 * own.inside_seconds,
        ),
    )


def startup_trace(workload: Workload, n: int) -> Comparison:
    (asked,) = [c for c in startup(workload, n) if c.question is Question.STARTUP_TRACE]
    return asked


def longer_trace(launched: Launch) -> None:
    if not launched.arm.stack:
        launched.startup_seconds = [
            {**rank, "trace": 1.2 * rank["trace"]} for rank in launched.startup_seconds
        ]


@pytest.mark.parametrize(
    ("ask", "spoil", "said"),
    [
        (weak_scaling, nowhere, "not attributed"),
        (weak_scaling, None, "attributed to compute or communication of all ranks (+10 %)"),
        (weak_scaling, between_steps_of_rank_1, "attributed to between steps of rank 1 (+10 %)"),
        # Its blocks divide a batch: of those there are none that tell terms apart.
        (strong_scaling, None, "attributed to compute or communication of all ranks (+10 %)"),
        (strong_scaling, between_steps_of_rank_1, "attributed to between steps of rank 1 (+10 %)"),
        # Its blocks exchange nothing.
        (communication, None, "attributed to compute of all ranks (+10 %)"),
        (startup_trace, longer_trace, "attributed to trace of all ranks (+20 %)"),
    ],
)
def test_what_is_slower_than_under_the_other_stack_is_told_with_its_cause(stage, ask, spoil, said):
    asked = against(ask(WORKLOAD, 2))
    assert asked is not None
    stage.script.speed = struck(asked.candidate.arm, 0.9)
    stage.script.spoil = spoil or stage.script.spoil
    judgement = stage.measure(asked)[asked].judgement
    assert (judgement.verdict, judgement.reason) == (Verdict.FAIL, said)


# Wall time -------------------------------------------------------------------------------------

WALL_TIME_WEAK, WALL_TIME_STRONG = wall_time(WORKLOAD, 2)
WALL_LINES = (Line(("wall_*", "*", "*", "*"), Floor.at(0.8)),)


def accounted_for(**of_two: Any) -> Callable[[Launch], None]:
    """Launches with a time breakdown; of_two: of those with two replicas."""

    def spoil(launched: Launch) -> None:
        own = with_timestamps(
            launched.arm, launched.round, **(of_two if launched.arm == HOROVOD_2 else {})
        )
        launched.startup_seconds, launched.work = own.startup_seconds, own.work

    return spoil


def test_a_case_on_wall_time_has_its_breakdown(stage):
    stage.script.spoil, stage.lines = accounted_for(exchange=0.001), WALL_LINES
    outcome = stage.measure(WALL_TIME_WEAK)[WALL_TIME_WEAK]
    assert outcome.judgement.verdict is Verdict.PASS
    assert outcome.breakdown is not None
    assert outcome.breakdown.efficiency.estimate == pytest.approx(0.95)
    assert stage.script.schedules == {Schedule.FRESH}


@pytest.mark.parametrize(
    ("paused", "remark"),
    [([HOROVOD_1], "the reference, 1 rank"), ([HOROVOD_1, HOROVOD_2], ""), ([HOROVOD_2], "")],
)
def test_a_reference_that_pauses_more_is_named(stage, paused, remark):
    def spoil(launched: Launch) -> None:
        accounted_for(exchange=0.001)(launched)
        for number in (9, 19, 29) if launched.arm in paused else ():
            for rank in launched.run:
                later = [[at + 0.04 for at in row] for row in rank.timestamps[number:]]
                later[0][:3] = rank.timestamps[number][:3]
                assert isinstance(rank.timestamps, list)
                rank.timestamps[number:] = later

    stage.script.spoil, stage.lines = spoil, WALL_LINES
    judgement = stage.measure(WALL_TIME_WEAK)[WALL_TIME_WEAK].judgement
    assert judgement.verdict is Verdict.PASS
    assert judgement.reason.startswith(remark)
    assert bool(judgement.reason) is bool(remark)
    assert ("0.04 s longer" in judgement.reason) is bool(remark)


def test_a_time_breakdown_that_does_not_close_is_no_evidence(stage):
    stage.script.spoil, stage.lines = accounted_for(unexplained=1.0), WALL_LINES
    outcome = stage.measure(WALL_TIME_WEAK)[WALL_TIME_WEAK]
    assert outcome.judgement.verdict is Verdict.INVALID
    assert "its time breakdown leaves 1.00 s of" in outcome.judgement.reason
    assert outcome.breakdown is None


# Evidence -------------------------------------------------------------------------------------


def test_a_missing_threshold_is_invalid_with_a_line_to_paste(stage):
    stage.lines = ()
    outcome = stage.measure(WEAK)[WEAK]
    assert outcome.judgement.verdict is Verdict.INVALID
    assert outcome.judgement.rounds == FIRST_LOOK
    assert outcome.threshold_line == '"weak_scaling/resnet_50_s/np2/one-node" = 0.97'
    assert outcome.judgement.reason == (
        f"no threshold; add to cpu-made-up.toml: {outcome.threshold_line}"
    )
    assert outcome.judgement.figure is not None


def test_strategies_that_train_other_weights_are_not_compared(stage):
    stage.script.trained = {HOROVOD_2: [1.0, 2.0], MIRRORED_2: [1.0, 2.1]}
    outcomes = stage.measure(WEAK, PARITY)
    assert verdicts(outcomes) == {WEAK: Verdict.PASS, PARITY: Verdict.INVALID}
    assert outcomes[PARITY].judgement.reason.startswith(
        "horovod@2 and mirrored@2 trained different weights: tensor a0 differs by 0.1"
    )


@pytest.mark.parametrize("arm", [HOROVOD_2, MIRRORED_2])
def test_replicas_that_differ_after_reproducible_training_are_invalid(stage, arm):
    stage.script.digests = {arm: ["c0de", "dead"]}
    outcome = stage.measure(PARITY)[PARITY]
    assert outcome.judgement.verdict is Verdict.INVALID
    assert f"{arm.name}: replicas differ after reproducible training" in outcome.judgement.reason


def test_a_device_that_cannot_repeat_a_training_shows_nothing_of_two_strategies(stage):
    stage.script.irreproducible = {MIRRORED_2: "no such operation"}
    outcomes = stage.measure(WEAK, PARITY)
    assert verdicts(outcomes) == {WEAK: Verdict.PASS, PARITY: Verdict.INVALID}
    assert outcomes[PARITY].judgement.reason.endswith("no such operation")


# Trials ---------------------------------------------------------------------------------------

SAME = aa(WORKLOAD, 2)


def test_a_detected_fault_attributed_to_its_rank_passes(stage):
    slow = FAULT_CASES["slow10"]
    stage.script.speed = struck(slow.candidate.arm, 0.9)

    def waits(launched):
        if launched.arm == slow.candidate.arm:
            change_reports(launched, between_steps)

    stage.script.spoil = waits
    outcome = stage.measure(slow)[slow]
    assert outcome.judgement.verdict is Verdict.PASS
    assert outcome.detection.reported is Verdict.FAIL
    blamed = outcome.detection.attribution
    assert (blamed.term, blamed.rank) == ("between steps", 1)
    assert outcome.judgement.rounds == FIRST_LOOK


def test_what_makes_a_launch_invalid_is_caught_in_the_first_round(stage):
    other = FAULT_CASES["data"]

    def misread(launched):
        if launched.arm == other.candidate.arm:
            first, second = launched.evidence
            launched.evidence = [first, replace(second, data="other")]

    stage.script.spoil = misread
    outcome = stage.measure(other)[other]
    assert (outcome.judgement.verdict, outcome.judgement.rounds) == (Verdict.PASS, 1)
    assert outcome.detection.reported is Verdict.INVALID


def test_no_fault_is_injected_and_nothing_is_found(stage):
    nothing = FAULT_CASES["aa"]
    outcomes = stage.measure(nothing)
    assert verdicts(outcomes) == {nothing: Verdict.PASS}
    stage.script.speed = struck(nothing.candidate.arm, 0.9)
    assert verdicts(stage.measure(nothing)) == {nothing: Verdict.FAIL}, "a false alarm"


def test_an_a_a_test_says_what_cannot_be_seen_and_is_neutral(stage):
    stage.lines = (Line(("aa", "*", "*", "*"), Band(0.9, 1.1)),)
    stage.sampling = Sampling()
    stage.script.spoil = restless
    outcome = stage.measure(SAME)[SAME]
    assert (outcome.judgement.verdict, outcome.judgement.rounds) == (Verdict.INFO, 3)
    said = r"the smallest slowdown that this session can detect is \d+ %"
    assert re.match(said, outcome.judgement.reason)


def test_an_a_a_test_comes_along_with_what_is_undecided(stage):
    stage.lines = (*LINES, Line(("aa", "*", "*", "*"), Band(0.9, 1.1)))
    outcomes = stage.measure(WEAK, SAME)
    assert verdicts(outcomes) == {WEAK: Verdict.PASS, SAME: Verdict.INFO}
    assert outcomes[SAME].judgement.rounds == outcomes[WEAK].judgement.rounds == FIRST_LOOK


PAIR_LINES = (*LINES, Line(("aa", "*", "*", "*"), Band(0.9, 1.1)))


@pytest.mark.parametrize("factor", [0.7, 1.3])
def test_two_groups_of_one_arm_that_differ_by_30_percent_are_found_after_three_rounds(
    stage, factor
):
    stage.lines, stage.sampling = PAIR_LINES, Sampling()
    stage.script.speed = struck(SAME.candidate.arm, factor)
    outcome = stage.measure(WEAK, SAME)[SAME]
    assert (outcome.judgement.verdict, outcome.judgement.rounds) == (Verdict.INVALID, 3)
    assert outcome.detection is None
    low, high = outcome.judgement.figure.lower, outcome.judgement.figure.upper
    assert high < 0.9 or low > 1.1, "the whole interval"
    by = f"{100 * (factor - 1):+.0f} %"
    assert f"two identical groups differ by {by} [" in outcome.judgement.reason


def test_a_pair_that_may_differ_asks_for_rounds_until_they_tell(stage):
    # 15 % apart: too near the band for a few rounds of an unknown machine, but not for eight.
    stage.lines, stage.sampling = PAIR_LINES, Sampling()
    stage.script.speed = struck(SAME.candidate.arm, 1.15)
    outcomes = stage.measure(WEAK, SAME)
    assert verdicts(outcomes) == {WEAK: Verdict.PASS, SAME: Verdict.INVALID}
    assert outcomes[WEAK].judgement.rounds < outcomes[SAME].judgement.rounds <= FIRST_LOOK


def test_a_pair_that_rounds_cannot_tell_apart_ends_at_the_last_look(stage):
    stage.lines, stage.sampling = PAIR_LINES, Sampling()
    # The estimate is a little above the band, and the rounds differ by more.
    factors = (1.2, 1.12, 1.02)

    def speed(side, number):
        return struck(SAME.candidate.arm, factors[number % 3])(side, number)

    stage.script.speed = speed
    outcome = stage.measure(WEAK, SAME)[SAME]
    assert outcome.judgement.verdict is Verdict.INFO
    assert outcome.judgement.rounds == LAST_LOOK


def test_a_pass_is_invalid_where_two_identical_groups_differ_and_a_fail_stays(stage):
    stage.lines, stage.sampling = PAIR_LINES, Sampling()
    stage.script.speed = struck(SAME.candidate.arm, 1.3)
    outcomes = stage.measure(WEAK, STRONG, SAME, weak_scaling(OTHER, 2))
    failed = outcomes[STRONG].judgement
    outcomes[STRONG] = replace(outcomes[STRONG], judgement=replace(failed, verdict=Verdict.FAIL))
    (doubted_one,) = doubted(outcomes.values())
    assert doubted_one.comparison == WEAK
    assert doubted_one.judgement.verdict is Verdict.INVALID
    assert doubted_one.judgement.figure == outcomes[WEAK].judgement.figure
    said = "would PASS, but the A/A test failed: two identical groups differ by +30 % ["
    assert doubted_one.judgement.reason.startswith(said)


def test_a_pair_whose_evidence_is_wrong_says_nothing_of_others(stage):
    # As without a threshold for it: its groups are not known to differ.
    outcomes = stage.measure(WEAK, SAME)
    pair = outcomes[SAME]
    outcomes[SAME] = replace(pair, judgement=replace(pair.judgement, verdict=Verdict.INVALID))
    assert doubted(outcomes.values()) == []


def test_what_a_launch_shows_by_itself_is_invalid_at_once(stage):
    def apart(launched):
        *others, last = launched.evidence
        launched.evidence = [*others, replace(last, digests=["c0de", "0dd"])]

    stage.script.spoil = apart
    for asked in (WEAK, FAULT_CASES["slow10"]):
        outcome = stage.measure(asked)[asked]
        assert (outcome.reported, outcome.judgement.rounds) == (Verdict.INVALID, 1)
        assert len(stage.script.launched) == 1
        stage.script.launched.clear()


def test_injected_faults_are_judged_on_gpus_too(stage):
    stage.gpus = ("0", "1")
    slow = FAULT_CASES["slow10"]
    outcome = stage.measure(slow)[slow]
    assert outcome.judgement.verdict is not Verdict.INFO


def test_a_trial_without_a_threshold_to_notice_it_by_is_infos(stage):
    leak = FAULT_CASES["leak"]

    def grown(launched):
        launched.work = Run([run_report(), run_report()])

    stage.script.spoil = grown
    outcome = stage.measure(leak)[leak]
    assert outcome.judgement.verdict is Verdict.INFO
    assert outcome.threshold_line == "", "that of a fault is no threshold"


# Rounds that are judged without a session ----------------------------------------------------


def judged(
    asked: Comparison,
    rounds: Sequence[Round],
    lines: tuple[Line, ...] = LINES,
    cores: int = 2,
    final: bool = False,
) -> Outcome:
    """Judge such rounds, with the looks of a profile that names none."""
    profile = Profile("made-up", (WORKLOAD.model,), WORKLOAD.dataset, batch=32, budget_s=1.0)
    slots = place([Offer(rank, "host", tuple(range(cores))) for rank in range(2)])
    rules = Rules(profile, Thresholds("made up", Path("made-up.toml"), lines), slots)
    judge = Judge(rules, {}, {}, lambda arm: {}, lambda comparison: None)
    return judge.outcome(asked, rounds, final)


def test_who_asks_for_precision_has_every_interval_of_a_speed_at_95_percent():
    lines = (Line(("*", "*", "*", "*"), Band(0.8, 1.25)),)
    slots = place([Offer(rank, "host", (0, 1)) for rank in range(2)])
    thresholds = Thresholds("made up", Path("made-up.toml"), lines)
    for precision, alpha in ((0.0, 0.05), (0.02, 0.025)):
        sampling = Sampling(precision=precision)
        profile = Profile("a", (WORKLOAD.model,), WORKLOAD.dataset, 32, 1.0, sampling=sampling)
        rule = Rules(profile, thresholds, slots).rule(PARITY)
        assert rule is not None
        assert rule.alpha == alpha


def test_hosts_are_known_of_ranks_that_are_replicas_on_slots_of_the_session():
    profile = Profile("a", (WORKLOAD.model,), WORKLOAD.dataset, batch=32, budget_s=1.0)
    slots = place([Offer(rank, host, (0, 1)) for rank, host in enumerate("ab")])
    rules = Rules(profile, Thresholds("made up", Path("made-up.toml"), ()), slots)
    assert rules.hosts(WEAK) == ("a", "b")
    mirrored = replace(PARITY, candidate=PARITY.reference)
    assert rules.hosts(mirrored) == rules.hosts(weak_scaling(WORKLOAD, 4)) == ()


@pytest.mark.parametrize("asked", [COMMUNICATION, WEAK])
def test_a_fail_has_a_cause_and_says_it(asked):
    floor = Line(("*", "*", "*", "*"), Floor.at(0.9))
    rounds = [one_round(asked, 0.2, number) for number in range(FIRST_LOOK)]
    failed = judged(asked, rounds, (floor,), final=True)
    assert failed.judgement.verdict is Verdict.FAIL
    assert failed.cause is not None
    assert str(failed.cause) in failed.judgement.reason
    passed = judged(asked, [one_round(asked, 1.0, number) for number in range(FIRST_LOOK)])
    assert (passed.judgement.verdict, passed.cause) == (Verdict.PASS, None)


def at_speed(samples_per_second: float, noise: float = 0.01) -> list[Round]:
    """Return rounds of two replicas with this speed, as far apart as `noise`."""
    asked = throughput(WORKLOAD, 2)
    spread = [1 + noise * (number % 5 - 2) for number in range(FIRST_LOOK)]
    return [
        one_round(asked, samples_per_second / 1000 * each, number)
        for number, each in enumerate(spread)
    ]


@pytest.mark.parametrize(
    ("speed", "verdict"), [(500, Verdict.PASS), (400, Verdict.FAIL), (450, Verdict.INCONCLUSIVE)]
)
def test_a_speed_has_a_floor_in_samples_per_second(speed, verdict):
    floor = Line(("throughput", "*", "np2", "*"), SpeedFloor.at(450.0))
    outcome = judged(throughput(WORKLOAD, 2), at_speed(speed), (floor,), final=True)
    assert outcome.judgement.verdict is verdict
    assert outcome.judgement.figure is not None
    assert outcome.judgement.figure.estimate == pytest.approx(speed, rel=0.01)
    assert outcome.cause is None


def test_a_speed_without_a_floor_is_not_judged_and_tells_the_line_for_its_batch():
    asked = throughput(WORKLOAD, 2)
    outcome = judged(asked, at_speed(450), (), final=True)
    assert outcome.judgement.verdict is Verdict.INFO
    key, _, value = outcome.threshold_line.partition(" = ")
    trained = f"cifar10-32-batch{WORKLOAD.batch}-float32"
    assert key == f'"throughput:{trained}/{WORKLOAD.model}/np2/one-node"'
    floor = Line(tuple(key.strip('"').split("/")), SpeedFloor.at(float(value)))  # type: ignore[arg-type]
    assert judged(asked, at_speed(450), (floor,), final=True).judgement.verdict is Verdict.PASS
    other = throughput(replace(WORKLOAD, batch=64), 2)
    rounds = [one_round(other, 0.45, number) for number in range(FIRST_LOOK)]
    assert judged(other, rounds, (floor,), final=True).judgement.verdict is Verdict.INFO


@pytest.mark.parametrize(
    ("asked", "cores", "verdict", "reason"),
    [
        (STRONG, 2, Verdict.NOT_RUN, "no round was completed in time"),
        (SAME, 2, Verdict.INFO, "no time was left for the A/A test"),
        (STRONG, 1, Verdict.INFO, "more ranks than cores or devices"),
        (SAME, 1, Verdict.INFO, "more ranks than cores or devices"),
    ],
)
def test_what_has_no_round_beside_what_was_measured(asked, cores, verdict, reason):
    outcome = judged(asked, [one_round(WEAK, 1.0)] * FIRST_LOOK, cores=cores, final=True)
    judgement = outcome.judgement
    assert (judgement.verdict, judgement.reason, judgement.rounds) == (verdict, reason, 0)
    assert outcome.rounds == ()


@pytest.mark.parametrize(
    ("ratio", "rounds", "cores", "final", "verdict"),
    [
        # 28 of 40 ms, and computing alone takes 30: that is noise. 26 is not.
        (0.72, FIRST_LOOK, 2, False, Verdict.PASS),
        (0.65, FIRST_LOOK, 2, False, Verdict.INVALID),
        (0.65, FIRST_LOOK - 1, 2, False, Verdict.INCONCLUSIVE),
        (0.65, FIRST_LOOK - 1, 2, True, Verdict.INVALID),
        (0.65, FIRST_LOOK, 1, True, Verdict.INFO),
    ],
)
def test_steps_that_are_too_fast_are_invalid_only_where_they_are_judged(
    ratio, rounds, cores, final, verdict
):
    measured = [exchanging_round(BOUND, ratio, number) for number in range(rounds)]
    assert judged(BOUND, measured, CEILINGS, cores, final).judgement.verdict is verdict


@pytest.mark.parametrize(("refused", "said"), [(4, False), (5, True)])
def test_runs_are_refused_if_more_than_half_of_them_are_too_short(refused, said):
    def trained_in(number: int) -> Round:
        measured = round_with_timestamps(WALL_TIME_STRONG, number)
        if number >= refused:  # Without a fixed cost every run is long enough.
            for launched in measured.launches:
                launched.startup_seconds = [
                    {**rank, **dict.fromkeys(FIXED, 0.0)} for rank in launched.startup_seconds
                ]
        return measured

    rounds = [trained_in(number) for number in range(FIRST_LOOK)]
    outcome = judged(WALL_TIME_STRONG, rounds, WALL_LINES)
    judgement = outcome.judgement
    assert outcome.breakdown is not None
    assert (TOO_SHORT in judgement.reason) is said
    assert judgement.verdict is Verdict.INCONCLUSIVE
    assert judgement.needs_longer_runs is said
    assert judgement.rounds == FIRST_LOOK


def disturbed(measured: Round) -> Round:
    """Other programs took half of the cores during every block."""
    for launched in measured.launches:
        turns_of(launched).blocks = [replace(block, usage=usage(0.5)) for block in launched.blocks]
    return measured


def test_a_fail_rests_on_the_rounds_that_nobody_disturbed():
    asked = against(WEAK)
    assert asked is not None
    sound = [one_round(asked, 0.9, number) for number in range(FIRST_LOOK)]
    for each in sound:
        between_steps_of_rank_1(each.of(asked.candidate.arm))
    # There are more of these, and in them all ranks are slower.
    others = [disturbed(one_round(asked, 0.5, FIRST_LOOK + i)) for i in range(FIRST_LOOK + 1)]
    judgement = judged(asked, [*sound, *others]).judgement
    assert (judgement.verdict, judgement.rounds) == (Verdict.FAIL, FIRST_LOOK)
    assert judgement.reason == "attributed to between steps of rank 1 (+10 %)"


def test_above_a_band_the_reference_is_the_slower_side(stage):
    for factor, of_reference in ((3.0, True), (0.3, False)):
        stage.script.speed = struck(PARITY.candidate.arm, factor)
        outcome = stage.measure(PARITY)[PARITY]
        assert outcome.judgement.verdict is Verdict.FAIL
        assert outcome.cause is not None
        assert outcome.cause.of_reference is of_reference
        # Nine tenths of a step are inside of it.
        assert outcome.cause.share == pytest.approx(0.9 * (max(factor, 1 / factor) - 1))
