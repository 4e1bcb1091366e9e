"""Does the memory of a rank grow during training?"""

import pytest

from hvdperf.plan.questions import memory


@pytest.mark.question(ask=memory, smallest=1)
def test_memory(comparison, measure):
    """The factor by which the resident set grows in 1,000 steps is not above the machine's
    ceiling."""
    assert measure(comparison).passed
