"""Is every phase of a start short enough?"""

import pytest

from hvdperf.plan.questions import startup


@pytest.mark.question(ask=startup, smallest=1)
def test_startup(comparison, measure):
    """Init, trace per gradient tensor, first step and broadcast are not above their ceilings."""
    assert measure(comparison).passed
