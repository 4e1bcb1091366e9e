"""Does a rank grow while it trains?"""

import pytest

from hvdperf.plan.questions import memory


@pytest.mark.question(ask=memory, smallest=1)
def test_memory(comparison, measure):
    """By what factor the resident set rises in 1,000 steps, against the machine's ceiling."""
    assert measure(comparison).passed
