"""How often an A/A pair is INVALID, by simulated pairs (docs/error_rates.md has more of them)."""

import pytest
import scipy.stats

from bench.identical_groups import BIAS, MACHINES, found, table


@pytest.mark.parametrize("machine", MACHINES)
def test_a_healthy_pair_is_invalid_in_at_most_1_of_1000_sessions(machine):
    of = found(machine, BIAS, 2_000)
    assert scipy.stats.binom.sf(len(of.invalid_after) - 1, of.pairs, 0.001) >= 0.001
    assert of.rounds < 3.6 * of.pairs, "few healthy pairs ask for more rounds"


@pytest.mark.parametrize("ratio", [0.7, 1.3])
@pytest.mark.parametrize("machine", MACHINES)
def test_a_difference_of_30_percent_is_found_in_19_of_20_sessions(machine, ratio):
    of = found(machine, ratio, 200)
    assert len(of.invalid_after) >= 0.92 * of.pairs, "19 of 20, less the scatter of 200"


@pytest.mark.parametrize(("machine", "ratio"), [("quiet", 0.7), ("quiet", 1.3), ("A", 0.7)])
def test_it_is_found_after_three_rounds_where_their_noise_allows_it(machine, ratio):
    of = found(machine, ratio, 200)
    assert of.at_once >= 0.95 * of.pairs


def test_the_command_prints_a_table():
    assert len(table(20)) == 2 + 3 * len(MACHINES)
