"""A session of the suite for one stack: when there was none, and what is said then."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.plan.questions import weak_scaling
from hvdperf.timeline import places
from hvdperf.timeline.releases.measure import measure
from hvdperf.verdict import Verdict
from tests.support.reports import session_of
from tests.support.rounds import WORKLOAD, outcome

STACK = Path("stack/bin/python")


@pytest.fixture
def ends(tmp_path, monkeypatch):
    """Have the session end with a status, after it has written a case with a verdict."""
    monkeypatch.setattr(places, "MEASURED", tmp_path)

    def ended(status: int, verdict: Verdict) -> None:
        def run(*_: object) -> int:
            made = outcome(weak_scaling(WORKLOAD, 2), [0.9] * 6, verdict=verdict)
            session_of(tmp_path / "stack", made)
            return status

        monkeypatch.setattr("hvdperf.timeline.sessions.ended", run)

    return ended


@pytest.mark.parametrize(("status", "verdict"), [(0, Verdict.PASS), (1, Verdict.FAIL)])
def test_a_throughput_does_not_depend_on_the_verdict(ends, status, verdict):
    ends(status, verdict)
    assert {each.world_size for each in measure(STACK, quiet=False).series} == {1, 2}


def test_where_nothing_was_judged_the_documents_say_why(ends):
    ends(5, Verdict.NOT_JUDGED)
    with pytest.raises(UserError, match="no valid case that measured a throughput"):
        measure(STACK, quiet=False)


@pytest.mark.parametrize("status", [2, 3, 4, -signal.SIGKILL])
def test_a_session_that_was_interrupted_or_killed_is_none(ends, status):
    ends(status, Verdict.PASS)
    with pytest.raises(UserError, match=f"nothing was measured of .* ended with status {status}"):
        measure(STACK, quiet=False)
