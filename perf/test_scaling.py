"""Do n replicas do n times the work of one?"""

import pytest

from hvdperf.plan.questions import communication, strong_scaling, weak_scaling


@pytest.mark.question(ask=weak_scaling, against_from=1)
def test_weak_scaling(comparison, measure):
    """Every replica takes a full batch: S_n / (n S_1) against the machine's floor. Of two stacks
    their S_n, S_1 too."""
    assert measure(comparison).passed


@pytest.mark.question(ask=strong_scaling)
def test_strong_scaling(comparison, measure):
    """One batch is divided among the replicas: S_n / (n S_1) against the machine's floor."""
    assert measure(comparison).passed


@pytest.mark.question(ask=communication)
def test_communication_efficiency(comparison, measure):
    """What the allreduce leaves of a step's speed, within one launch."""
    assert measure(comparison).passed
