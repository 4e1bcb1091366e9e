"""Is a training done sooner on n replicas, and is all of its time accounted for?"""

import pytest

from hvdperf.plan.questions import wall_time


@pytest.mark.question(ask=wall_time)
def test_wall_time(comparison, measure):
    """Efficiency by wall time reaches the machine's floor, with as many steps on each replica and
    with the steps divided. Every second of both runs is accounted for, or the case is INVALID."""
    assert measure(comparison).passed
