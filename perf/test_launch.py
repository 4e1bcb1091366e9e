"""How much speed does a launch by default cost, and which of its settings?"""

import pytest

from hvdperf.plan.questions import launches


@pytest.mark.question(ask=launches)
def test_launch(comparison, measure):
    """S_default / S_suite reaches the machine's floor: all settings of a launch as Open MPI and
    TensorFlow have them, or one of them."""
    assert measure(comparison).passed
