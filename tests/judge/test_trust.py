"""What is injected, and what is then said of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hvdperf.judge import trust
from hvdperf.plan import questions
from hvdperf.plan.arms import AA, TERMS
from hvdperf.plan.comparisons import JudgedAs, Question
from hvdperf.plan.questions import (
    FAULT_CASES,
    fault_case_of,
    parity,
    weak_scaling,
)
from hvdperf.records.outcome import Attribution, Detection
from hvdperf.stats import Interval
from hvdperf.verdict import Floor, Judgement, Verdict
from hvdperf.worker.protocol import STARTUP
from tests.support.rounds import (
    HOROVOD_2,
    WORKLOAD,
    evidence_report,
    launch,
    one_round,
    outcome,
)

TRIED = {c.candidate.arm.injected: c for c in questions.fault_cases(WORKLOAD, 2)}
RULE = Floor(0.98, 0.95)
FIGURE = Interval(0.9, 0.89, 0.91, 0.025, 6)


def called(verdict: Verdict, reason: str = "") -> Judgement:
    return Judgement(verdict, FIGURE, RULE, 6, reason)


def test_every_trial_is_asked_of_an_arm_against_itself():
    assert list(TRIED) == list(FAULT_CASES)
    for name, comparison in TRIED.items():
        assert comparison.candidate.arm == replace(HOROVOD_2, injected=name)
        assert comparison.name == f"trust[{name}-resnet_50_s-np2]"
        assert comparison.is_fault_case
        assert fault_case_of(comparison) is FAULT_CASES[name]
        assert comparison.tolerance is None
        assert comparison.judged_as is JudgedAs.DETECTION
        if comparison.question is not Question.MEMORY:
            assert comparison.reference.arm == HOROVOD_2
    (alone,) = questions.fault_cases(WORKLOAD, 1)
    assert alone.candidate.arm.injected == AA


def test_every_fault_case_strikes_a_rank_and_a_term_that_exist():
    for trial in FAULT_CASES.values():
        assert (trial.injected is None) == (trial.verdict is Verdict.PASS)
        assert trial.term in ("", "memory", *TERMS, *STARTUP)
        assert bool(trial.term) == (trial.verdict is Verdict.FAIL)
        assert (trial.doubt is not None) == (trial.verdict is Verdict.INVALID)
        if trial.injected is not None and trial.rank is not None:
            assert trial.injected.rank == trial.rank


def test_two_groups_of_one_arm_are_no_trial():
    same = questions.aa(WORKLOAD, 2)
    assert fault_case_of(same) is None
    assert same.name == "aa[resnet_50_s-np2]"
    assert same.candidate.arm.label == "horovod@2+aa"
    assert same.reference.arm == HOROVOD_2
    assert questions.against(same) is None
    assert all(questions.against(each) is None for each in TRIED.values())


@pytest.mark.parametrize(
    ("verdict", "blame", "expected"),
    [
        (Verdict.FAIL, Attribution("between steps", 1, 0.1), Verdict.PASS),
        (Verdict.FAIL, Attribution(), Verdict.FAIL),
        (Verdict.FAIL, Attribution("between steps", 0, 0.1), Verdict.FAIL),
        (Verdict.FAIL, Attribution("compute", 1, 0.1), Verdict.FAIL),
        (Verdict.PASS, Attribution(), Verdict.FAIL),
        (Verdict.INVALID, Attribution(), Verdict.FAIL),
    ],
)
def test_a_fault_is_to_be_called_and_blamed(verdict, blame, expected):
    found = Detection(verdict, blame)
    judged = trust.of_fault_case(FAULT_CASES["slow10"], called(verdict, "so"), found)
    assert judged.verdict is expected
    told = f"FAIL, {blame}" if verdict is Verdict.FAIL else f"{verdict.value} instead of FAIL (so)"
    assert judged.reason == f"injected slow:rank=1,factor=1.10: {told}"


@pytest.mark.parametrize("verdict", [Verdict.INCONCLUSIVE, Verdict.INFO])
@pytest.mark.parametrize("trial", ["slow5", "aa"])
def test_what_is_open_stays_open(trial, verdict):
    open_ = called(verdict, "so")
    assert (
        trust.of_fault_case(FAULT_CASES[trial], open_, Detection(verdict, Attribution())) == open_
    )


@pytest.mark.parametrize(
    ("trial", "ranks", "noticed"),
    [
        ("data", [{}, {"data": "6 others"}], True),
        ("data", [{"data": "6 others"}, {}], False),
        ("data", [{}, {"digests": ["c3d4"]}], False),
        ("skip", [{}, {"digests": ["c3d4"]}], True),
        ("skip", [{}, {"world_size": 1}], False),
    ],
)
def test_an_invalid_launch_is_to_doubt_what_was_injected(trial, ranks, noticed):
    case, sound = FAULT_CASES[trial], launch(HOROVOD_2, {})
    sound.evidence = [evidence_report(**each) for each in ranks]
    found = Detection(Verdict.INVALID, Attribution())
    launches = [launch(HOROVOD_2, {}), sound]
    judged = trust.of_fault_case(case, called(Verdict.INVALID, "so"), found, launches)
    assert judged.verdict is (Verdict.PASS if noticed else Verdict.FAIL)


def test_a_round_that_is_not_invalid_was_not_noticed():
    found = Detection(Verdict.INCONCLUSIVE, Attribution())
    sound = called(Verdict.INCONCLUSIVE, "too noisy")
    assert trust.of_fault_case(FAULT_CASES["skip"], sound, found).verdict is Verdict.FAIL
    none_yet = replace(sound, rounds=0)
    assert trust.of_fault_case(FAULT_CASES["skip"], none_yet, found) == none_yet


def rounds_of(comparison, count=6):
    return tuple(one_round(comparison, 0.9, number) for number in range(count))


def test_blame_is_laid_only_where_something_takes_longer():
    comparison = TRIED["slow10"]
    measured = rounds_of(comparison)
    assert trust.detect(comparison, called(Verdict.PASS), measured).attribution == Attribution()
    # Slower on all ranks alike.
    found = trust.detect(comparison, called(Verdict.FAIL), measured)
    assert (found.attribution.term, found.attribution.rank) == ("compute or communication", None)


def test_a_note_is_on_fails_only():
    failed = outcome(weak_scaling(WORKLOAD, 2), [0.5] * 8, verdict=Verdict.FAIL)
    passed = outcome(parity(WORKLOAD, 2), [1.0] * 8)
    assert trust.note_on_fails([failed, passed]) == trust.EXAGGERATED
    not_detected = outcome(TRIED["slow10"], [1.0] * 8, verdict=Verdict.FAIL)
    assert trust.note_on_fails([passed, not_detected]) == "", "it is no change of a figure"
