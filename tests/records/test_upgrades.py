"""Sessions of an earlier format are read as if they were of this one, and stay as they are."""

from __future__ import annotations

import json
import tarfile
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdperf.__main__ import parser
from hvdperf.errors import UserError
from hvdperf.explain.scaling_breakdown import physical
from hvdperf.json_records import Unreadable, convert, encode, plain
from hvdperf.plan.questions import weak_scaling
from hvdperf.plan.terms import Term
from hvdperf.records.archive import OfEarlierFormat, has_this_format, read_document, read_session
from hvdperf.records.documents import FORMAT, Asked, Case, ThresholdsFile
from hvdperf.records.rounds import Launch
from hvdperf.records.archive import STEPS, Plain, from_5, upgraded
from hvdperf.session.resume import resumable
from tests.support.damage import FUZZ, damaged_json
from tests.support.recorded import FILE, recorded_sessions
from tests.support.rounds import WORKLOAD, outcome
from tests.support.stores import case_of

# The first format that had steps.
FIRST = 4
RECORDED = "20261124T061623Z-4940"
CASE = case_of(outcome(weak_scaling(WORKLOAD, 2), (0.91, 0.92)))


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a session that was measured when the format was FIRST."""
    runs = tmp_path_factory.mktemp("results") / "runs"
    with tarfile.open(FILE) as packed:
        members = [each for each in packed.getmembers() if RECORDED in each.name]
        packed.extractall(runs, members, filter="data")
    return runs / RECORDED


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_every_format_from_the_first_one_on_has_a_step():
    assert FIRST + len(STEPS) == FORMAT


def test_a_recorded_session_of_the_first_format_is_read_whole(earlier):
    before = files(earlier)
    assert {json.loads(text)["format"] for text in before.values()} == {FIRST}
    archive = read_session(earlier)
    assert archive.left_out == ()
    assert archive.session is not None
    assert len(archive.cases) == len(before) - 1
    assert archive.session.format == FORMAT
    assert {case.format for case in archive.cases} == {FORMAT}
    assert files(earlier) == before
    assert archive.session.asked.looks == (8, 12)
    assert archive.session.asked.profile["batch"] == 32
    assert archive.session.began_at == datetime(2026, 11, 24, 6, 16, 23, tzinfo=UTC)


def test_cases_of_an_earlier_format_share_their_launches():
    archive = next(each for each in recorded_sessions() if len(each.cases) > 10)
    known: dict[Any, Launch] = {}
    for case in archive.cases:
        for measured in case.rounds:
            for launch in measured.launches:
                first = known.setdefault((case.round_group, measured.number, launch.arm), launch)
                assert first is launch or first != launch
    assert len(known) < sum(len(each.launches) for case in archive.cases for each in case.rounds)


@pytest.mark.parametrize("command", ["report", "compare"])
def test_commands_take_a_recorded_session_of_the_first_format(earlier, command, tmp_path):
    before = files(earlier)
    words = [command, *[str(earlier)] * (2 if command == "compare" else 1)]
    out = tmp_path / "made.md"
    arguments = parser().parse_args([*words, "--format", "markdown", "--out", str(out)])
    assert arguments.command(arguments) == 0
    assert "vgg_16_s" in out.read_text()
    assert files(earlier) == before


def test_a_session_of_the_first_format_is_not_continued(earlier):
    assert not has_this_format(earlier)
    with pytest.raises(UserError, match="leave out --resume to begin a new session") as caught:
        resumable(earlier)
    assert "\n" not in str(caught.value)


# Steps -----------------------------------------------------------------------------------------


def renamed(old: str, new: str):
    def step(document: Plain) -> Plain:
        document[new] = document.pop(old)
        return document

    return step


def test_steps_are_taken_in_order_from_the_format_of_the_document_on():
    steps = (renamed("a", "b"), renamed("b", "c"))
    assert upgraded({"format": 7, "a": 1}, 7, 9, steps) == {"format": 9, "c": 1}
    assert upgraded({"format": 8, "b": 1}, 8, 9, steps) == {"format": 9, "c": 1}


def written(directory: Path, made: int, change: Any = lambda document: document) -> Path:
    document = plain(CASE)
    document["format"] = made
    path = directory / "weak_scaling-resnet_50_s-np2.json"
    path.write_text(json.dumps(change(document)))
    return path


def test_a_document_is_read_after_its_steps(tmp_path):
    path = written(tmp_path, FORMAT - 1, renamed("name", "title"))
    read = read_document(path, Case, steps=(renamed("title", "name"),))
    assert plain(read) == plain(CASE)


def test_a_document_that_a_step_cannot_take_is_unreadable(tmp_path):
    path = written(tmp_path, FORMAT - 1)
    with pytest.raises(Unreadable, match="missing"):
        read_document(path, Case, steps=(renamed("missing", "name"),))


@pytest.mark.parametrize(("made", "error"), [(7, OfEarlierFormat), (10, Unreadable)])
def test_formats_outside_of_the_steps_are_refused(tmp_path, made, error):
    with pytest.raises(error, match=f"of format {made}, .*reads formats 8 to 9"):
        read_document(written(tmp_path, made), Case, 9, (renamed("a", "b"),))


def test_settings_that_were_texts_become_values():
    texts = {
        "name": "12",
        "batch": "32",
        "sampling.looks": "[8, 12]",
        "sampling.early": "True",
        "sampling.min_block_seconds": "0.3",
        "models": "['vgg_16_s']",
        "against": "keras: 2.15.0 -> 3.15.1; numpy: 1.26.4 -> 2.0.2",
        "thresholds": "a file.toml 863b84ae",
        "workloads": "vgg_16_s/cifar10/32/batch32 float32",
        "replicas_per_node": "[2, 2]",
        "world_sizes": "[1, 2]",
        "inject": "",
    }
    document = {"asked": texts, "session": "unknown", "written_at": "2026-01-31T12:00:00Z"}
    made = from_5(document)
    asked = convert(made["asked"], Asked)
    assert asked.texts == texts
    assert asked.profile == {
        "name": "12",
        "batch": 32,
        "sampling.min_block_seconds": 0.3,
        "models": ("vgg_16_s",),
    }
    assert (asked.looks, asked.early, asked.replicas_per_node) == ((8, 12), True, (2, 2))
    assert asked.thresholds == ThresholdsFile("a file.toml", "863b84ae")
    assert made["began_at"] == "2026-01-31T12:00:00Z"
    itself = from_5({**document, "asked": {**texts, "against": "itself"}})
    assert convert(itself["asked"], Asked).texts["against"] == "itself"


@given(st.dictionaries(st.sampled_from(Term), st.floats(-9, 9)))
def test_terms_below_zero_are_mended_as_they_are_judged(terms):
    outcome = {
        "judgement": {"reason": ""},
        "breakdown": {side: {"terms": dict(terms)} for side in ("candidate", "reference")},
    }
    made = from_5({"outcome": outcome})["outcome"]["breakdown"]
    assert [made[side]["terms"] for side in ("candidate", "reference")] == [physical(terms)] * 2


@FUZZ
@given(st.data())
def test_a_damaged_document_of_the_first_format_is_read_or_refused_in_one_line(data):
    text = encode(CASE).decode().replace(f'"format": {FORMAT}', f'"format": {FIRST}')
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "case.json"
        path.write_bytes(damaged_json(data, text).encode(errors="surrogatepass"))
        try:
            read = read_document(path, Case)
        except Unreadable as error:
            assert "\n" not in str(error)
        else:
            assert read.format == FORMAT
