"""The compatibility table says what was tried, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date

import pytest

from docs.compatibility import (
    BuildFailure,
    UsesOfStack,
    read_not_built,
    read_uses,
    rows,
    tables,
)
from hvdperf.files import write_record
from hvdperf.timeline.stacks import TENSORFLOW
from tests.support.histories import raw_result

FAILURE = BuildFailure("0.27.0", "2.16.2", "g++ (Debian 12.2.0-14) 12.2.0", "x.h:1: error: no y")


def cells(results=(), failures=(), horovod="0.28.1", tensorflow="2.18.1"):
    """Return the cells of a combination, one list for each of its lines."""
    lines = tables(results, failures).splitlines()
    table = [line.strip("| ").split(" | ") for line in lines if line.startswith("| ")]
    return [line for line in table if line[:2] == [horovod, tensorflow]]


def test_a_stack_that_was_measured_builds_imports_and_trains():
    (line,) = cells([raw_result("0.28.0")], horovod="0.28.0")
    assert line[5] == "yes, with extra settings"
    (line,) = cells([raw_result(tensorflow="2.21.0")], tensorflow="2.21.0")
    assert line[5] == "yes, with extra settings"
    found = cells([raw_result(keras="3.15.1"), raw_result(keras="3.5.0", number=1)])
    assert [line[2] for line in found] == ["3.15.1", "3.5.0"]
    result = raw_result(keras="3.15.1", python="3.11.7")
    assert cells([result]) == [
        ["0.28.1", "2.18.1", "3.15.1", "3.11.7", "not recorded", "yes", "yes", "yes", "2026-01-31"]
    ]


def test_the_last_session_counts_and_a_compiler_that_was_recorded_stays():
    known = replace(raw_result(), compiler="GCC (Debian 12.2.0-14) 12.2.0")
    found = cells([raw_result(number=24), known])
    assert [line[4:] for line in found] == [["GCC 12.2.0", "yes", "yes", "yes", "2026-02-01"]]


def test_a_build_that_failed_is_told_with_its_first_error():
    (line,) = cells((), [FAILURE], "0.27.0", "2.16.2")
    unknown = "not recorded"
    assert line[2:] == [unknown, unknown, "g++ 12.2.0", "no", "-", "-", unknown]
    text = tables((), [FAILURE])
    assert "- Horovod 0.27.0 with TensorFlow 2.16.2: ``x.h:1: error: no y``\n" in text


def test_every_line_of_tensorflow_stands_beside_the_last_horovod():
    lines = [row for row in rows([], [FAILURE]) if row.horovod == "0.28.1"]
    assert [row.tensorflow for row in lines] == list(TENSORFLOW[::-1])
    assert {(row.builds, row.imports, row.trains) for row in lines} == {("not tried",) * 3}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"reason": 1}, "reason: Expected `str`"),
        ({"tensorflow": "9.9.9"}, "tensorflow 9.9.9: known releases"),
        ({"tried": "yesterday"}, "tried: "),
    ],
)
def test_a_broken_record_is_refused_in_one_line(tmp_path, change, said):
    document = {"horovod": "0.27.0", "tensorflow": "2.16.2", "compiler": "g++", "reason": "x"}
    (tmp_path / "one.json").write_text(json.dumps(document | change))
    (tmp_path / "two.json").write_text(json.dumps(document | {"tried": "2026-01-31"}))
    found, refused = read_not_built(tmp_path)
    assert [record.tried for record in found] == [date(2026, 1, 31)]
    (line,) = refused
    assert "one.json: refused: " in line
    assert said in line


def test_a_use_has_a_column_for_each_stack_and_says_what_fails_in_silence(tmp_path):
    errors = {
        "tape": "AttributeError: no ref",
        "in fit": "the ranks have different weights after training",
    }
    for tensorflow, keras, wrong in (("2.15.1", "2.15.0", {}), ("2.18.1", "3.15.1", errors)):
        tried = [{"use": use, "problem": wrong.get(use, "")} for use in ("tape", "in fit")]
        tried += [] if wrong else [{"use": "elastic", "problem": ""}]
        stack = UsesOfStack(tensorflow, keras, "3.11.7", date(2026, 1, 31), tuple(tried))
        write_record(tmp_path / f"{keras}.json", stack)
    (tmp_path / "broken.json").write_text("{")
    uses, unread = read_uses(tmp_path)
    assert len(unread) == 1
    text = tables((), (), uses)
    assert "| use | 2.18.1, Keras 3.15.1 | 2.15.1, Keras 2.15.0 |" in text
    assert "| `tape` | no (1) | yes |" in text
    assert "| in fit | **no, in silence** | yes |" in text
    assert "| `elastic` | not tried | yes |" in text
    assert "1. ``AttributeError: no ref``" in text
