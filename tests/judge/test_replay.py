"""Recorded rounds are judged as a session would have judged them while they came.

Each case is judged as if no round came after its last one. The values of tests/frozen hold its
verdict, figure and causes.
"""

from __future__ import annotations

import pytest

from hvdperf.plan.comparisons import Question
from hvdperf.records.archive import Archive
from hvdperf.records.documents import Case
from hvdperf.verdict import Verdict
from tests.support.recorded import judge_of, recorded_sessions, rules

RECORDED = [(session, case) for session in recorded_sessions() for case in session.cases]


def named(value: Archive | Case) -> str:
    return value.name if isinstance(value, Case) else value.directory.name


@pytest.mark.parametrize(
    ("session", "case"), [pair for pair in RECORDED if pair[1].verdict is Verdict.FAIL], ids=named
)
def test_a_failed_case_did_not_fail_before_its_look(session, case):
    looks = rules(session).profile.sampling.looks
    for count in range(1, len(case.rounds)):
        if count not in looks:
            early = judge_of(session, case).outcome(case.comparison, case.rounds[:count])
            assert early.judgement.verdict is Verdict.INCONCLUSIVE, count


def test_the_recorded_sessions_are_whole_and_of_many_kinds():
    assert [line for session in recorded_sessions() for line in session.left_out] == []
    assert {case.verdict for _, case in RECORDED} == set(Verdict)
    # A question needs no recording of its own if another one is measured and judged in its way; a
    # new way of measuring gets one with the next recordings.
    recorded = {(case.question.spec.work, case.question.spec.rule) for _, case in RECORDED}
    asked = {(question.spec.work, question.spec.rule) for question in Question}
    assert recorded <= asked
    assert len(asked - recorded) <= 2
