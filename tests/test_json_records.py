"""Records as JSON: what a record cannot hold is refused in one line, which names the place."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdperf.json_records import (
    Count,
    Figures,
    Moment,
    Number,
    Unreadable,
    convert,
    decode,
    encode,
    plain,
    schema,
)
from hvdperf.stats import Interval
from tests.support.damage import FUZZ, assert_read_or_refused, damaged_json


@dataclass(frozen=True)
class Part(Figures):
    """One part.

    seconds: of the part. rows: of
        figures.
    """

    steps: Count
    seconds: Number
    rows: Sequence[Sequence[Number]] = ()


@dataclass(frozen=True)
class Whole:
    name: str
    parts: tuple[Part, ...]
    at: Moment | None = None
    by_name: Mapping[str, float] | None = None


WHOLE = Whole("a", (Part(1, 0.5, []), Part(2, math.nan, [[1.0, math.nan], []])), by_name={"b": 1.0})


def test_figures_that_do_not_exist_are_null_and_nan_again():
    document = json.loads(encode(WHOLE))
    assert document["parts"][1] == {"steps": 2, "seconds": None, "rows": [[1.0, None], []]}
    assert repr(decode(encode(WHOLE), Whole)) == repr(WHOLE)
    assert repr(convert(plain(WHOLE), Whole)) == repr(WHOLE)


def refused(text: bytes) -> str:
    """Return why the text is no Whole."""
    with pytest.raises(Unreadable) as caught:
        decode(text, Whole)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"", "not valid JSON"),
        (b'\xef\xbb\xbf{"name": "a", "parts": []}', "not valid JSON"),
        (b'{"name": "a", "parts": []}]', "not valid JSON"),
        (b'{"name": "\xff", "parts": []}', "not valid JSON"),
        (b'{"name": "\\ud800", "parts": []}', "not valid JSON"),
        (b'{"name": "a", "parts": [], "other": NaN}', "not valid JSON"),
        *((b'{"parts": [%s]}' % text, "not valid JSON") for text in (b"-Infinity", b"01", b".5")),
        (b"null", "Expected `object`, got `null`"),
        (b"[" * 100_000, "Expected `object`, got `array`"),
        (b'{"other": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"parts": []}', "missing required field `name`"),
        (b'{"name": "a", "parts": [{"seconds": 1}]}', "parts[0]: "),
        (b'{"name": "a", "parts": [], "at": "yesterday"}', "at: Invalid RFC3339"),
        (b'{"name": "a", "parts": [], "at": "2026-01-31T12:00:00"}', "at: Expected `datetime`"),
        (b'{"name": "a", "parts": [], "by_name": {"` - at `$.x": ""}}', "by_name[...]: "),
    ],
)
def test_a_text_that_is_no_such_record_is_refused_with_the_place(text, told):
    assert told in refused(text)


@pytest.mark.parametrize("number", [b"1e999", b"9" * 400])
def test_a_number_that_no_float_can_hold_is_refused(number):
    text = b'{"name": "a", "parts": [{"steps": 1, "seconds": %s}]}'
    assert "out of range" in refused(text % number)


def test_whole_numbers_keep_all_their_digits():
    large = decode(b'{"steps": ' + b"9" * 300 + b', "seconds": 1, "rows": []}', Part)
    assert large.steps == int("9" * 300)
    assert decode(encode(large), Part) == large


@pytest.mark.parametrize("steps", ["-1", "1.0", "true", '"1"', "null"])
def test_what_is_no_count_is_refused(steps):
    text = f'{{"name": "a", "parts": [{{"steps": {steps}, "seconds": 1.0}}]}}'
    assert "parts[0].steps: Expected `int`" in refused(text.encode())


def test_of_a_key_that_stands_twice_the_last_value_counts():
    assert decode(b'{"name": "a", "parts": [], "name": "b"}', Whole).name == "b"


def test_a_name_of_a_file_that_is_not_utf_8_is_written_as_an_escape():
    # As Python reads b"\xff" in an argument or a directory.
    whole = Whole("venv-\udcff/python", (), by_name={"\udcff": math.nan, "b": 1.0})
    assert plain(whole)["by_name"] == {"\\udcff": None, "b": 1.0}
    assert decode(encode(Whole("venv-\udcff/python", ())), Whole).name == "venv-\\udcff/python"


def test_a_docstring_is_the_description_in_the_schema():
    described = schema(Whole)["$defs"]
    assert described["Part"]["description"] == "One part. seconds: of the part. rows: of figures."
    assert "description" not in described["Whole"]


@FUZZ
@given(st.data())
def test_a_damaged_document_is_read_or_refused_and_no_error_escapes(data):
    assert_read_or_refused(damaged_json(data, encode(WHOLE).decode()), Whole)


@FUZZ
@given(st.binary(max_size=50))
def test_any_bytes_are_refused(content):
    with pytest.raises(Unreadable):
        decode(content, Whole)


@pytest.mark.parametrize("upper", [math.inf, 0.3])
def test_an_upper_bound_that_is_infinite_is_null_and_infinite_again(upper):
    interval = Interval(0.2, 0.0, upper, alpha=0.025, observations=3)
    assert plain(interval)["upper"] == (None if math.isinf(upper) else upper)
    assert decode(encode(interval), Interval) == interval
