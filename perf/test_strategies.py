"""Is Horovod as fast as plain TensorFlow, and as TensorFlow's own workers?"""

import pytest

from hvdperf.plan.questions import horovod_overhead, multiworker


@pytest.mark.question(ask=horovod_overhead, smallest=1, largest=1)
def test_horovod_overhead(comparison, measure):
    """S_horovod / S_single at one replica, without exchange, reaches the machine's floor, and both
    train the same weights."""
    assert measure(comparison).passed


@pytest.mark.question(ask=multiworker)
def test_multiworker(comparison, measure):
    """S_horovod / S_multiworker, one process a replica in both, reaches the machine's floor."""
    assert measure(comparison).passed
