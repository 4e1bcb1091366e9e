"""What does Horovod cost against plain TensorFlow, and against TensorFlow's own workers?"""

import pytest

from hvdperf.plan.questions import multiworker, tax


@pytest.mark.question(ask=tax, smallest=1, largest=1)
def test_tax(comparison, measure):
    """One replica, nothing to exchange: S_horovod / S_single, once both train the same weights."""
    assert measure(comparison).passed


@pytest.mark.question(ask=multiworker)
def test_multiworker(comparison, measure):
    """S_horovod / S_multiworker, one process a replica in both."""
    assert measure(comparison).passed
