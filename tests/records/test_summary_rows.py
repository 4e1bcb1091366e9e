"""A case in a row, for machines."""

from __future__ import annotations

import pytest

from hvdperf.json_records import decode, encode
from hvdperf.plan.questions import memory, parity, weak_scaling
from hvdperf.records.documents import Case, Limit
from hvdperf.records.documents import properties, row_of
from hvdperf.verdict import REGRESSION, Band, Ceiling, Floor, Verdict
from tests.support.rounds import WORKLOAD, outcome
from tests.support.stores import case_of

RATIOS = (0.91, 0.92, 0.93, 0.94, 0.95, 0.96)
WEAK = weak_scaling(WORKLOAD, 2)


@pytest.mark.parametrize(
    ("rule", "limit"),
    [
        (Floor.at(0.9), Limit(0.9, None)),
        (REGRESSION, Limit(0.98, None)),
        (Band(0.75, 1.33), Limit(0.75, 1.33)),
        (Ceiling(1.02, unit=""), Limit(None, 1.02)),
    ],
)
def test_a_row_tells_what_the_figure_is_held_to(rule, limit):
    measured = outcome(WEAK, RATIOS, rule, Verdict.FAIL)
    row, figure = row_of(measured), measured.judgement.figure
    assert row.limit == limit
    assert figure is not None
    assert (row.lower, row.figure, row.upper) == (figure.lower, figure.estimate, figure.upper)


def test_a_case_without_a_figure_has_a_row_too():
    row = row_of(outcome(WEAK, (), verdict=Verdict.NOT_RUN, reason="too late"))
    assert (row.figure, row.lower, row.upper, row.rounds) == (None, None, None, 0)
    assert (row.verdict, row.reason) == (Verdict.NOT_RUN, "too late")


@pytest.mark.parametrize("ratios", [RATIOS, RATIOS[:2], ()])
@pytest.mark.parametrize("ask", [weak_scaling, parity, memory])
def test_a_case_that_is_read_back_has_the_same_row(ask, ratios):
    measured = outcome(ask(WORKLOAD, 2), ratios, verdict=Verdict.INCONCLUSIVE, reason="why")
    assert row_of(decode(encode(case_of(measured)), Case).outcome) == row_of(measured)


def test_properties_are_those_that_are_known():
    assert dict(properties(outcome(WEAK, RATIOS, Floor.at(0.9)))).keys() == {
        *("verdict", "figure", "lower", "upper", "limit"),
    }
    unbounded = dict(properties(outcome(WEAK, RATIOS[:1], Floor.at(0.9), Verdict.INCONCLUSIVE)))
    assert unbounded == {
        "verdict": "INCONCLUSIVE",
        "figure": pytest.approx(0.91),
        "limit": ">= 0.9",
    }
