"""Does a training script of the user's own (--script) scale, start and run as it should?"""

import pytest

from hvdperf.plan.questions import (
    aa,
    communication,
    memory,
    startup,
    throughput,
    weak_scaling,
)


@pytest.mark.question(ask=weak_scaling, against_from=1, scripts=True)
def test_weak_scaling(comparison, measure):
    """S_n / (n S_1) reaches the machine's floor, with the batch that the script gives a rank."""
    assert measure(comparison).passed


@pytest.mark.question(ask=communication, scripts=True)
def test_communication_efficiency(comparison, measure):
    """The speed of a step over its speed without the time from a rank's last gradient to the end of
    the exchange reaches the machine's floor."""
    assert measure(comparison).passed


@pytest.mark.question(ask=startup, smallest=1, scripts=True)
def test_startup(comparison, measure):
    """Init and first step are not above their ceilings; --against compares the trace, too."""
    assert measure(comparison).passed


@pytest.mark.question(ask=memory, smallest=1, scripts=True)
def test_memory(comparison, measure):
    """The factor by which a rank grows in 1,000 steps is not above the machine's ceiling."""
    assert measure(comparison).passed


@pytest.mark.question(ask=throughput, smallest=1, scripts=True)
def test_throughput(comparison, measure):
    """S_n reaches the floor in samples/s that the machine's thresholds have for it."""
    assert measure(comparison).passed


@pytest.mark.question(ask=aa, scripts=True)
def test_aa(comparison, measure):
    """Two groups of the script (an A/A pair) do not differ, as far as this machine can show it."""
    assert measure(comparison).passed
