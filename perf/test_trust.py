"""Does the suite find no difference between identical groups, and does it detect faults?"""

import pytest

from hvdperf.plan.questions import aa, fault_cases


@pytest.mark.question(ask=aa)
def test_aa(comparison, measure):
    """Two groups of one arm (an A/A pair) do not differ, as far as this machine can show it."""
    assert measure(comparison).passed


@pytest.mark.question(ask=fault_cases, smallest=1)
def test_faults(comparison, measure):
    """An injected fault is detected with the expected verdict, and attributed to the right term
    and rank."""
    assert measure(comparison).passed
