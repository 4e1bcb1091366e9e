"""Which FAILs are one piece of evidence."""

from __future__ import annotations

from dataclasses import replace

from hvdperf.judge.fails import EXAGGERATED, notes_on_fails, sharing_launches
from hvdperf.plan.questions import (
    communication,
    fault_cases,
    gradient_reductions,
    parity,
    strong_scaling,
    weak_scaling,
)
from hvdperf.verdict import Verdict
from tests.support.rounds import WORKLOAD, outcome

OTHER = replace(WORKLOAD, model="vgg_16_s")
WEAK, STRONG = weak_scaling(WORKLOAD, 2), strong_scaling(WORKLOAD, 2)


def test_comparisons_with_one_replica_share_its_launches():
    four = weak_scaling(WORKLOAD, 4)
    assert set(WEAK.arms).isdisjoint(parity(WORKLOAD, 4).arms)
    assert sharing_launches([WEAK, four]) == [[WEAK, four]]


def test_other_networks_and_other_rounds_are_other_evidence():
    apart = gradient_reductions(WORKLOAD, 2)[0]
    assert sharing_launches([WEAK, weak_scaling(OTHER, 2), apart]) == []


def test_what_shares_with_one_of_a_group_belongs_to_it():
    one, four = parity(WORKLOAD, 1), communication(WORKLOAD, 4)
    both = weak_scaling(WORKLOAD, 4)
    (group,) = sharing_launches([one, four, both])
    assert {each.name for each in group} == {one.name, four.name, both.name}


def test_notes_are_on_fails_only():
    failed = [outcome(each, [0.5] * 8, verdict=Verdict.FAIL) for each in (WEAK, STRONG)]
    passed = outcome(parity(WORKLOAD, 2), [1.0] * 8)
    shared, size = notes_on_fails([*failed, passed])
    assert WEAK.name in shared
    assert STRONG.name in shared
    assert passed.comparison.name not in shared
    assert size == EXAGGERATED
    assert notes_on_fails([passed]) == []
    assert notes_on_fails(failed[:1]) == [EXAGGERATED]


def test_a_fault_that_was_not_detected_is_no_change_of_a_figure():
    fault = next(each for each in fault_cases(WORKLOAD, 2) if each.variant == "slow10")
    assert notes_on_fails([outcome(fault, [1.0] * 8, verdict=Verdict.FAIL)]) == []
