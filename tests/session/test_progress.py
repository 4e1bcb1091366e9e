"""How long it will be, as the live line says it."""

from __future__ import annotations

import pytest

from hvdperf.session.progress import until
from hvdperf.session.workload_run import Doing


@pytest.mark.parametrize(
    ("next_look", "budget_ends", "text"),
    [
        (130.4, 900.0, ", next interim analysis in 30 s"),
        (99.0, 900.0, ", next interim analysis due"),
        (None, 400.0, ", 300 s left"),
        (None, 100.0, ""),
    ],
)
def test_it_tells_of_the_next_look_and_until_that_is_known_of_the_budget(
    next_look, budget_ends, text
):
    assert until(Doing("a network", "start", next_look, budget_ends), 100.0) == text
