"""Is the speed itself what it has to be? Ratios stay as they are when everything becomes slower."""

import pytest

from hvdperf.plan.questions import throughput


@pytest.mark.question(ask=throughput, smallest=1)
def test_throughput(comparison, measure):
    """S_n reaches the floor in samples/s that the machine's thresholds have for it."""
    assert measure(comparison).passed
