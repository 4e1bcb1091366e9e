"""How often arms take turns depends on what varies from turn to turn."""

from __future__ import annotations

import random

import pytest
from harness.turns import most_turns, noise


def drawn(
    spread: float, turns: int = 5, rounds: int = 200, level: float = 0.0
) -> list[list[float]]:
    """Turns' ln ratios, of launches that differ by 5 %."""
    chance = random.Random(7)
    levels = [chance.gauss(level, 0.05) for _ in range(rounds)]
    return [[chance.gauss(of_launch, spread) for _ in range(turns)] for of_launch in levels]


@pytest.mark.parametrize("spread", [0.01, 0.04, 0.1])
def test_noise_is_what_turns_of_one_launch_differ_by(spread):
    assert noise(drawn(spread)) == pytest.approx(spread, rel=0.1)
    # Whichever side is the faster.
    assert noise(drawn(spread, level=-0.5)) == pytest.approx(noise(drawn(spread)), rel=1e-6)


def test_a_wild_turn_makes_no_noise():
    calm = drawn(0.01, rounds=8)
    assert noise([[*calm[0][:-1], 3.0], *calm[1:]]) < 0.02


def test_on_a_quiet_machine_turns_are_as_many_as_usual():
    assert most_turns(5, 0.04, drawn(0.02)) == 5
    assert most_turns(5, 0.04, [[0.1]]) == 5
    assert most_turns(5, 0.04, []) == 5


def test_their_number_grows_as_the_square_of_the_noise():
    exact = [[0.0, 0.08 * 2**0.5 / 1.4826]] * 8
    assert noise(exact) == pytest.approx(0.08)
    assert most_turns(5, 0.04, exact) == 20
    assert 25 <= most_turns(5, 0.04, drawn(0.1)) <= 38
