"""Each launch of a session is on disk once, and a session that ends while it writes is whole."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from hvdperf.files import write_record
from hvdperf.json_records import plain
from hvdperf.plan.arms import Collective
from hvdperf.plan.questions import sweep
from hvdperf.records import archive
from hvdperf.records.archive import read_session
from hvdperf.records.documents import Case
from hvdperf.records.outcome import Outcome, each_launch
from hvdperf.records.archive import Store
from hvdperf.verdict import Ceiling
from hvdperf.work.blocks import turns_of
from tests.support.rounds import WORKLOAD, one_round, outcome
from tests.support.sessions import ALL, WEAK, noisy
from tests.support.stores import SESSION, case_of


def written_case(measured: Outcome) -> Case:
    """Return a case as it is while the session runs: its rounds have the launches of all cases."""
    return replace(case_of(measured), outcome=measured)


def launches_on_disk(directory: Path) -> int:
    """Return the number of launches in the documents of a session, repeated ones included."""
    return sum(path.read_text().count('"startup_seconds"') for path in directory.rglob("*.json"))


def test_each_launch_of_several_cases_is_stored_once(stage, tmp_path):
    stage.script.speed = noisy(0.9, 0.05)
    outcomes = [*stage.measure(*ALL).values()]
    directory = tmp_path / SESSION
    directory.mkdir()
    kept = Store(directory)
    for each in (*stage.opened, *outcomes):
        kept.write(written_case(each))
    distinct = len([*each_launch(outcomes)])
    assert distinct > 3 * 8
    assert launches_on_disk(directory) <= 1.1 * distinct
    archive = read_session(directory)
    assert archive.left_out == ()
    read = {case.name: plain(case.outcome) for case in archive.cases}
    assert read == {o.comparison.name: plain(case_of(o).outcome) for o in outcomes}
    assert sum(len(case.rounds) * len(case.comparison.arms) for case in archive.cases) > distinct
    assert len({id(launch) for _, _, launch in each_launch(archive.cases)}) == distinct


def test_a_case_of_a_sweep_has_the_series_of_its_operation(tmp_path):
    allreduce, allgather = sweep(WORKLOAD, 2)[:2]
    measured = outcome(allgather, [4.0], Ceiling(20.0, unit=""))
    for launched in measured.rounds[0].launches:
        turns_of(launched).series += one_round(allreduce, 4.0).of(launched.arm).series
    directory = tmp_path / SESSION
    directory.mkdir()
    Store(directory).write(written_case(measured))
    (case,) = read_session(directory).cases
    for launched in case.rounds[0].launches:
        assert {each.transfer.collective for each in launched.series} == {Collective.ALLGATHER}
    (path,) = directory.glob("rounds/*.json")
    assert {Collective.ALLREDUCE.value, Collective.ALLGATHER.value} == {
        series["transfer"]["collective"]
        for launch in json.loads(path.read_text())["rounds"][0]["launches"]
        for series in launch["series"]
    }


@pytest.mark.parametrize("written", range(4))
def test_a_session_that_ends_while_it_writes_has_whole_cases(tmp_path, monkeypatch, written):
    """It ends before the third round, or its case, is written."""
    directory, files = tmp_path / SESSION, list[Path]()

    def dying(path: Path, record: object) -> Path:
        if len(files) == written:
            path.with_name(f"{path.name}.partial").write_text("{")
            raise OSError
        files.append(path)
        return write_record(path, record)

    directory.mkdir()
    kept = Store(directory)
    monkeypatch.setattr(store, "write_record", dying)
    with suppress(OSError):
        for count in range(1, 4):
            kept.write(case_of(outcome(WEAK, [0.9] * count)))
    assert len(files) == written
    archive = read_session(directory)
    assert [len(case.rounds) for case in archive.cases] == [1] * (written in (2, 3))
    assert all("half-written" in line for line in archive.left_out)
