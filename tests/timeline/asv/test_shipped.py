"""The history that ships is whole, and what asv reads is made of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hvdperf.timeline import places
from hvdperf.timeline.asv.export import make_trees
from hvdperf.timeline.releases.backfill import State, combinations
from hvdperf.timeline.releases.raw import Axis, read_history


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_no_raw_result_is_refused():
    results, refused = read_history(places.RAW)
    assert refused == []
    assert results


def test_asvs_files_are_made_of_the_raw_results(tmp_path, monkeypatch):
    shipped = {axis: files(path) for axis, path in places.RESULTS.items()}
    monkeypatch.setattr(places, "RESULTS", {axis: tmp_path / axis.value for axis in Axis})
    monkeypatch.setattr(places, "GENERATED", tmp_path / ".asv")
    make_trees(places.RAW)
    for axis, path in places.RESULTS.items():
        assert files(path) == shipped[axis]


def test_the_matrix_that_ships_has_no_silent_hole():
    results, _ = read_history(places.RAW)
    found = list(combinations(results, None))
    assert [each.name for each in found if each.state is State.MISSING] == []
    measured = {(e.horovod, e.tensorflow) for e in found if e.state is State.MEASURED}
    wanted = ("2.14.1", "2.15.1", "2.16.2", "2.18.1")
    assert {(horovod, tf) for horovod in ("0.28.0", "0.28.1") for tf in wanted} <= measured


@pytest.mark.parametrize("record", sorted(places.NOT_BUILT.glob("*.json")), ids=lambda p: p.stem)
def test_what_cannot_be_built_is_told_without_places_of_a_machine(record):
    document = json.loads(record.read_text())
    assert record.stem == f"horovod-{document['horovod']}-tensorflow-{document['tensorflow']}"
    assert " /" not in f" {document['reason']}", "a path of that machine"
    assert document["compiler"]
