import pytest

from harness.plan import (
    Arm,
    BlockKind,
    Fault,
    Question,
    Side,
    Strategy,
    communication,
    default_world_sizes,
    parity,
    strong_scaling,
    weak_scaling,
)
from tests.support.rounds import HOROVOD_1, HOROVOD_2, MIRRORED_2, WORKLOAD


def test_weak_scaling_is_n_times_one_replica():
    comparison = weak_scaling(WORKLOAD, 2)
    assert comparison.question is Question.WEAK_SCALING
    assert comparison.candidate == Side(HOROVOD_2, BlockKind.FULL)
    assert comparison.reference == Side(HOROVOD_1, BlockKind.FULL)
    assert comparison.ideal_ratio == 2


def test_strong_scaling_divides_one_batch():
    comparison = strong_scaling(WORKLOAD, 2)
    assert comparison.question is Question.STRONG_SCALING
    assert comparison.candidate == Side(HOROVOD_2, BlockKind.SPLIT)
    assert comparison.reference == Side(HOROVOD_1, BlockKind.FULL)
    assert comparison.ideal_ratio == 2


def test_communication_is_measured_within_one_arm():
    comparison = communication(WORKLOAD, 2)
    assert comparison.question is Question.COMMUNICATION
    assert comparison.candidate == Side(HOROVOD_2, BlockKind.FULL)
    assert comparison.reference == Side(HOROVOD_2, BlockKind.LOCAL)
    assert comparison.arms == (HOROVOD_2,)
    assert comparison.ideal_ratio == 1


def test_parity_holds_both_strategies_against_each_other():
    comparison = parity(WORKLOAD, 2)
    assert comparison.question is Question.PARITY
    assert comparison.arms == (HOROVOD_2, MIRRORED_2)
    assert comparison.candidate.kind is comparison.reference.kind is BlockKind.FULL
    assert comparison.ideal_ratio == 1


def test_a_comparison_is_named_after_its_candidate():
    comparison = weak_scaling(WORKLOAD, 4)
    assert comparison.name == "weak_scaling[resnet_50_s-np4]"
    assert comparison.world_size == 4
    assert comparison.workload is WORKLOAD
    assert [arm.name for arm in comparison.arms] == [
        "resnet_50_s horovod@4",
        "resnet_50_s horovod@1",
    ]


def test_comparisons_of_the_same_arms_share_them():
    arms = {arm for ask in (weak_scaling, strong_scaling) for arm in ask(WORKLOAD, 2).arms}
    assert arms == {HOROVOD_1, HOROVOD_2}


@pytest.mark.parametrize(
    ("slots", "sizes"),
    [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (4, (1, 2, 4)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8))],
)
def test_world_sizes_are_powers_of_two_and_the_whole(slots, sizes):
    assert default_world_sizes(slots) == sizes


def test_a_fault_is_read_from_one_word_and_its_settings():
    fault = Fault.parse("slow:rank=1,factor=2.5,model=vgg_16,world_size=4")
    assert fault == Fault("slow", 1, factor=2.5, model="vgg_16", world_size=4)
    assert fault.as_config() == {"kind": "slow", "rank": 1, "phase": "block", "factor": 2.5}


def test_a_fault_strikes_rank_0_in_a_block_unless_it_says_otherwise():
    assert Fault.parse("kill") == Fault("kill", rank=0, phase="block")
    assert Fault.parse("hang:phase=first step").phase == "first step"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "unknown fault ''"),
        ("explode:rank=1", "unknown fault 'explode'; known: raise, exit, kill, hang, slow"),
        ("kill:rnak=1", "unknown key 'rnak'"),
        ("kill:rank=one", "one"),
        ("kill:rank", "invalid literal"),
        ("slow:factor=fast", "fast"),
    ],
)
def test_a_fault_that_means_nothing_is_refused_in_one_line(text, why):
    with pytest.raises(ValueError, match=why) as refused:
        Fault.parse(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "struck"),
    [
        ("kill", {"resnet_50_s horovod@1", "resnet_50_s horovod@2"}),
        ("kill:world_size=2", {"resnet_50_s horovod@2"}),
        ("kill:model=resnet_50_s", {"resnet_50_s horovod@1", "resnet_50_s horovod@2"}),
        ("kill:model=vgg_16", set()),
    ],
)
def test_a_fault_strikes_only_the_arms_it_names(text, struck):
    arms = [HOROVOD_1, HOROVOD_2, MIRRORED_2, Arm(WORKLOAD, Strategy.MIRRORED, 1)]
    fault = Fault.parse(text)
    assert {arm.name for arm in arms if fault.strikes(arm)} == struck
