"""Sessions are read from disk; a file that is not whole is named, left out, and hurts no other."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdperf.errors import UserError
from hvdperf.files import write_record
from hvdperf.json_records import Unreadable, encode, plain
from hvdperf.plan.arms import Collective
from hvdperf.plan.questions import parity, sweep, weak_scaling
from hvdperf.records.archive import (
    Archive,
    OfEarlierFormat,
    Store,
    read_document,
    read_session,
)
from hvdperf.records.documents import FORMAT, Case
from hvdperf.records.outcome import Outcome, each_launch
from hvdperf.verdict import Band, Ceiling
from hvdperf.work.blocks import turns_of
from tests.support.damage import FUZZ, damaged_json
from tests.support.rounds import WORKLOAD, one_round, outcome
from tests.support.sessions import ALL, noisy
from tests.support.stores import SESSION, case_of, session_of_cases, write_session

RATIOS = (0.91, 0.92, 0.93, 0.94, 0.95, 0.96)
WEAK = case_of(outcome(weak_scaling(WORKLOAD, 2), RATIOS))
PARITY = case_of(outcome(parity(WORKLOAD, 2), RATIOS, Band(0.75, 1.33)))
WEAK_FILE = "weak_scaling-resnet_50_s-np2.json"
ROUNDS_FILE = "rounds/resnet_50_s-blocks.json"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return the directory of a session of two cases."""
    return write_session(tmp_path / "runs", WEAK, PARITY)


def names(archive: Archive) -> list[str]:
    return [case.name for case in archive.cases]


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


# Reading ---------------------------------------------------------------------------------------


def test_a_session_is_read_as_it_was_written_also_where_it_was_moved_to(directory, tmp_path):
    archive = read_session(directory)
    assert archive.left_out == ()
    assert names(archive) == ["parity[resnet_50_s-np2]", "weak_scaling[resnet_50_s-np2]"]
    parity, weak = archive.cases
    assert plain(weak) == plain(WEAK)
    assert replace(parity.outcome, rounds=()) == replace(PARITY.outcome, rounds=())
    other = parity.comparison.reference.arm
    read, written = ([plain(each.of(other)) for each in case.rounds] for case in (parity, PARITY))
    assert read == written
    assert archive.session is not None
    written_at = archive.session.written_at
    assert archive.session == replace(session_of_cases(WEAK, PARITY), written_at=written_at)
    assert archive.unfinished == ""
    moved = read_session(directory.rename(tmp_path / "baseline"))
    assert names(moved) == names(archive)


def test_a_session_that_has_not_ended_says_so(tmp_path):
    archive = read_session(write_session(tmp_path, WEAK, exit_status=None))
    assert "the session still runs, or was killed" in archive.unfinished


def test_a_session_without_a_whole_document_of_its_own_is_refused(directory):
    (directory / "session.json").write_text(f'{{"format": {FORMAT}}}')
    with pytest.raises(UserError, match=r"session\.json: .*missing required field"):
        read_session(directory)
    (directory / "session.json").unlink()
    with pytest.raises(UserError, match=r"there is no session\.json in it; give"):
        read_session(directory)


@pytest.mark.parametrize("name", ["missing", "a_file", "a_loop"])
def test_what_is_no_directory_is_refused(tmp_path, name):
    (tmp_path / "a_file").write_text("{}")
    (tmp_path / "a_loop").symlink_to("a_loop")
    with pytest.raises(UserError, match=f"{name}: .*; give the directory of a session") as raised:
        read_session(tmp_path / name)
    assert "\n" not in str(raised.value)


# What is left out ------------------------------------------------------------------------------


def left_out(directory: Path) -> str:
    """Return the line about the one file that was left out of the two cases."""
    archive = read_session(directory)
    (line,) = archive.left_out
    assert "\n" not in line
    assert names(archive) == [PARITY.name]
    assert WEAK_FILE in line
    return line


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d.pop("outcome"), "missing required field `outcome`"),
        (lambda d: d["outcome"]["judgement"].update(verdict="FINE"), "judgement.verdict: Invalid"),
        (lambda d: d.pop("format"), "missing required field `format`"),
        (lambda d: d.update(format=99), "of format 99, which a later version of the suite wrote"),
        (lambda d: d.update(session="20250101T000000Z-1"), "of another session, 20250101T0"),
        (lambda d: d.update(name=PARITY.name), "a copy of parity-resnet_50_s-np2.json"),
        (lambda d: d["rounds"].append(6), "round 6 is not in rounds/resnet_50_s-blocks.json"),
    ],
)
def test_a_document_that_is_not_whole_or_in_its_place_is_left_out(directory, change, told):
    edit(directory / WEAK_FILE, change)
    assert told in left_out(directory)


def without_a_launch(arm: int):
    def change(document: dict[str, Any]) -> None:
        document["rounds"][1]["launches"].pop(arm)

    return change


@pytest.mark.parametrize(
    ("change", "told", "left"),
    [
        # Horovod's launch is a side of both cases, and MirroredStrategy's of one.
        (without_a_launch(0), "lacks a side", []),
        (without_a_launch(2), "round 1 is not in rounds/resnet_50_s-blocks.json, or lacks", [WEAK]),
        (lambda d: d.update(session="20250101T000000Z-1"), "of another session, 20250101T0", []),
        (lambda d: d["group"].__setitem__(1, "startup"), "a copy of resnet_50_s-startup", []),
    ],
)
def test_cases_without_their_rounds_are_left_out_and_no_others(directory, change, told, left):
    edit(directory / ROUNDS_FILE, change)
    archive = read_session(directory)
    assert names(archive) == [case.name for case in left]
    assert any(told in line for line in archive.left_out)
    assert not any("\n" in line for line in archive.left_out)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "not valid JSON"),
        (b"[" * 100_000, "Expected `object`, got `array`"),
        (b'{"format": 1e999}', "format: Number out of range"),
    ],
)
def test_what_is_no_document_is_left_out(directory, text, told):
    (directory / WEAK_FILE).write_bytes(text)
    assert told in left_out(directory)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (Path.mkdir, "no document of a session"),
        (os.mkfifo, "no document of a session"),
        (lambda path: path.symlink_to(path.name), "cannot be read: Too many levels of"),
    ],
)
def test_what_is_no_file_is_left_out(directory, make, told):
    (directory / WEAK_FILE).unlink()
    make(directory / WEAK_FILE)
    assert told in left_out(directory)


def test_other_files_are_named(directory):
    copied = (directory / WEAK_FILE).read_bytes()
    (directory / "notes.txt").write_text("mine")
    (directory / "plots").mkdir()
    (directory / "weak_scaling-resnet_50_s-np4.partial").write_bytes(copied[:100])
    (directory / "a copy.json").write_bytes(copied)
    (directory / "of\ntwo lines.json").write_bytes(copied)
    archive = read_session(directory)
    assert len(archive.cases) == 2
    reasons = [line.partition(": left out: ")[2] for line in archive.left_out]
    assert reasons == [
        "a copy of weak_scaling-resnet_50_s-np2.json",
        "no document of a session",
        "a copy of weak_scaling-resnet_50_s-np2.json",
        "no document of a session",
        "half-written: the session ended while it wrote this",
    ]
    assert not any("\n" in line for line in archive.left_out)


# Any damage ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_one_round(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a session of two cases, small because every example reads it."""
    weak = case_of(outcome(weak_scaling(WORKLOAD, 2), RATIOS[:1]))
    other = case_of(outcome(parity(WORKLOAD, 2), RATIOS[:1], Band(0.75, 1.33)))
    return write_session(tmp_path_factory.mktemp("runs"), weak, other)


@pytest.mark.parametrize("name", [WEAK_FILE, ROUNDS_FILE, "session.json"])
@FUZZ
@given(data=st.data())
def test_a_damaged_file_is_read_or_named_and_hurts_no_other(of_one_round, name, data):
    path = of_one_round / name
    whole = path.read_text()
    path.write_text(damaged_json(data, whole), errors="surrogatepass")
    try:
        found = read_session(of_one_round)
    except UserError as error:
        assert name == "session.json" or "of format" in str(error)
        assert "\n" not in str(error)
        return
    finally:
        path.write_text(whole)
    assert not any("\n" in line for line in found.left_out)
    if found.session.session != SESSION:
        # The session has another name now, so the cases and their rounds are not of it.
        assert len(found.left_out) == 3
        assert not found.cases
    elif name == WEAK_FILE:
        assert PARITY.name in names(found)
        assert len(found.cases) + len(found.left_out) == 2
    elif name == ROUNDS_FILE:
        assert len(found.cases) == 2 or found.left_out
    else:
        assert names(found) == [PARITY.name, WEAK.name]
        assert not found.left_out


def written_case(measured: Outcome) -> Case:
    """Return a case as it is while the session runs: its rounds have the launches of all cases."""
    return replace(case_of(measured), outcome=measured)


def test_each_launch_of_several_cases_is_stored_once(stage, tmp_path):
    stage.script.speed = noisy(0.9, 0.05)
    outcomes = [*stage.measure(*ALL).values()]
    directory = write_session(tmp_path, *map(written_case, (*stage.opened, *outcomes)))
    distinct = len([*each_launch(outcomes)])
    assert distinct > 3 * 8
    on_disk = "".join(path.read_text() for path in directory.rglob("*.json"))
    assert on_disk.count('"startup_seconds"') <= 1.1 * distinct
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
    directory = write_session(tmp_path, written_case(measured))
    (case,) = read_session(directory).cases
    for launched in case.rounds[0].launches:
        assert {each.transfer.collective for each in launched.series} == {Collective.ALLGATHER}
    (path,) = directory.glob("rounds/*.json")
    assert {Collective.ALLREDUCE.value, Collective.ALLGATHER.value} == {
        series["transfer"]["collective"]
        for launch in json.loads(path.read_text())["rounds"][0]["launches"]
        for series in launch["work"]["series"]
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

    write_session(tmp_path)
    kept = Store(directory)
    monkeypatch.setattr("hvdperf.records.archive.write_record", dying)
    with suppress(OSError):
        for count in range(1, 4):
            kept.write(case_of(outcome(WEAK.comparison, [0.9] * count)))
    assert len(files) == written
    archive = read_session(directory)
    assert [len(case.rounds) for case in archive.cases] == [1] * (written in (2, 3))
    assert all("half-written" in line for line in archive.left_out)


# Other formats ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["session.json", WEAK_FILE, ROUNDS_FILE])
def test_a_session_of_an_earlier_format_is_refused_in_one_line(directory, name):
    edit(directory / name, lambda document: document.update(format=FORMAT - 1))
    with pytest.raises(UserError) as caught:
        read_session(directory)
    assert str(caught.value).endswith(
        f"of format {FORMAT - 1}, which an earlier version of the suite wrote; this version reads "
        f"format {FORMAT}: measure again, or use that version"
    )
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("made", "error"), [(7, OfEarlierFormat), (9, Unreadable)])
def test_one_format_is_read(tmp_path, made, error):
    path = tmp_path / "case.json"
    path.write_bytes(encode(replace(WEAK, format=8)))
    assert plain(read_document(path, Case, 8)) == plain(replace(WEAK, format=8))
    path.write_bytes(encode(replace(WEAK, format=made)))
    with pytest.raises(error, match=f"of format {made}, .*reads format 8"):
        read_document(path, Case, 8)
    known = {made: lambda earlier: {**earlier, "format": 8}}
    assert plain(read_document(path, Case, 8, known)) == plain(replace(WEAK, format=8))
