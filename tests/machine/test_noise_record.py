"""What the noise record of a machine knows of its rounds, and what that does to intervals."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from hvdperf.interim import early_interval, judge_rounds
from hvdperf.machine.host import Machine
from hvdperf.machine.noise_record import Load, read_record
from hvdperf.stats import MOST_CORRELATED, RoundMoments, round_moments
from hvdperf.verdict import ALPHA, Floor, Noise, Verdict

MACHINE = Machine("host", (0, 1), cpu_model="EPYC")
LOOKS = (8, 12)


def series(correlation: float, rounds: int, generator: np.random.Generator) -> list[list[float]]:
    """Return rounds of one turn, with a standard deviation of 1."""
    values = [generator.standard_normal()]
    for _ in range(rounds - 1):
        fresh = math.sqrt(1 - correlation**2) * generator.standard_normal()
        values.append(correlation * values[-1] + fresh)
    return [[value] for value in values]


def moments(correlation: float, rounds: int, sessions: int, seed: int = 1) -> RoundMoments:
    generator = np.random.default_rng(seed)
    drawn = (round_moments([series(correlation, rounds, generator)]) for _ in range(sessions))
    return sum(drawn, RoundMoments())


@pytest.mark.parametrize("rounds", [2, 3, 8])
def test_short_sessions_give_an_unbiased_correlation_of_independent_rounds(rounds):
    found = moments(0.0, rounds, 4000)
    assert found.products / found.squares == pytest.approx(0.0, abs=0.03)
    assert found.pairs == 4000 * (rounds - 1)


def test_a_correlation_is_known_from_many_sessions_though_too_low_and_limited():
    assert 0.15 < moments(0.3, 8, 400).correlation < 0.3
    assert moments(0.3, 96, 400).correlation == pytest.approx(0.3, abs=0.03)
    assert moments(0.95, 24, 400).correlation == MOST_CORRELATED


def test_what_may_be_chance_is_no_correlation():
    assert moments(0.0, 8, 20).correlation == 0.0
    assert RoundMoments(0.3, 1.0, 40).correlation == 0.0, "two standard errors are 0.32"
    assert RoundMoments(0.33, 1.0, 40).correlation == 0.33
    assert RoundMoments().correlation == 0.0
    assert round_moments([]) == round_moments([[[0.1]]]) == RoundMoments()
    rows = series(0.3, 8, np.random.default_rng(2))
    assert round_moments([rows, rows]).pairs == 7, "comparisons of one network share their rounds"


def test_the_record_pools_sessions_and_keeps_the_latest(tmp_path: Path):
    for number in range(25):
        record = read_record(tmp_path, MACHINE)
        record.add(f"{number:02}", {Load.SEVERAL: 1e-4}, RoundMoments(0.03, 0.1, 7))
        known = read_record(tmp_path, MACHINE)
        assert known.correlation_of_rounds == pytest.approx(0.3 if number >= 6 else 0.0)
    assert len(known.known.rounds) == 20
    noise = known.noise(Load.SEVERAL, 0.1)
    assert noise.of_rounds == pytest.approx(0.3)
    assert noise.widening == pytest.approx(math.sqrt(1.3 / 0.7))


def test_intervals_are_wider_where_rounds_are_correlated():
    generator = np.random.default_rng(3)
    rows = (0.02 * generator.standard_normal((8, 4))).tolist()
    factor = Noise(of_rounds=0.3).widening
    judged = judge_rounds(rows, Floor.at(0.9), LOOKS, Noise(0.02, of_rounds=0.3))
    assert judged.widened == factor
    early = early_interval(rows[:3], ALPHA, Noise(0.02))
    wide = early_interval(rows[:3], ALPHA, Noise(0.02, of_rounds=0.3))
    assert early is not None
    assert wide is not None
    ratio = math.log(wide.upper / wide.lower) / math.log(early.upper / early.lower)
    assert ratio == pytest.approx(factor)


def test_error_rates_at_a_floor_are_those_of_independent_rounds():
    """Correlated by 0.3: without the record 7.6 % FAIL within twelve rounds, with it 3 %."""
    generator = np.random.default_rng(4)
    failed = {0.0: 0, 0.3: 0}
    for _ in range(1000):
        rows = series(0.3, 12, generator)
        for known in failed:
            verdicts = [
                judge_rounds(rows[:look], Floor.at(1.0), LOOKS, Noise(of_rounds=known)).verdict
                for look in LOOKS
            ]
            failed[known] += Verdict.FAIL in verdicts
    assert failed[0.3] <= 45 < failed[0.0]
