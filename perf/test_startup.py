"""How long does a start take, phase by phase?"""

import pytest

from hvdperf.plan.questions import startup


@pytest.mark.question(ask=startup, smallest=1)
def test_startup(comparison, measure):
    """Init, trace per gradient tensor, first step and broadcast, each against its own ceiling."""
    assert measure(comparison).passed
