"""Every case as one installed stack held against another."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hvdperf.plan import questions
from hvdperf.plan.arms import AGAINST, Arm, BlockKind
from hvdperf.plan.comparisons import JudgedAs
from hvdperf.plan.questions import Fault, against
from hvdperf.worker.strategies import Strategy
from tests.support.rounds import HOROVOD_2, WORKLOAD

WEAK = against(questions.weak_scaling(WORKLOAD, 2))
TRACE = against(questions.startup(WORKLOAD, 2)[1])


def test_the_candidate_is_held_against_itself_under_the_other_stack():
    assert WEAK is not None
    assert WEAK.judged_as is JudgedAs.REGRESSION
    assert WEAK.candidate.arm == HOROVOD_2
    assert WEAK.reference.arm == replace(HOROVOD_2, stack=AGAINST)
    assert WEAK.ideal_ratio == 1.0
    assert WEAK.name == "weak_scaling[resnet_50_s-np2]", "the name of the case stays"
    assert WEAK.tolerance is None
    assert WEAK.reference.arm.label == "horovod@2+against"
    assert questions.weak_scaling(WORKLOAD, 2).judged_as is JudgedAs.THRESHOLD


@pytest.mark.parametrize(
    ("ask", "strategy", "size", "kind"),
    [
        (questions.strong_scaling, Strategy.HOROVOD, 2, BlockKind.SPLIT),
        (questions.communication, Strategy.HOROVOD, 2, BlockKind.LOCAL),
        (questions.parity, Strategy.MIRRORED, 2, BlockKind.FULL),
        (questions.multiworker, Strategy.MULTIWORKER, 2, BlockKind.FULL),
        (
            lambda workload, size: questions.horovod_overhead(workload, 1),
            Strategy.SINGLE,
            1,
            BlockKind.FULL,
        ),
    ],
)
def test_between_them_the_cases_ask_about_everything(ask, strategy, size, kind):
    asked = against(ask(WORKLOAD, 2))
    assert asked is not None
    for side, stack in ((asked.candidate, ""), (asked.reference, AGAINST)):
        assert side.arm == Arm(WORKLOAD, strategy, size, stack=stack)
        assert side.kind is kind


def test_variants_keep_their_names():
    for comparison in (
        *questions.gradient_reductions(WORKLOAD, 2),
        *questions.recipes(WORKLOAD, 2),
    ):
        other = against(comparison)
        assert other is not None
        assert other.name == comparison.name


def test_what_two_stacks_are_not_compared_by_is_not_asked():
    left_out = [
        questions.memory(WORKLOAD, 2),
        *questions.wall_time(WORKLOAD, 2),
        *questions.sweep(WORKLOAD, 2),
    ]
    assert [against(comparison) for comparison in left_out] == [None] * len(left_out)


def test_an_injected_fault_strikes_the_sessions_own_stack():
    fault = Fault.parse("slow:rank=1")
    assert WEAK is not None
    assert fault.strikes(WEAK.candidate.arm)
    assert not fault.strikes(WEAK.reference.arm)
