"""What do collective operations cost through Horovod, and what do they leave of a step?"""

import pytest

from hvdperf.plan.questions import at_gradient_sizes, bound, sweep


@pytest.mark.question(ask=sweep)
def test_sweep(comparison, measure):
    """64 KB to 128 MB: time through Horovod / time through the bare transport, its ceiling."""
    assert measure(comparison).passed


@pytest.mark.question(ask=at_gradient_sizes)
def test_gradients(comparison, measure):
    """All gradients of a step: allreduce through Horovod / through the bare transport."""
    assert measure(comparison).passed


@pytest.mark.question(ask=bound)
def test_bound(comparison, measure):
    """A step is not faster than its longer part, nor much slower than both one after the other."""
    assert measure(comparison).passed
