"""Is Horovod as fast as MirroredStrategy on the same devices?"""

import pytest

from hvdperf.plan.questions import parity


@pytest.mark.question(ask=parity, smallest=1)
def test_parity(comparison, measure):
    """S_horovod / S_mirrored lies in the machine's band, and both train the same weights."""
    assert measure(comparison).passed
