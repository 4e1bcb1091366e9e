"""Sessions come into the history once, whole or not at all."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvdperf.plan.questions import weak_scaling
from hvdperf.timeline import places
from hvdperf.timeline.asv.export import make_trees
from hvdperf.timeline.releases.raw import Axis, keep_sessions
from hvdperf.verdict import Verdict
from tests.support.histories import raw_result, written
from tests.support.rounds import WORKLOAD, outcome
from tests.support.stores import case_of, write_session

WEAK = weak_scaling(WORKLOAD, 2)


@pytest.fixture
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout's results/ and .asv/ of the test's own."""
    results = {axis: tmp_path / "results" / axis.value for axis in Axis}
    monkeypatch.setattr(places, "RESULTS", results)
    monkeypatch.setattr(places, "GENERATED", tmp_path / ".asv")
    return tmp_path


def one_session(runs: Path, session: str, verdict: Verdict = Verdict.PASS) -> None:
    write_session(runs, case_of(outcome(WEAK, (0.9, 0.8), verdict=verdict), session=session))


def files(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_importing_twice_changes_nothing(own_places):
    runs, root = own_places / "runs", own_places / "history"
    one_session(runs, "20260131T120000Z-1")
    one_session(runs, "20260201T120000Z-1")
    one_session(runs, "20260202T120000Z-1", Verdict.INVALID)
    *told, unsound = keep_sessions(runs, root)
    assert len(told) == 2
    assert all("2 series" in line for line in told)
    assert "not in the history" in unsound
    make_trees(root)
    before = files(own_places)
    assert keep_sessions(runs, root) == [unsound]
    assert all(list(places.RESULTS[axis].glob("*/*-virtualenv-*.json")) for axis in Axis)
    assert make_trees(root)[1] == []
    assert files(own_places) == before


def test_a_directory_that_cannot_be_read_stops_no_other(own_places, monkeypatch):
    runs, root = own_places / "runs", own_places / "history"
    someone_elses = runs / "20260131T120000Z-1"
    one_session(runs, someone_elses.name)
    one_session(runs, "20260201T120000Z-1")
    list_directory = Path.iterdir

    # As of another user's; root may read everything.
    def refuse(path: Path) -> Iterator[Path]:
        if path == someone_elses:
            raise PermissionError(errno.EACCES, "Permission denied")
        return list_directory(path)

    monkeypatch.setattr(Path, "iterdir", refuse)
    refused, kept = keep_sessions(runs, root)
    assert "20260131T120000Z-1: not in the history" in refused
    assert "Permission denied" in refused
    assert "2 series" in kept


def test_what_is_refused_is_left_out_of_the_trees(own_places):
    root = own_places / "history"
    written(root, raw_result("0.28.0", number=1))
    make_trees(root)
    before = files(own_places / "results")
    bad = written(root, raw_result("0.28.1", number=2))
    bad.write_text(bad.read_text().replace('"cores": 2', '"cores": 3'))
    _, (line,) = make_trees(root)
    assert "a foreign fingerprint" in line
    assert files(own_places / "results") == before
