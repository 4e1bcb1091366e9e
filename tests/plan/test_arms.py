"""What each question compares, and which faults a session can inject."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hvdperf.plan.arms import AGAINST, EXCHANGES, Arm, BlockKind, Collective, Side, busbw
from hvdperf.plan.comparisons import JudgedAs, Question
from hvdperf.plan.profile import default_world_sizes
from hvdperf.plan.questions import (
    Fault,
    aa,
    against,
    at_gradient_sizes,
    communication,
    fixed_epochs,
    gradient_reductions,
    horovod_overhead,
    memory,
    multiworker,
    overlap,
    parity,
    recipes,
    startup,
    strong_scaling,
    sweep,
    wall_time,
    weak_scaling,
)
from hvdperf.worker.protocol import STARTUP
from hvdperf.worker.strategies import Strategy
from tests.support.rounds import BARE_2, HOROVOD_1, HOROVOD_2, MIRRORED_2, WORKLOAD

FULL, SPLIT, LOCAL = BlockKind.FULL, BlockKind.SPLIT, BlockKind.LOCAL


@pytest.mark.parametrize(
    ("ask", "question", "candidate", "reference", "ideal"),
    [
        (weak_scaling, Question.WEAK_SCALING, Side(HOROVOD_2, FULL), Side(HOROVOD_1, FULL), 2),
        (strong_scaling, Question.STRONG_SCALING, Side(HOROVOD_2, SPLIT), Side(HOROVOD_1, FULL), 2),
        (communication, Question.COMMUNICATION, Side(HOROVOD_2, FULL), Side(HOROVOD_2, LOCAL), 1),
        (parity, Question.PARITY, Side(HOROVOD_2, FULL), Side(MIRRORED_2, FULL), 1),
    ],
)
def test_a_question_compares_two_sides(ask, question, candidate, reference, ideal):
    comparison = ask(WORKLOAD, 2)
    assert comparison.question is question
    assert (comparison.candidate, comparison.reference) == (candidate, reference)
    assert comparison.arms == tuple(dict.fromkeys((candidate.arm, reference.arm)))
    assert comparison.ideal_ratio == ideal


def test_recipes_are_told_apart_and_share_rounds_with_the_workload():
    asked = recipes(WORKLOAD, 2)
    assert [comparison.variant for comparison in asked] == ["bf16", "f16", "rate"]
    assert asked[0].name == "recipe[bf16-resnet_50_s-np2]"
    assert {comparison.workload for comparison in asked} == {WORKLOAD}
    assert asked[0].candidate.arm.label == "horovod@2+bf16"
    assert asked[0].tolerance is None, "it is meant to train other weights"


def test_a_recipe_that_the_workload_has_already_is_not_asked():
    half = replace(WORKLOAD, precision="mixed_float16")
    assert [each.variant for each in recipes(half, 2)] == ["bf16", "rate"]
    assert parity(half, 2).tolerance == 0.05


def test_a_training_to_the_end_is_held_against_both_others():
    names = [comparison.name for comparison in fixed_epochs(WORKLOAD, 2)]
    assert names == [
        f"convergence[{figure}-{other}-resnet_50_s-np2]"
        for other in ("mirrored", "single")
        for figure in ("loss", "accuracy")
    ]


def test_a_sweep_is_the_same_whatever_is_trained():
    asked = sweep(WORKLOAD, 2)
    variants = [comparison.variant for comparison in asked]
    assert variants == ["allreduce", "allgather", "broadcast", "reducescatter"]
    assert asked[0].name == "collective_overhead[allreduce-sweep-np2]"
    assert asked == sweep(replace(WORKLOAD, model="vgg_16_s"), 2)
    assert len({comparison.round_group for comparison in asked}) == 1
    assert [arm.name for arm in asked[0].arms] == ["sweep horovod@2", "sweep bare@2"]


def test_a_network_is_asked_about_its_gradients_and_its_bound_in_the_same_rounds():
    tax_of, bound_of = at_gradient_sizes(WORKLOAD, 2), overlap(WORKLOAD, 2)
    assert tax_of.name == "collective_overhead[allreduce-resnet_50_s-np2]"
    assert bound_of.name == "overlap[resnet_50_s-np2]"
    assert tax_of.round_group == bound_of.round_group != sweep(WORKLOAD, 2)[0].round_group
    assert tax_of.arms == bound_of.arms == (HOROVOD_2, BARE_2)
    assert BARE_2.processes == 2


def test_every_exchange_is_held_against_the_default():
    asked = gradient_reductions(WORKLOAD, 2)
    assert {comparison.variant for comparison in asked} == {*EXCHANGES, "passes"} - {""}
    assert {comparison.reference for comparison in asked} == {Side(HOROVOD_2)}
    assert asked[0].candidate.arm.label == "horovod@2+fp16"


def test_a_start_up_is_asked_phase_by_phase():
    asked = startup(WORKLOAD, 2)
    phases = [comparison.question.spec.part for comparison in asked]
    assert phases == ["init", "trace", "first step", "broadcast"]
    assert set(phases) <= {phase.value for phase in STARTUP}
    assert all(comparison.arms == (HOROVOD_2,) for comparison in asked)


def test_what_both_sides_train_must_agree_where_that_is_known():
    assert weak_scaling(WORKLOAD, 2).tolerance is None
    assert parity(WORKLOAD, 2).tolerance == horovod_overhead(WORKLOAD, 1).tolerance == 1e-5
    tolerances = {each.variant: each.tolerance for each in gradient_reductions(WORKLOAD, 2)}
    assert tolerances["adasum"] is None
    assert (tolerances["fp16"], tolerances["group"], tolerances["passes"]) == (0.05, 1e-5, None)
    half = replace(WORKLOAD, precision="mixed_bfloat16")
    assert {each.tolerance for each in gradient_reductions(half, 2)} == {0.05, None}


@pytest.mark.parametrize(
    ("slots", "sizes"),
    [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (4, (1, 2, 4)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8))],
)
def test_world_sizes_are_powers_of_two_and_the_whole(slots, sizes):
    assert default_world_sizes(slots) == sizes


def test_a_fault_is_read_from_one_word_and_its_settings():
    fault = Fault.parse("slow:rank=1,factor=2.5,model=vgg_16,world_size=4")
    assert fault == Fault("slow", 1, factor=2.5, model="vgg_16", world_size=4)
    assert fault.as_config() == ("slow", 1, "block", 2.5, 0.0)
    assert Fault.parse("kill") == Fault("kill", rank=0, phase="block")
    assert Fault.parse("hang:phase=first step").phase == "first step"


def test_a_fault_that_needs_a_factor_has_one():
    assert Fault.parse("slow:rank=1").factor == 2.0
    assert Fault.parse("input:rank=1").ms == 50.0
    assert Fault.parse("longer").phase == "trace"
    late = Fault.parse("input:factor=1.1")
    assert (late.factor, late.ms) == (1.1, 0.0), "what is given is all there is of it"
    assert Fault.parse("slow:rank=1,ms=7.5").as_config() == ("slow", 1, "block", 1.0, 7.5)
    with pytest.raises(ValueError, match=r"factor 0\.5 is below 1 or"):
        Fault.parse("slow:factor=0.5")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("kill:rank", "rank= is not a number"),
        ("skip:rank=1", "unknown key 'rank' of skip; known: model, world_size"),
        ("leak:ms=5", "unknown key 'ms' of leak; known: rank, model"),
        ("slow:ms=-1", "ms -1.0 is not a delay; give 0 or more"),
        ("slow:factor=inf", "factor inf is below 1 or not a number"),
    ],
)
def test_a_fault_that_means_nothing_is_refused_in_one_line(text, why):
    with pytest.raises(ValueError, match=why) as refused:
        Fault.parse(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "struck"),
    [
        ("kill", {HOROVOD_1, HOROVOD_2}),
        ("kill:world_size=2", {HOROVOD_2}),
        ("kill:model=resnet_50_s", {HOROVOD_1, HOROVOD_2}),
        ("kill:model=vgg_16", set()),
    ],
)
def test_a_fault_strikes_only_the_arms_it_names(text, struck):
    arms = {HOROVOD_1, HOROVOD_2, MIRRORED_2, replace(HOROVOD_2, injected="slow10")}
    fault = Fault.parse(text)
    assert {arm for arm in arms if fault.strikes(arm)} == struck


def test_a_fault_strikes_both_of_two_groups_of_one_arm_and_no_other_stack():
    fault = Fault.parse("slow:rank=1")
    assert all(fault.strikes(arm) for arm in aa(WORKLOAD, 2).arms)
    assert not fault.strikes(replace(HOROVOD_2, stack=AGAINST))


@pytest.mark.parametrize(
    ("collective", "world_size", "factor"),
    [
        # doc/PERFORMANCE.md of nccl-tests.
        (Collective.ALLREDUCE, 2, 1.0),
        (Collective.ALLREDUCE, 8, 1.75),
        (Collective.ALLGATHER, 8, 0.875),
        (Collective.REDUCESCATTER, 4, 0.75),
        (Collective.BROADCAST, 8, 1.0),
    ],
)
def test_bus_bandwidth_has_the_factors_of_nccl_tests(collective, world_size, factor):
    assert collective.bus_factor(world_size) == factor
    assert busbw(collective, world_size, 10**9, 0.5) == pytest.approx(2 * factor)


WEAK = against(weak_scaling(WORKLOAD, 2))
TRACE = against(startup(WORKLOAD, 2)[1])


def test_the_candidate_is_held_against_itself_under_the_other_stack():
    assert WEAK is not None
    assert WEAK.judged_as is JudgedAs.REGRESSION
    assert WEAK.candidate.arm == HOROVOD_2
    assert WEAK.reference.arm == replace(HOROVOD_2, stack=AGAINST)
    assert WEAK.ideal_ratio == 1.0
    assert WEAK.name == "weak_scaling[resnet_50_s-np2]", "the name of the case stays"
    assert WEAK.tolerance is None
    assert WEAK.reference.arm.label == "horovod@2+against"
    assert weak_scaling(WORKLOAD, 2).judged_as is JudgedAs.THRESHOLD


@pytest.mark.parametrize(
    ("ask", "strategy", "size", "kind"),
    [
        (strong_scaling, Strategy.HOROVOD, 2, BlockKind.SPLIT),
        (communication, Strategy.HOROVOD, 2, BlockKind.LOCAL),
        (parity, Strategy.MIRRORED, 2, BlockKind.FULL),
        (multiworker, Strategy.MULTIWORKER, 2, BlockKind.FULL),
        (horovod_overhead, Strategy.SINGLE, 1, BlockKind.FULL),
    ],
)
def test_between_them_the_cases_ask_about_everything(ask, strategy, size, kind):
    asked = against(ask(WORKLOAD, size))
    assert asked is not None
    for side, stack in ((asked.candidate, ""), (asked.reference, AGAINST)):
        assert side.arm == Arm(WORKLOAD, strategy, size, stack=stack)
        assert side.kind is kind


def test_variants_keep_their_names():
    for comparison in (*gradient_reductions(WORKLOAD, 2), *recipes(WORKLOAD, 2)):
        other = against(comparison)
        assert other is not None
        assert other.name == comparison.name


def test_what_two_stacks_are_not_compared_by_is_not_asked():
    left_out = [memory(WORKLOAD, 2), *wall_time(WORKLOAD, 2), *sweep(WORKLOAD, 2)]
    assert [against(comparison) for comparison in left_out] == [None] * len(left_out)
