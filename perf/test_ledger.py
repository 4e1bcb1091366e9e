"""How much sooner is a training done on n replicas, and where does the time go?"""

import pytest

from hvdperf.plan.questions import wall_time


@pytest.mark.question(ask=wall_time)
def test_wall_time(comparison, measure):
    """By wall time, of as many steps each and of steps divided, against the machine's floors; every
    second of both runs is accounted for, or the case is INVALID."""
    assert measure(comparison).passed
