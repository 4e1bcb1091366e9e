"""Are collective operations through Horovod slow, and do they slow down a step?"""

import pytest

from hvdperf.plan.questions import at_gradient_sizes, overlap, sweep


@pytest.mark.question(ask=sweep)
def test_sweep(comparison, measure):
    """Time through Horovod / time through the bare transport, from 64 KB to 128 MB, is not above
    the machine's ceiling."""
    assert measure(comparison).passed


@pytest.mark.question(ask=at_gradient_sizes)
def test_gradients(comparison, measure):
    """Time of an allreduce of all gradients of a step, through Horovod / through the bare
    transport, is not above the machine's ceiling."""
    assert measure(comparison).passed


@pytest.mark.question(ask=overlap)
def test_overlap(comparison, measure):
    """A step is not faster than the longer of its parts, computation and exchange, and not much
    slower than both parts one after the other."""
    assert measure(comparison).passed
