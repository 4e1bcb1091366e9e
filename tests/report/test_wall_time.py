"""The bars of a waterfall add up to the wall time that the session's clock saw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest

from hvdperf.explain.speedup import scaling_breakdown
from hvdperf.explain.time_breakdown import CLOSES_WITHIN
from hvdperf.plan.arms import TERMS, Term
from hvdperf.plan.questions import wall_time
from hvdperf.records.documents import Case
from hvdperf.report.content import Figure
from hvdperf.report.sections.wall_time import (
    GROUPS,
    SPEEDUPS,
    UNEXPLAINED,
    breakdown_of,
    section,
)
from hvdperf.verdict import Verdict
from hvdperf.work.training import stamped
from tests.report.cases import called, case_with, recorded, rounds_of, told
from tests.support.rounds import WORKLOAD, outcome
from tests.support.with_timestamps import round_with_timestamps

REAL = [
    f"wall_time-{way}-{model}-np2"
    for model in ("resnet_50_s", "vgg_16_s")
    for way in ("weak", "strong")
]
WEAK, STRONG = wall_time(WORKLOAD, 2)


def audited(comparison, rounds: int = 6, **candidate: Any) -> Case:
    """A case with a breakdown of so many rounds."""
    measured = tuple(
        round_with_timestamps(comparison, number, **candidate) for number in range(rounds)
    )
    whole = replace(
        outcome(comparison, [0.8] * rounds),
        rounds=measured,
        breakdown=scaling_breakdown(comparison, measured),
    )
    return case_with(whole)


def figures(*cases: Case) -> dict[str, Figure]:
    return told(section(cases))


def waterfall_of(case: Case) -> list[dict[str, Any]]:
    (figure,) = (each for name, each in figures(case).items() if "waterfall" in name)
    return [dict(row) for row in figure.table.rows]


def measured_wall_seconds(name: str, world_size: int) -> float:
    """By the orders of the session, as its own clock saw them: a mean over the rounds."""
    seconds = []
    for measured in rounds_of(name):
        (launch,) = (
            each for each in measured["launches"] if each["arm"]["world_size"] == world_size
        )
        asked = launch["work"]["timestamps"]["asked"]
        answered = next(end for op, _, end in asked if op == "run")
        _, begun, ended = asked[-1]
        seconds.append(answered + ended - begun)
    return fmean(seconds)


@pytest.mark.parametrize("name", REAL)
def test_the_bars_of_a_real_session_add_up_to_its_wall_time(name):
    (case,) = recorded(name)
    ideal, *bars, wall = waterfall_of(case)
    n = 2 if "strong" in name else 1
    assert ideal["to_s"] == pytest.approx(measured_wall_seconds(name, 1) / n)
    assert wall["to_s"] == breakdown_of(case).candidate.wall_seconds
    if "weak" in name:
        assert wall["to_s"] == pytest.approx(measured_wall_seconds(name, 2))
    assert ideal["to_s"] + math.fsum(bar["excess_s"] for bar in bars) == pytest.approx(wall["to_s"])
    # Each begins where the one before it has ended.
    at = ideal["to_s"]
    for bar in bars:
        assert bar["from_s"] == pytest.approx(at)
        at += bar["excess_s"]
        assert bar["to_s"] == pytest.approx(at)
    assert sorted(bar["term"] for bar in bars) == sorted((*TERMS, UNEXPLAINED))
    # A time breakdown that closes leaves as little in the plot.
    if "weak" in name:
        assert abs(bars[-1]["excess_s"]) <= 2 * CLOSES_WITHIN * wall["to_s"]
    for bar in bars[:-1]:
        assert bar["kind"] == ("longer" if bar["excess_s"] > 0 else "shorter")


def test_the_ideal_of_divided_steps_is_a_part_of_everything():
    ideal, *bars, wall = waterfall_of(audited(STRONG, exchange=0.003))
    spent = {bar["term"]: bar for bar in bars}
    # 40 steps of 19 ms on one replica, 20 of 22 ms on each of two.
    assert spent["compute"]["reference_s"] == pytest.approx(40 * 0.012 / 2)
    assert spent["compute"]["excess_s"] == pytest.approx(0)
    assert spent["exposed communication"]["excess_s"] == pytest.approx(20 * 0.003)
    assert spent["trace"]["excess_s"] == pytest.approx(2.0 - 2.0 / 2)
    assert spent[UNEXPLAINED]["excess_s"] == pytest.approx(0, abs=1e-6)
    assert wall["to_s"] - ideal["to_s"] == pytest.approx(sum(b["excess_s"] for b in bars))


def slowed(timestamps: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return the timestamps with a second more in three of the steps."""
    long = (10, 20, 30)
    return [
        [at + sum(step < number for step in long) for at in row[:2]]
        + [row[2] + sum(step <= number for step in long)]
        for number, row in enumerate(timestamps)
    ]


def test_rare_long_steps_of_a_training_are_told():
    case = audited(WEAK)
    (usual,) = (each for name, each in figures(case).items() if "waterfall" in name)
    for measured in case.rounds:
        work = stamped(measured.of(WEAK.candidate.arm))
        work.run = [replace(rank, timestamps=slowed(rank.timestamps)) for rank in work.run]
    (rare,) = (each for name, each in figures(case).items() if "waterfall" in name)
    assert "long steps" not in usual.says
    assert "Rare long steps, 2 ranks: a step in 11 takes 1 s longer (82 % of the time)" in rare.says


def test_seconds_without_a_term_are_shown():
    *_, unexplained, _ = waterfall_of(audited(WEAK, unexplained=0.7))
    assert unexplained["excess_s"] == pytest.approx(0.7)


def test_shares_are_those_of_the_breakdowns_by_world_size():
    cases = [audited(wall_time(WORKLOAD, n)[0], exchange=0.003) for n in (4, 2)]
    figure = figures(*cases)["wall_time-shares"]
    sizes = [f"resnet_50_s, {size}" for size in ("1 replica", "2 replicas", "4 replicas")]
    assert [row["what"] for row in figure.table.rows] == sizes
    for case in cases:
        (own,) = [
            row for row in figure.table.rows if str(case.world_size) in str(row["what"])[-10:]
        ]
        spent = breakdown_of(case).candidate
        shares = [float(each) for each in own.values() if isinstance(each, float)]
        assert math.fsum(shares) == pytest.approx(
            100 * sum(spent.terms.values()) / spent.wall_seconds
        )


def test_every_term_has_a_group_and_the_palette_is_enough():
    assert sorted(term for terms in GROUPS.values() for term in terms) == sorted(TERMS)
    assert len(GROUPS) == 8


def test_ratios_are_those_of_the_breakdown():
    case = audited(WEAK, late=[0.0, 0.004], exchange=0.003)
    breakdown, found = breakdown_of(case), figures(case)
    (row,) = found["wall_time-factors"].table.rows
    for name in ("computation", "communication", "load_balance"):
        factor = getattr(breakdown, name)
        told = (row[name], row[f"{name}_low"], row[f"{name}_high"])
        assert told == (factor.estimate, factor.lower, factor.upper)
    assert row["late_rank"] == 1
    assert (row["explained"] == "yes") is breakdown.explained
    assert row["lag_ms"] == pytest.approx(4.0)
    says = found["wall_time-waterfall-weak-resnet_50_s-np2"].says
    for name, title in SPEEDUPS.items():
        assert f"{getattr(breakdown, name).estimate:.2f} {title}" in says


@pytest.mark.parametrize(("below", "told"), [(None, (100 * 3 / 22, None)), (0.2, (None, 20.0))])
def test_of_exposed_communication_that_cannot_be_told_from_none_there_is_a_bound(below, told):
    case = audited(WEAK, exchange=0.003)
    breakdown = breakdown_of(case)
    bounds = {} if below is None else {Term.EXCHANGE.value: below}
    spent = replace(breakdown.candidate, below=bounds)
    whole = replace(case.outcome, breakdown=replace(breakdown, candidate=spent))
    (row,) = figures(case_with(whole))["wall_time-factors"].table.rows
    assert (row["exposed_share"], row["exposed_below"]) == pytest.approx(told)


def test_where_replicas_share_cores_every_name_says_so():
    found = figures(called(audited(WEAK), Verdict.INFO), audited(STRONG))
    (row,) = found["wall_time-factors"].table.rows
    assert str(row["what"]).endswith("not judged")
    assert "not judged" in found["wall_time-waterfall-weak-resnet_50_s-np2"].title
    assert "not judged" not in found["wall_time-waterfall-strong-resnet_50_s-np2"].title


def test_evidence_that_is_not_to_be_trusted_is_no_breakdown():
    assert section([called(audited(WEAK), Verdict.INVALID)]).missing


def test_one_round_bounds_nothing_and_strong_scaling_has_no_shares():
    found = figures(audited(STRONG, rounds=1))
    (row,) = found["wall_time-factors"].table.rows
    assert row["computation_low"] is row["computation_high"] is None
    assert "wall_time-shares" not in found
