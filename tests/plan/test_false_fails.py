"""The number of false FAILs that limits mean, compared with nights by the real rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from hvdperf.interim import judge_rounds
from hvdperf.plan.proposals import Scatter, distance_for, false_fail, of_year, scatter
from hvdperf.stats import NotMeasurable
from hvdperf.verdict import Band, Ceiling, Floor, Rule, Verdict

LOOKS = (8, 12, 24)


def sessions(rounds: float, nights: float, count: int, seed: int, of: int = 8) -> list[list[float]]:
    """Return sessions around 0. rounds, nights: standard deviations. of: rounds of a session."""
    generator = np.random.default_rng(seed)
    of_nights = nights * generator.standard_normal((count, 1))
    drawn: list[list[float]] = (
        of_nights + rounds * generator.standard_normal((count, of))
    ).tolist()
    return drawn


def fails(rule: Rule, values: Sequence[float], looks: Sequence[int]) -> bool:
    verdicts = (
        judge_rounds([[value] for value in values[:look]], rule, looks, None).verdict
        for look in looks
    )
    decided = (verdict for verdict in verdicts if verdict is not Verdict.INCONCLUSIVE)
    return next(decided, None) is Verdict.FAIL


@pytest.mark.parametrize(
    ("rule", "nights"),
    [
        (Floor.at(math.exp(0.01)), 0.0),
        (Floor.at(math.exp(-0.03)), 0.03),
        (Ceiling(math.exp(0.03)), 0.03),
        (Band(math.exp(-0.03), math.exp(0.03)), 0.03),
    ],
    ids=str,
)
@pytest.mark.parametrize("looks", [(8,), (8, 12), LOOKS], ids=str)
def test_with_many_known_sessions_it_is_the_share_of_nights_that_fail(
    rule: Rule, nights: float, looks: tuple[int, ...]
) -> None:
    known = scatter(sessions(0.04, nights, 2000, seed=1))
    told = false_fail(rule, known, looks)
    counted = np.mean(
        [fails(rule, night, looks) for night in sessions(0.04, nights, 3000, 2, looks[-1])]
    )
    assert counted > 0.015
    # Never too low, up to three standard errors; at most 1.7 times too high, as is documented.
    error = 3 * math.sqrt(counted / 3000)
    assert counted - error <= told <= 1.7 * counted + error


@pytest.mark.parametrize("count", [4, 8])
@pytest.mark.parametrize("of", [3, 8])
def test_a_limit_from_few_sessions_fails_as_many_of_their_next_nights_as_it_says(
    count: int, of: int
) -> None:
    """Each limit comes from sessions of its own, so that some are unlucky."""
    probability, total = 0.05, 400
    failed = 0
    for seed in range(total):
        *known, night = sessions(0.03, 0.02, count + 1, seed, of=LOOKS[-1])
        noise = scatter([values[:of] for values in known])
        distance = distance_for(probability, 0.025, noise, LOOKS)
        failed += fails(Floor.at(min(math.exp(noise.centre - distance), 1)), night, LOOKS)
    # Four standard errors of a share of 0.05 of 400.
    assert failed / total <= probability + 0.044
    assert failed / total >= probability / 5, "much farther than needed"


def test_few_sessions_leave_more_open_than_many() -> None:
    few = Scatter(4, 0.0, 0.0001, 0.0009, 28, 8)
    many = replace(few, sessions=40, freedom=280)
    far = [distance_for(1e-5, 0.025, known, LOOKS) for known in (few, many)]
    assert far[0] > 4 * far[1]
    rule = Floor.at(math.exp(-far[1]))
    assert false_fail(rule, many, LOOKS) == pytest.approx(1e-5, rel=0.1)
    assert false_fail(rule, few, LOOKS) > 1e-3


def test_sessions_that_differ_cost_false_fails() -> None:
    quiet, moving = (scatter(sessions(0.02, nights, 12, seed=3)) for nights in (0.0, 0.05))
    assert quiet.between < 0.01 < 0.03 < moving.between
    rule = Floor.at(0.9)
    assert false_fail(rule, quiet, LOOKS) < 1e-4 < 1e-2 < false_fail(rule, moving, LOOKS)


@pytest.mark.parametrize("rule", [Floor.at(0.9), Band(0.9, 1 / 0.9), Ceiling(1 / 0.9)], ids=str)
def test_what_never_moves_fails_only_beyond_its_limit(rule: Rule) -> None:
    assert false_fail(rule, scatter([[0.0] * 8] * 4), LOOKS) == 0
    beyond = 0.2 if isinstance(rule, Ceiling) else -0.2
    assert false_fail(rule, scatter([[beyond] * 8] * 4), LOOKS) == pytest.approx(1)


def test_looks_with_too_few_rounds_for_a_bound_never_fail() -> None:
    assert false_fail(Floor.at(1.0), scatter(sessions(0.1, 0.1, 8, seed=4)), (6,)) == 0


def test_the_year_of_several_lines_is_their_sum() -> None:
    lines: list[tuple[Rule, Scatter]] = [
        (Floor.at(0.97), scatter(sessions(0.03, 0.01, 10, seed=5))),
        (Ceiling(1.05), scatter(sessions(0.03, 0.02, 10, seed=6))),
    ]
    each = [365 * false_fail(rule, known, LOOKS) for rule, known in lines]
    assert of_year(lines, LOOKS) == pytest.approx(sum(each))


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([[0.1] * 30], "one session does not show"),
        ([[0.1], [0.2]], "no session has two rounds"),
        ([[0.1, math.nan], [0.1, 0.2]], "not finite"),
    ],
)
def test_what_shows_no_noise_is_told(values: list[list[float]], told: str) -> None:
    with pytest.raises(NotMeasurable, match=told):
        scatter(values)
