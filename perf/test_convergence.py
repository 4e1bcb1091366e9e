"""What does a training end with, after so many epochs and after so long?"""

import pytest

from hvdperf.plan.questions import fixed_epochs, fixed_time


@pytest.mark.question(ask=fixed_epochs)
def test_fixed_epochs(comparison, measure):
    """Validation loss and accuracy against MirroredStrategy's and plain TensorFlow's, a seed a
    round: equivalent (TOST) in the machine's band."""
    assert measure(comparison).passed


@pytest.mark.question(ask=fixed_time)
def test_fixed_time(comparison, measure):
    """Samples that n replicas train on in the same wall time: N_n / (n N_1)."""
    assert measure(comparison).passed
