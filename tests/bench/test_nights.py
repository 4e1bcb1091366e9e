"""The figures of docs/error_rates.md on what is found night by night, from fewer years."""

from __future__ import annotations

import numpy as np
import pytest

from bench.nights import (
    FALLING,
    FALLING_NODES,
    LOSSES,
    OF_GATES,
    OF_NODES,
    QUIET,
    A,
    B,
    Gate,
    at_most,
    false_events,
    found,
)
from hvdperf.interim import judge_rounds, next_look
from hvdperf.verdict import REGRESSION, Noise, Verdict


@pytest.mark.long
@pytest.mark.parametrize("differ", FALLING)
def test_throughputs_fall_once_a_year_at_most_if_nothing_has_changed(differ: str) -> None:
    events, nights = false_events(FALLING[differ], 2)
    assert events <= 2
    assert nights <= 8


@pytest.mark.long
@pytest.mark.parametrize("slowed", ["all", "one network", "one throughput"])
def test_throughputs_that_fall_are_found(slowed: str) -> None:
    assert found(FALLING["3 %"], LOSSES[f"{slowed} -50 %"], 3) == (1, 1)
    if slowed != "one throughput":
        assert found(FALLING["3 %"], LOSSES[f"{slowed} -15 %"], 5)[0] >= 0.8
        assert found(FALLING["1.5 %"], LOSSES[f"{slowed} -5 %"], 5)[1] >= 0.7


@pytest.mark.long
def test_a_node_that_loses_a_sixth_is_found_and_no_other_is_blamed() -> None:
    assert found(FALLING_NODES["1 %"], OF_NODES["a node -15 %"], 3)[1] == 1
    assert false_events(FALLING_NODES["1 %"], 1)[0] <= 1


def test_none_in_twenty_years_is_no_proof_of_none() -> None:
    assert at_most(0, 20) == pytest.approx(0.15, abs=0.01)


@pytest.mark.parametrize("looks", [(8, 12, 24), (8, 12)])
@pytest.mark.parametrize("machine", [QUIET, A, B], ids=["quiet", "A", "B"])
def test_all_cases_of_a_gate_are_judged_as_the_suite_judges_each(
    machine: tuple[float, float], looks: tuple[int, ...]
) -> None:
    gate = Gate(*machine, looks=looks)
    turns = gate.turns(np.full(40, np.log(0.97)), np.random.default_rng(3))
    noise = Noise(max(0.02, gate.launches))
    for row, rounds in zip(gate.rows(turns, range(40)), turns.tolist(), strict=True):
        count = 0
        while True:
            count = next_look(count, looks, early=True)
            verdict = judge_rounds(rounds[:count], REGRESSION, looks, noise).verdict
            if verdict is not Verdict.INCONCLUSIVE or count == looks[-1]:
                break
        assert (row.verdict, len(row.observations)) == (verdict, count)


@pytest.mark.long
@pytest.mark.parametrize("gate", [Gate(*QUIET), Gate(*A, between=0.01)], ids=str)
def test_a_gate_has_an_alarm_a_year_at_most_if_nothing_is_slower(gate: Gate) -> None:
    alarms, fails = false_events(gate, 1)
    assert alarms <= 1
    assert gate == Gate(*QUIET) or fails > 100, "by one night each"


def test_a_gate_finds_half_the_speed_of_a_case_at_once_though_rounds_differ_wildly() -> None:
    assert found(Gate(*B), OF_GATES["one case -50 %"], 2)[0] == 1


def test_a_quiet_gate_finds_a_sixth_of_a_case_and_a_twentieth_of_all_at_once() -> None:
    gate = Gate(*QUIET, between=0.01)
    for loss in ("one case -15 %", "all -5 %"):
        assert found(gate, OF_GATES[loss], 1)[0] == 1
