"""Raw results are read whole, or refused in a line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hvdperf.errors import UserError
from hvdperf.json_records import Unreadable
from hvdperf.timeline.releases.raw import read_history, read_raw
from tests.support.damage import FUZZ, damaged_json
from tests.support.histories import MACHINE_LABEL, raw_result, written


def edited(path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def test_what_was_written_is_read_back(tmp_path):
    made = raw_result(speeds={("vgg_16_s", 1): [100.5, 99.25], ("resnet_50_s", 2): [40.0]})
    path = written(tmp_path, made)
    assert path == tmp_path / MACHINE_LABEL / f"{made.session}.json"
    assert read_raw(path) == made
    assert read_history(tmp_path) == ([made], [])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda d: d["fingerprint"].update(kernel="5.0"), "a foreign fingerprint"),
        (lambda d: d["fingerprint"].pop("horovod"), "fingerprint: Object missing required"),
        (lambda d: d.pop("series"), "missing required field `series`"),
        (lambda d: d.update(series=[]), "series: Expected `array` of length >= 1"),
        (lambda d: d["series"].append(d["series"][0]), "a duplicate: vgg_16_s at 1"),
        (lambda d: d["series"][0].update(samples_per_second=[]), "samples_per_second: Expected"),
        (lambda d: d["series"][0].update(samples_per_second=[0.0]), "samples_per_second[0]: "),
        (lambda d: d["series"][0].pop("replica"), "series[0]: Object missing required"),
        (lambda d: d["fingerprint"].update(method=2), "by method 2, not by 1"),
        (lambda d: d["fingerprint"].update(horovod="0.1.2"), "horovod 0.1.2 is not in"),
        (lambda d: d.update(session="20200101T000000Z-1"), "not the file of its session"),
        (lambda d: d.update(measured_at="yesterday"), "measured_at: Invalid RFC3339"),
        (lambda d: d.update(measured_at="2026-01-31T12:00:00"), "measured_at: Expected"),
        (lambda d: d.update(machine="another"), "a foreign fingerprint"),
        (lambda d: d.update(format=3), "of format 3, which a later version"),
        (lambda d: d.update(format=1), "of format 1, which an earlier version"),
        (lambda d: d.pop("format"), "missing required field `format`"),
    ],
)
def test_what_does_not_belong_is_refused_and_hurts_nothing_else(tmp_path, change, why):
    good, bad = raw_result(number=1), raw_result(number=2)
    written(tmp_path, good)
    path = written(tmp_path, bad)
    edited(path, change)
    results, refused = read_history(tmp_path)
    assert results == [good]
    (line,) = refused
    assert path.name in line
    assert why in line
    assert "\n" not in line
    with pytest.raises(Unreadable):
        read_raw(path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": NaN}', "[" * 100_000])
def test_what_is_no_document_is_refused(tmp_path, text):
    path = written(tmp_path, raw_result())
    path.write_text(text)
    assert read_history(tmp_path)[0] == []
    assert len(read_history(tmp_path)[1]) == 1


def test_a_copy_under_another_machine_is_foreign(tmp_path):
    path = written(tmp_path, raw_result())
    copy = tmp_path / "another-machine" / path.name
    copy.parent.mkdir()
    copy.write_text(path.read_text())
    results, (line,) = read_history(tmp_path)
    assert len(results) == 1
    assert "another-machine" in line


def test_a_place_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / MACHINE_LABEL).write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        written(tmp_path, raw_result())


@settings(FUZZ, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_stands_in_a_result_it_is_read_or_refused(tmp_path, data):
    path = written(tmp_path, raw_result())
    path.write_text(damaged_json(data, path.read_text()))
    results, refused = read_history(tmp_path)
    assert len(results) + len(refused) == 1
    assert not any("\n" in line for line in refused)
