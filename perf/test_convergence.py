"""Does a training reach the usual loss and accuracy, and enough samples in a given time?"""

import pytest

from hvdperf.plan.questions import fixed_epochs, fixed_time


@pytest.mark.question(ask=fixed_epochs)
def test_fixed_epochs(comparison, measure):
    """Validation loss and accuracy are equivalent (TOST) to MirroredStrategy's and to plain
    TensorFlow's, within the machine's band. Each round has a seed of its own."""
    assert measure(comparison).passed


@pytest.mark.question(ask=fixed_time)
def test_fixed_time(comparison, measure):
    """Samples N that n replicas and one replica train on in the same wall time: N_n / (n N_1)
    reaches the machine's floor."""
    assert measure(comparison).passed
