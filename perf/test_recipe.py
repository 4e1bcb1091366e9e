"""What becomes of the speed with mixed precision, or a learning rate that all ranks agree on?"""

import pytest

from hvdperf.plan.questions import recipes


@pytest.mark.question(ask=recipes, smallest=1)
def test_recipe(comparison, measure):
    """S_other / S_workload: trained in another way against the workload as it is."""
    assert measure(comparison).passed
