"""Is training fast enough with mixed precision, or a learning rate that all ranks agree on?"""

import pytest

from hvdperf.plan.questions import recipes


@pytest.mark.question(ask=recipes, smallest=1)
def test_recipe(comparison, measure):
    """S_other / S_workload reaches the machine's floor: another way of training over the workload's
    own."""
    assert measure(comparison).passed
