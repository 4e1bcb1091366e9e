"""Is training fast enough when gradients are exchanged in another way than by default?"""

import pytest

from hvdperf.plan.questions import exchanges


@pytest.mark.question(ask=exchanges)
def test_exchange(comparison, measure):
    """S_other / S_default reaches the machine's floor: half precision, one group, Adasum, no
    fusion, a long cycle, ..."""
    assert measure(comparison).passed
