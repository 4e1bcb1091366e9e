"""What was written is read back; what is not whole is named, left out, and hurts nothing else."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdperf.errors import UserError
from hvdperf.judge.outcome import Outcome
from hvdperf.launch.group import GroupFailed
from hvdperf.plan.question import Question
from hvdperf.plan.questions import parity, weak_scaling
from hvdperf.results import archive as archives
from hvdperf.results.archive import Archive, read_session
from hvdperf.verdict import Band, Verdict
from tests.support.damage import FUZZ, damaged_json, spots, with_something_strange
from tests.support.rounds import HOROVOD_2, WORKLOAD, outcome
from tests.support.stores import LATER, SESSION, make_store, session_document

RATIOS = (0.91, 0.92, 0.93, 0.94, 0.95, 0.96)
WEAK = weak_scaling(WORKLOAD, 2)
WEAK_FILE = "weak_scaling-resnet_50_s-np2.json"
PARITY_FILE = "parity-resnet_50_s-np2.json"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A session of two cases."""
    store = make_store(tmp_path / "runs")
    store.write_case(outcome(WEAK, RATIOS))
    store.write_case(outcome(parity(WORKLOAD, 2), RATIOS, Band(0.75, 1.33)))
    return store.directory


def names(archive: Archive) -> list[str]:
    return [case.name for case in archive.cases]


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


# Reading ---------------------------------------------------------------------------------------


def test_a_session_is_read_back(directory):
    archive = read_session(directory)
    assert names(archive) == ["parity[resnet_50_s-np2]", "weak_scaling[resnet_50_s-np2]"]
    assert archive.left_out == ()
    assert archive.session is None
    weak = archive.cases[1]
    assert weak.question is Question.WEAK_SCALING
    assert weak.workload == WORKLOAD
    assert (weak.world_size, weak.replicas_per_node) == (2, (2,))
    assert weak.verdict is Verdict.PASS
    assert weak.figure == outcome(WEAK, RATIOS).judgement.figure
    assert (weak.session, weak.failed, weak.reason) == (SESSION, False, "")
    assert weak.written_at <= datetime.now(weak.written_at.tzinfo)
    assert weak.fingerprint["tensorflow"] == "2.18.1"
    assert len(weak.document["rounds"]) == len(RATIOS)


def test_the_sessions_own_document_is_read(tmp_path):
    store = make_store(tmp_path)
    store.write_session(session_document(WEAK.name, Verdict.PASS))
    archive = read_session(store.directory)
    assert archive.session is not None
    assert archive.session["profile"] == "smoke"
    assert archive.cases == ()


def test_a_session_may_be_moved_with_its_document(tmp_path):
    store = make_store(tmp_path / "runs")
    store.write_case(outcome(WEAK, RATIOS))
    store.write_session(session_document(WEAK.name, Verdict.PASS))
    moved = store.directory.rename(tmp_path / "baseline")
    assert names(read_session(moved)) == [WEAK.name]


def test_bounds_that_bound_nothing_are_infinite(tmp_path):
    store = make_store(tmp_path)
    store.write_case(outcome(WEAK, RATIOS[:1]))
    (case,) = read_session(store.directory).cases
    assert case.figure is not None
    assert (case.figure.lower, case.figure.upper) == (0.0, math.inf)


def without_threshold() -> Outcome:
    measured = outcome(WEAK, RATIOS, verdict=Verdict.INVALID, reason="no threshold")
    return replace(measured, threshold_line='"weak_scaling" = 0.9')


def of_a_failed_launch() -> Outcome:
    failure = GroupFailed(HOROVOD_2.name, 1, "block", "it broke", [])
    return outcome(WEAK, RATIOS, verdict=Verdict.FAIL, failure=failure)


@pytest.mark.parametrize(
    ("measured", "sound"),
    [
        (outcome(WEAK, RATIOS), True),
        (outcome(WEAK, RATIOS, verdict=Verdict.FAIL), True),
        (outcome(WEAK, RATIOS, verdict=Verdict.INCONCLUSIVE), True),
        (without_threshold(), True),
        (outcome(WEAK, RATIOS, verdict=Verdict.INVALID, reason="a NaN"), False),
        (outcome(WEAK, RATIOS, verdict=Verdict.NOT_JUDGED, reason="they share a core"), False),
        (of_a_failed_launch(), False),
        (outcome(WEAK, (), verdict=Verdict.INCONCLUSIVE), False),
    ],
)
def test_a_figure_is_sound_where_it_was_measured(tmp_path, measured, sound):
    store = make_store(tmp_path)
    store.write_case(measured)
    (case,) = read_session(store.directory).cases
    assert case.is_sound is sound


@pytest.mark.parametrize("name", ["missing", "a_file"])
def test_what_is_no_directory_is_refused(tmp_path, name):
    (tmp_path / "a_file").write_text("{}")
    with pytest.raises(UserError, match=f"{name}: .*; give the directory of a session") as raised:
        read_session(tmp_path / name)
    assert "\n" not in str(raised.value)


# What is left out ------------------------------------------------------------------------------


def left_out(directory: Path) -> str:
    """The one line about the one file that was left out of the two cases."""
    archive = read_session(directory)
    (line,) = archive.left_out
    assert "\n" not in line
    assert names(archive) == ["parity[resnet_50_s-np2]"]
    return line


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d.pop("verdict"), "'verdict' is a required property"),
        (lambda d: d["plan"].pop("world_size"), "plan: 'world_size' is a required property"),
        (lambda d: d["verdict"].update(word="FINE"), "verdict.word: 'FINE' is not one of"),
        (lambda d: d.update(format=99), "format: 99 is not one of"),
        (lambda d: d.update(session="20250101T000000Z-1"), "of another session, 20250101T0"),
        (lambda d: d.update(case="parity[resnet_50_s-np2]"), "not the file of its case, parity"),
        (lambda d: d.update(replicas_per_node=[2, 2]), "[2, 2] are not 2 replicas"),
        (lambda d: d.update(written_at="yesterday"), "written_at: Invalid isoformat"),
    ],
)
def test_a_document_of_another_form_is_left_out(directory, change, told):
    edit(directory / WEAK_FILE, change)
    line = left_out(directory)
    assert WEAK_FILE in line
    assert told in line


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "not valid JSON: Expecting value"),
        (b"null", "None is not of type 'object'"),
        (b"[]", "[] is not of type 'object'"),
        (b'{"format": 1', "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 100_000, "nested more deeply"),
        (b'{"format": NaN}', "NaN is no number"),
        (b'{"format": 1e999}', "1e999 is no number"),
        (b'{"format": ' + b"9" * 400 + b"}", "99999 is no number"),
        (b'{"format": ' + b"9" * 9000 + b"}", "99999 is no number"),
    ],
)
def test_what_is_no_document_is_left_out(directory, text, told):
    (directory / WEAK_FILE).write_bytes(text)
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
        "not the file of its case, weak_scaling[resnet_50_s-np2]",
        "no document of a session",
        "not the file of its case, weak_scaling[resnet_50_s-np2]",
        "no document of a session",
        "half-written: the session ended while it wrote this",
    ]
    assert not any("\n" in line for line in archive.left_out)


def test_the_summary_of_the_documents_is_none_of_them(directory):
    (directory / "summary.json").write_text("{}")
    archive = read_session(directory)
    assert archive.left_out == ()
    assert archive.cases


def test_a_broken_session_document_leaves_the_cases(directory):
    (directory / "session.json").write_text('{"format": 2}')
    archive = read_session(directory)
    assert archive.session is None
    assert len(archive.cases) == 2
    assert "session.json: left out: " in archive.left_out[0]


@pytest.mark.parametrize("name", ["session.json", WEAK_FILE])
def test_a_session_of_an_earlier_version_is_one_line(directory, name):
    (directory / name).write_text('{"format": 1}')
    with pytest.raises(UserError) as caught:
        read_session(directory)
    assert str(caught.value).endswith(
        "of format 1, which an earlier version of the suite wrote; this version reads format 2: "
        "measure again, or use that version"
    )


def test_a_long_reason_is_cut(directory):
    edit(directory / WEAK_FILE, lambda d: d.update(rounds="x" * 10_000))
    assert len(left_out(directory)) < 400


# Any damage ------------------------------------------------------------------------------------


@cache
def documents() -> dict[str, str]:
    """The text of both cases; one round, since every example validates them."""
    with TemporaryDirectory() as scratch:
        store = make_store(Path(scratch))
        paths = [
            store.write_case(outcome(WEAK, RATIOS[:1])),
            store.write_case(outcome(parity(WORKLOAD, 2), RATIOS[:1], Band(0.75, 1.33))),
        ]
        return {path.name: path.read_text() for path in paths}


def damaged(content: bytes) -> Archive:
    """A session whose weak scaling reads so."""
    with TemporaryDirectory() as scratch:
        directory = Path(scratch) / SESSION
        directory.mkdir()
        (directory / PARITY_FILE).write_text(documents()[PARITY_FILE])
        (directory / WEAK_FILE).write_bytes(content)
        found = read_session(directory)
    assert "parity[resnet_50_s-np2]" in names(found)
    assert len(found.cases) + len(found.left_out) == 2
    assert not any("\n" in line for line in found.left_out)
    return found


@FUZZ
@given(st.data())
def test_a_text_that_ends_early_is_left_out(data):
    whole = documents()[WEAK_FILE].rstrip().encode()
    assert damaged(whole[: data.draw(st.integers(0, len(whole) - 1))]).left_out


@FUZZ
@given(st.data())
def test_a_field_that_is_missing_is_left_out(data):
    document = json.loads(documents()[WEAK_FILE])
    # What a rank reports of its start is not always the same.
    fields = [
        path
        for path in spots(document)
        if isinstance(path[-1], str) and not {"startup_seconds", "facts", *LATER} & set(path)
    ]
    *parents, field = data.draw(st.sampled_from(fields))
    node = document
    for key in parents:
        node = node[key]
    del node[field]
    assert damaged(json.dumps(document).encode()).left_out


@FUZZ
@given(st.data())
def test_whatever_stands_in_a_document_it_is_read_or_named(data):
    document = with_something_strange(data, json.loads(documents()[WEAK_FILE]))
    damaged(json.dumps(document).encode())


@FUZZ
@given(st.data())
def test_whatever_stands_in_what_a_session_says_of_itself_it_is_read_or_named(data):
    with TemporaryDirectory() as scratch:
        store = make_store(Path(scratch))
        (store.directory / WEAK_FILE).write_text(documents()[WEAK_FILE])
        written = store.write_session(session_document(WEAK.name, Verdict.PASS))
        written.write_text(damaged_json(data, written.read_text()))
        found = read_session(store.directory)
    assert not any("\n" in line for line in found.left_out)
    if found.session is not None and found.session["session"] != store.directory.name:
        # To whose session its name was changed, the case does not belong.
        (said,) = found.left_out
        assert "of another session" in said
        assert not found.cases
        return
    assert names(found) == [WEAK.name]
    assert (found.session is None) == bool(found.left_out)


@FUZZ
@given(st.data())
def test_both_validators_refuse_the_same(data):
    document = with_something_strange(data, json.loads(documents()[WEAK_FILE]))
    fast, thorough = archives._fast_validator("case"), archives._validator("case")
    try:
        valid = fast.is_valid(document)
    except ValueError:
        return  # beyond what it takes: the other one decides
    # What no JSON has, neither ever sees: hvdperf.results.archive.read_json refuses it.
    if is_json(document):
        assert valid == thorough.is_valid(document)


def is_json(value: Any) -> bool:
    try:
        return bool(json.dumps(value, allow_nan=False))
    except ValueError:
        return False


@FUZZ
@given(st.binary(max_size=50))
def test_any_bytes_are_left_out(content):
    assert damaged(content).left_out
