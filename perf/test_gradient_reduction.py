"""Is training fast enough when gradients are exchanged in another way than by default?"""

import pytest

from hvdperf.plan.questions import gradient_reductions


@pytest.mark.question(ask=gradient_reductions)
def test_gradient_reduction(comparison, measure):
    """S_other / S_default reaches the machine's floor: half precision, one group, Adasum, no
    fusion, a long cycle, ..."""
    assert measure(comparison).passed
