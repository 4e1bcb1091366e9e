"""Does the suite see nothing where nothing is, and what is there?"""

import pytest

from hvdperf.plan.questions import same, trials


@pytest.mark.question(ask=same)
def test_same(comparison, measure):
    """Two groups of one arm do the same, as far as this machine lets that be seen."""
    assert measure(comparison).passed


@pytest.mark.question(ask=trials, smallest=1)
def test_planted(comparison, measure):
    """What is planted is noticed, called by the right name, and blamed on whoever does it."""
    assert measure(comparison).passed
