"""The figures of docs/error_rates.md on proposed thresholds, from fewer files and nights."""

from __future__ import annotations

import numpy as np
import pytest

from bench import limits
from bench.limits import LOOKS, draw, floors, judged, meant, noise, observed, proposed
from hvdperf.session.proposals import NIGHTS
from hvdperf.verdict import Floor, Verdict

QUIET, MOVING = noise(0.026, 0.0), noise(0.026, 0.02)


def test_a_file_of_a_quiet_machine_passes_and_finds_what_is_ten_percent_slower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "COUNTED", NIGHTS)
    file = proposed((12, 8, QUIET), np.random.default_rng(1))
    assert file.expected <= 0.2
    assert file.counted == 0
    assert file.passed == 1
    assert file.found > 0.9


@pytest.mark.parametrize("sessions", [8, 12])
def test_19_of_20_files_mean_one_false_fail_a_year_at_most(
    sessions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CASES", 20)
    generator = np.random.default_rng(4)
    files = [floors(observed((sessions, 8, MOVING), generator)) for _ in range(20)]
    more = sum(meant(rules, MOVING) > 1 for rules in files)
    assert more <= 4, "five or more of 20 have a probability of 0.003"


@pytest.mark.parametrize("differ", [0.0, 0.02])
def test_what_floors_mean_by_the_formula_is_what_nights_count(differ: float) -> None:
    of = noise(0.026, differ)
    rules = [Floor.at(0.8 * (1.005 if differ == 0 else 0.98))] * limits.CASES
    nights = draw(of, np.random.default_rng(5), 60, LOOKS[-1])
    counted = (judged(rules, nights) == Verdict.FAIL).sum() * 365 / 60
    assert counted > 200
    assert 0.8 * counted <= meant(rules, of) <= 1.7 * counted
