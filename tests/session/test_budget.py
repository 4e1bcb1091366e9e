"""The time that a session has for its rounds."""

from __future__ import annotations

import pytest

from hvdperf.session.budget import Budget


@pytest.mark.parametrize(
    ("now", "seconds", "allowed"),
    [(100.0, 60.0, True), (130.0, 30.0, True), (130.0, 30.1, False), (161.0, 0.0, False)],
)
def test_work_is_allowed_if_it_would_end_in_time(now, seconds, allowed):
    budget = Budget(began=100.0, seconds=60.0, clock=lambda: now)
    assert budget.ends == 160.0
    assert budget.allows(seconds) is allowed
