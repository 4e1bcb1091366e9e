"""Proposed files: they can be read, hold what was measured, and mean one false FAIL a year."""

from __future__ import annotations

import math
import tomllib
from itertools import chain
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from hvdperf.errors import UserError
from hvdperf.machine.host import Machine
from hvdperf.plan import proposals
from hvdperf.plan.comparisons import Question
from hvdperf.plan.proposals import Scatter, false_fail, holding_line, propose, scatter
from hvdperf.plan.thresholds import Case, load_thresholds, proposed_rule, select
from hvdperf.verdict import Band, Ceiling, Floor, Rule, Verdict, judge

WEAK, PARITY, TRACE = Question.WEAK_SCALING, Question.PARITY, Question.STARTUP_TRACE
LOOKS = (8, 12)
MACHINE = Machine("host", (0, 1), cpu_model='Odd "CPU"')


def sessions(
    centre: float, rounds: float, nights: float, count: int, seed: int = 1
) -> list[list[float]]:
    """Return sessions of 8 rounds. rounds, nights: standard deviations."""
    generator = np.random.default_rng(seed)
    of_nights = centre + nights * generator.standard_normal((count, 1))
    drawn: list[list[float]] = (of_nights + rounds * generator.standard_normal((count, 8))).tolist()
    return drawn


OBSERVED = {
    Case(WEAK, "vgg_16_s", 2, 1): sessions(math.log(0.8), 0.03, 0.01, 10, seed=2),
    Case(Question.COMMUNICATION, "alexnet_s", 8, 2): sessions(math.log(0.5), 0.03, 0, 10, seed=3),
    Case(PARITY, "vgg_16_s", 2, 1): sessions(math.log(1.1), 0.05, 0.01, 10, seed=4),
    Case(TRACE, "vgg_16_s", 2, 1): sessions(math.log(12.3), 0.05, 0.03, 10, seed=5),
}


def test_the_text_is_a_table_that_holds(tmp_path: Path) -> None:
    text = propose(OBSERVED, LOOKS, MACHINE)
    assert list(tomllib.loads(text)["thresholds"]) == [
        "weak_scaling/vgg_16_s/np2/one-node",
        "communication/alexnet_s/np8/2-nodes",
        "parity/vgg_16_s/np2/one-node",
        "startup_trace/vgg_16_s/np2/one-node",
    ]
    (tmp_path / "mine.toml").write_text(text)
    thresholds = select(MACHINE, tmp_path)
    lines: list[tuple[Rule, Scatter]] = []
    for case, values in OBSERVED.items():
        rule = thresholds.rule(case)
        assert rule is not None
        assert all(judge(each, rule).verdict is not Verdict.FAIL for each in values)
        assert judge([*chain(*values)], rule).verdict is Verdict.PASS
        lines.append((rule, scatter(values)))
    expected = proposals.of_year(lines, LOOKS)
    assert 0.5 * proposals.EXPECTED_A_YEAR < expected <= proposals.EXPECTED_A_YEAR
    told = " ".join(text.replace("#", " ").split())
    said = f"{proposals.year_in_words(expected)}, all cases together. Read from up to 10 sessions"
    assert told.startswith(said)
    assert "10 sessions, 80 rounds" in text


def test_limits_are_wider_where_nights_differ_and_where_fewer_are_known() -> None:
    def floor(nights: float, count: int) -> float:
        """Return the mean of ten floors, each of sessions of its own."""
        observed = {
            Case(WEAK, "vgg_16_s", n, 1): sessions(-0.2, 0.02, nights, count, seed=n)
            for n in range(2, 12)
        }
        return fmean(tomllib.loads(propose(observed, LOOKS, MACHINE))["thresholds"].values())

    assert floor(0.03, 40) < floor(0.01, 40)
    assert floor(0.03, 8) < floor(0.03, 40) - 0.03


def test_more_cases_share_the_one_false_fail() -> None:
    values = sessions(-0.2, 0.02, 0.02, 12)
    first = Case(WEAK, "vgg_16_s", 2, 1)
    alone, among = (
        tomllib.loads(
            propose({Case(WEAK, "vgg_16_s", n, 1): values for n in sizes}, LOOKS, MACHINE)
        )
        for sizes in ([2], range(2, 60))
    )
    key = "/".join(first.parts)
    assert among["thresholds"][key] < alone["thresholds"][key]


def test_a_quiet_machine_keeps_the_floor_that_passes_in_95_percent_of_sessions() -> None:
    case, values = Case(WEAK, "vgg_16_s", 2, 1), sessions(-0.2, 0.001, 0, 40)
    rule = proposed_rule(WEAK, [*chain(*values)], 8)
    assert isinstance(rule, Floor)
    assert f'one-node" = {rule.pass_from}\n' in propose({case: values}, LOOKS, MACHINE)


@pytest.mark.parametrize(
    ("kind", "question"), [(Floor, WEAK), (Band, PARITY), (Ceiling, TRACE)], ids=str
)
def test_a_line_that_holds_means_its_share(
    kind: type[Rule], question: Question, tmp_path: Path
) -> None:
    case, known = Case(question, "vgg_16_s", 2, 1), scatter(sessions(0.0, 0.03, 0.02, 12))
    path = tmp_path / "mine.toml"
    line = holding_line(case, kind, known, LOOKS, of=10)
    path.write_text(f'label = "mine"\n[match]\ndevice = "cpu"\n[thresholds]\n{line}\n')
    rule = load_thresholds(path).rule(case)
    assert isinstance(rule, kind)
    share = 365 * 10 * false_fail(rule, known, LOOKS)
    # A band has two ends, and limits are rounded to three digits.
    assert 0.5 <= share <= (2.0 if kind is Band else 1.0)


@pytest.mark.parametrize(
    ("values", "looks", "told"),
    [
        ([[0.0, 0.1]] * 7, LOOKS, "7 sessions are too few; measure at least 8"),
        ([[0.0, math.nan]] * 8, LOOKS, "not finite"),
        ([[0.0]] * 8, LOOKS, "no session has two rounds"),
        ([[0.0, 0.1]] * 8, (5, 12), "5 rounds give no finite interval; at least 6"),
        ([[4.0 * at] * 3 for at in range(8)], LOOKS, "sessions differ by 980 %, so no limit holds"),
    ],
)
def test_what_cannot_be_proposed_is_told_with_its_case(
    values: list[list[float]], looks: tuple[int, ...], told: str
) -> None:
    with pytest.raises(UserError, match="weak_scaling/vgg_16/np2/one-node") as caught:
        propose({Case(WEAK, "vgg_16", 2, 1): values}, looks, MACHINE)
    assert told in str(caught.value)
