"""Recorded rounds get the verdict and the figure again that they got when they were measured.

Replayed is `Judge` on the rounds of tests/judge/recorded: validity, observations, bounds, verdict,
attribution and the breakdown of wall time, from the reports of the ranks on. Not replayed is what
documents do not hold:

- the weights after the reproducible training. They were compared then, and were alike; the Judge
  gets equal ones.
- the noise of the machine, unless the verdict rests on it; then it is in the document.
- the search for a rule in a file of thresholds: the rules are those of the documents.
- the reason of a case that other programs left open, which the session writes after the judgement.

Each case is judged as if no round came after its last one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hvdperf.json_records import plain
from hvdperf.judge.judge import Judge
from hvdperf.judge.rules import Rules
from hvdperf.machine.placement import Offer, place
from hvdperf.plan.comparisons import JudgedAs, Question
from hvdperf.plan.options import Profile, Sampling
from hvdperf.plan.thresholds import Line, Thresholds, case_of
from hvdperf.records.archive import Archive
from hvdperf.records.documents import Case
from hvdperf.records.outcome import Outcome
from hvdperf.verdict import REGRESSION, Verdict
from tests.support.recorded import recorded_sessions

RECORDED = [(session, case) for session in recorded_sessions() for case in session.cases]


def named(value: Archive | Case) -> str:
    return value.name if isinstance(value, Case) else value.directory.name


def rules(session: Archive) -> Rules:
    """Return the rules of a session: the looks and networks of its profile, the rules of its cases,
    and its slots."""
    document = session.session
    assert document is not None
    asked, fingerprint = document.asked, document.fingerprint
    settings: Mapping[str, Any] = asked.profile
    profile = Profile(
        name=document.profile,
        models=settings["models"],
        dataset=settings["dataset"],
        batch=settings["batch"],
        budget_s=math.inf,
        sampling=Sampling(looks=asked.looks),
        oversubscribed=settings["oversubscribed"],
    )
    cores = tuple(range(fingerprint["cores"]))
    slots = place([Offer(rank, "host", cores) for rank in range(len(fingerprint["rank_cores"]))])
    lines = [
        Line(case_of(case.comparison, nodes=1).parts, case.rule)
        for case in session.cases
        if case.rule is not None and case.rule != REGRESSION
    ]
    path = Path(asked.thresholds.name)
    return Rules(profile, Thresholds(path.stem, path, tuple(lines)), slots)


def judge_of(session: Archive, case: Case) -> Judge:
    """Return a judge that knows what the session knew when it judged the case."""
    failure = case.outcome.failure
    arms = [arm for arm in case.comparison.arms if failure and failure.arm == arm.name]
    trained = {
        launch.arm: launch
        for each in session.cases
        for measured in each.rounds
        for launch in measured.launches
        if launch.correctness
    }
    return Judge(
        rules(session),
        failures={arm: failure for arm in arms if failure},
        correctness=trained,
        weights=lambda arm: {},
        noise=lambda comparison: case.outcome.judgement.early,
        sessions=None,
    )


def without_reason_of_the_session(outcome: Outcome) -> Outcome:
    judgement = outcome.judgement
    if judgement.verdict is Verdict.INCONCLUSIVE:
        return replace(outcome, judgement=replace(judgement, reason=""))
    return outcome


def without_causes(outcome: Outcome) -> Outcome:
    """Return the outcome without its breakdown and the parts that say why it failed. Documents hold
    them in words that have changed since, and waiting for a rank that computes longer has become
    straggler wait. The bounds of an A/A pair have become those by which it can be INVALID."""
    judgement = outcome.judgement
    failed = judgement.verdict is Verdict.FAIL and outcome.failure is None
    if failed or outcome.detection is not None:
        judgement = replace(judgement, reason="")
    if outcome.comparison.judged_as is JudgedAs.AA_PAIR:
        judgement = replace(judgement, reason="", figure=None, early=None)
    return replace(outcome, judgement=judgement, detection=None, cause=None, breakdown=None)


def in_twelve_digits(value: Any) -> Any:
    """Return plain values with twelve digits of every number: since Python 3.12, `sum` rounds
    otherwise than when the documents were written."""
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, list):
        return [in_twelve_digits(each) for each in value]
    if isinstance(value, dict):
        return {name: in_twelve_digits(each) for name, each in value.items()}
    return value


@pytest.mark.parametrize(("session", "case"), RECORDED, ids=named)
def test_recorded_rounds_are_judged_as_they_were(session, case):
    again = judge_of(session, case).outcome(case.comparison, case.rounds, final=True)
    recorded = case.outcome
    assert again.judgement.verdict is recorded.judgement.verdict
    ours, theirs = (
        in_twelve_digits(plain(without_causes(without_reason_of_the_session(each))))
        for each in (again, recorded)
    )
    assert ours == theirs
    if again.detection is not None and recorded.detection is not None:
        ours, theirs = again.detection, recorded.detection
        assert ours.reported is theirs.reported
        named = [(each.attribution.term, each.attribution.rank) for each in (ours, theirs)]
        assert named[0] == named[1]


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
