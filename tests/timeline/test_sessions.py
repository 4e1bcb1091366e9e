"""A session of the suite in a process of its own: when there was none, and what is said then."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.plan.questions import weak_scaling
from hvdperf.timeline import places
from hvdperf.timeline.releases.backfill import measure
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

        monkeypatch.setattr("hvdperf.timeline.processes.ended", run)

    return ended


@pytest.mark.parametrize(("status", "verdict"), [(0, Verdict.PASS), (1, Verdict.FAIL)])
def test_a_throughput_does_not_depend_on_the_verdict(ends, status, verdict):
    ends(status, verdict)
    assert {each.world_size for each in measure(STACK, quiet=False).series} == {1, 2}


@pytest.mark.parametrize(
    ("status", "verdict", "said"),
    [
        (5, Verdict.NOT_JUDGED, "no valid case that measured a throughput"),
        *((status, Verdict.PASS, f"ended with status {status}") for status in (2, 3, 4)),
        (-signal.SIGKILL, Verdict.PASS, "ended with status -9"),
    ],
)
def test_what_is_no_session_says_why(ends, status, verdict, said):
    ends(status, verdict)
    with pytest.raises(UserError, match=f"nothing was measured of .*{said}"):
        measure(STACK, quiet=False)
