"""Does a training take less time on n replicas, and is all of its time explained?"""

import pytest

from hvdperf.plan.questions import wall_time


@pytest.mark.question(ask=wall_time)
def test_wall_time(comparison, measure):
    """Efficiency by wall time reaches the machine's floor, with as many steps on each replica, and
    with the steps divided. The case is INVALID if a time breakdown leaves time unexplained."""
    assert measure(comparison).passed
