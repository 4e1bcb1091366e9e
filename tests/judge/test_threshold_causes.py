"""The cause of a start or a training that misses its threshold, without or beside a reference."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

import pytest

from hvdperf.explain.attribution import told
from hvdperf.plan.arms import Term
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.questions import startup, wall_time
from hvdperf.records.outcome import Attribution
from hvdperf.records.rounds import Round
from hvdperf.work.table import attributed
from tests.support.rounds import WORKLOAD, one_round
from tests.support.with_timestamps import round_with_timestamps

ROUNDS = 8
HOSTS = ("node1", "node1", "node2", "node2")
WEAK, STRONG = wall_time(WORKLOAD, 2)


def started(
    phase: str, longer: Mapping[int, Mapping[str, float]], n: int = 4, hosts: Sequence[str] = ()
) -> Attribution:
    """Return the cause of starts whose phase is judged. longer: factors by rank and phase."""
    (asked,) = [each for each in startup(WORKLOAD, n) if each.question.spec.part == phase]
    noise = random.Random(1)
    rounds = [one_round(asked, 1.0, number) for number in range(ROUNDS)]
    for each in rounds:
        launch = each.of(asked.candidate.arm)
        launch.startup_seconds = [
            {
                name: seconds * longer.get(rank, {}).get(name, 1.0) * noise.lognormvariate(0, 0.05)
                for name, seconds in of_rank.items()
            }
            for rank, of_rank in enumerate(launch.startup_seconds)
        ]
    return attributed(asked, rounds, hosts)


def test_of_a_slow_start_the_slow_rank_is_named() -> None:
    found = started("trace", {2: {"trace": 1.5}})
    assert (found.term, found.at_fault) == ("trace", (2,))
    assert found.share == pytest.approx(0.5, abs=0.1)
    found = started("trace", {2: {"trace": 1.5}, 3: {"trace": 1.5}}, hosts=HOSTS)
    assert (found.at_fault, found.host) == ((2, 3), "node2")


def test_of_a_start_that_is_slow_on_all_ranks_none_is_named() -> None:
    found = started("trace", {})
    assert (found.term, found.at_fault, found.share) == ("trace", (), 0.0)
    assert found.seconds == pytest.approx(2.5, rel=0.1)


def test_who_comes_late_to_the_broadcast_is_named_with_what_made_it_late() -> None:
    # The others wait in their broadcast for it.
    waits = {rank: {"broadcast": 6.0} for rank in (0, 1, 2)}
    found = started("broadcast", {**waits, 3: {"trace": 1.6}})
    assert (found.term, found.at_fault) == ("trace", (3,))


def trained(comparison: Comparison, **how: object) -> Attribution:
    rounds: list[Round] = [round_with_timestamps(comparison, i, **how) for i in range(ROUNDS)]
    return attributed(comparison, rounds)


def test_of_a_training_the_largest_cause_is_told_first() -> None:
    found = trained(WEAK, late=[0.0, 0.03])
    assert (found.term, found.at_fault) == (Term.BETWEEN, (1,))
    found = trained(WEAK, exchange=0.03)
    assert (found.term, found.at_fault) == (Term.EXCHANGE, ())
    assert found.share > 0.15


def test_of_a_divided_training_the_fixed_cost_is_told() -> None:
    found = trained(STRONG)
    # Ideal is half of 2 s of trace, and of 1 s of first step.
    assert [cause.term for cause in found.causes] == [Term.TRACE, Term.FIRST_STEP]
    assert all(cause.at_fault == () for cause in found.causes)
    assert found.seconds == pytest.approx(2.0)


def test_of_a_training_that_is_ideal_nothing_is_told() -> None:
    assert trained(WEAK).causes == ()


def test_a_start_is_told_in_seconds_and_a_step_in_milliseconds() -> None:
    start = Attribution("trace", 2, 2.0, seconds=7.5, others_seconds=2.5)
    assert re.findall(r"[\d.]+", told(start, "alone")) == ["2", "7.5", "2.5"]
    step = Attribution(
        *("input wait", None, 0.9),
        seconds=0.344,
        step_seconds=0.369,
        usual_seconds=0.012,
        usual_step_seconds=0.04,
    )
    assert re.findall(r"[\d.]+", told(step, "alone")) == ["344", "369", "12.0", "40.0"]
