"""Do n replicas do n times the work of one?"""

import pytest

from hvdperf.plan.questions import communication, strong_scaling, weak_scaling


@pytest.mark.question(ask=weak_scaling, against_from=1)
def test_weak_scaling(comparison, measure):
    """S_n / (n S_1) reaches the machine's floor if every replica takes a full batch. Two stacks are
    compared by S_n, and by S_1, too."""
    assert measure(comparison).passed


@pytest.mark.question(ask=strong_scaling)
def test_strong_scaling(comparison, measure):
    """S_n / (n S_1) reaches the machine's floor if one batch is divided among the replicas."""
    assert measure(comparison).passed


@pytest.mark.question(ask=communication)
def test_communication_efficiency(comparison, measure):
    """The speed of a step with allreduce over that without, within one launch, reaches the
    machine's floor."""
    assert measure(comparison).passed
