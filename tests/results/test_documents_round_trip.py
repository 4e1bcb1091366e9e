"""Whatever was observed, what is written is of the promised form and reads back to the same."""

import json
import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hvdperf.judge.outcome import Outcome
from hvdperf.plan.questions import communication, parity, startup, strong_scaling, weak_scaling
from hvdperf.results.archive import Case, read_session
from hvdperf.verdict import Band, Ceiling, Floor, Verdict, judge
from tests.support.rounds import HOROVOD_2, WORKLOAD, one_round
from tests.support.stores import make_store

WEAK = weak_scaling(WORKLOAD, 2)
ASKED = (
    (WEAK, Floor.at(0.9)),
    (strong_scaling(WORKLOAD, 2), Floor(0.98, 0.95)),
    (communication(WORKLOAD, 2), Floor.at(0.5)),
    (parity(WORKLOAD, 2), Band(0.75, 1.33)),
)
ROUND_TRIP = settings(deadline=None, max_examples=100)
# Whatever a float can be, and what a ratio is.
OBSERVATIONS = st.lists(st.floats() | st.floats(-1, 1), max_size=26)


def written_and_read(measured: Outcome) -> Case:
    """The case as the archive has it, which refuses what the schema does not promise."""
    with TemporaryDirectory() as scratch:
        store = make_store(Path(scratch))
        text = store.write_case(measured).read_text()
        archive = read_session(store.directory)
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert archive.left_out == ()
    (case,) = archive.cases
    return case


def judged(comparison, rule, observations) -> Outcome:
    return Outcome(
        comparison,
        judge(observations, rule),
        observations=tuple(observations),
        rounds=tuple(one_round(comparison, 0.9, number) for number in range(2)),
    )


@ROUND_TRIP
@given(st.sampled_from(ASKED), OBSERVATIONS)
def test_figures_and_verdicts_read_back_as_they_were(asked, observations):
    comparison, rule = asked
    measured = judged(comparison, rule, observations)
    case = written_and_read(measured)
    assert case.name == comparison.name
    assert case.question is comparison.question
    assert case.workload == comparison.workload
    assert case.verdict is measured.judgement.verdict
    assert case.reason == measured.judgement.reason
    # Bounds that bound nothing are null in the file, and infinite again: of ratios, from 0 on.
    assert case.figure == measured.judgement.figure
    stored = case.document["observations"]
    assert len(stored) == len(observations)
    for kept, observed in zip(stored, observations, strict=True):
        assert kept == (observed if math.isfinite(observed) else None)


@ROUND_TRIP
@given(OBSERVATIONS)
def test_a_case_that_was_measured_reads_back_as_sound(observations):
    case = written_and_read(judged(WEAK, Floor.at(0.9), observations))
    assert case.is_sound == (case.verdict is not Verdict.INVALID)


@ROUND_TRIP
@given(st.text(max_size=60), st.text(max_size=60), st.sampled_from(list(Verdict)))
def test_whatever_words_a_reason_has_it_reads_back(reason, line, verdict):
    measured = judged(WEAK, Floor.at(0.9), [-0.1] * 6)
    judgement = replace(measured.judgement, reason=reason, verdict=verdict)
    case = written_and_read(replace(measured, judgement=judgement, threshold_line=line))
    assert case.reason == reason
    assert case.document["verdict"]["threshold_line"] == line
    assert case.verdict is verdict


@ROUND_TRIP
@given(
    st.floats(0, exclude_min=True, allow_infinity=False), st.floats(1.0, 1e6), st.floats(0.01, 1)
)
def test_whatever_a_block_and_a_rule_hold_reads_back(seconds, ceiling, low):
    comparison = startup(WORKLOAD, 2)[0]
    measured = judged(comparison, Ceiling(ceiling), [0.0] * 6)
    for measured_round in measured.rounds:
        launched = measured_round.launches[HOROVOD_2]
        launched.blocks = [
            replace(block, ranks=[{**rank, "seconds": seconds} for rank in block.ranks])
            for block in launched.blocks
        ]
    case = written_and_read(measured)
    assert case.document["verdict"]["threshold"]["at_most"] == ceiling
    blocks = case.document["rounds"][0]["launches"][0]["blocks"]
    assert all(block["seconds"] == seconds for block in blocks)
    narrow = written_and_read(judged(parity(WORKLOAD, 2), Band(low, 1 / low), [0.0] * 6))
    assert narrow.document["verdict"]["threshold"] == {
        "kind": "band",
        "low": low,
        "high": 1 / low,
        "alpha": 0.05,
    }
