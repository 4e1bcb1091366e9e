"""Records as JSON: what comes back, and what is said of a text that is no record."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import jsonschema
import pytest

from hvdperf.json_records import Figures, Number, Unreadable, convert, decode, encode, plain, schema
from hvdperf.stats import Interval
from hvdperf.verdict import Band, Ceiling, Floor, Judgement, Verdict


@dataclass(frozen=True)
class Run(Figures):
    """A record with figures at every depth that records have."""

    loss: Number
    curve: Sequence[Sequence[Number]] = ()
    at: tuple[Number, ...] = ()
    library: str | None = None


@dataclass(frozen=True)
class Group:
    """A record of records."""

    runs: list[Run] = field(default_factory=list)


def test_a_record_comes_back_as_it_was():
    run = Run(0.5, [[1, 2.5], [2, 0.1]], (1.0,), "MPI")
    assert decode(encode(Group([run])), Group) == Group([run])
    assert convert(plain(run), Run) == run


def test_the_text_is_for_people_too():
    assert encode(Run(0.5)) == (
        b'{\n "loss": 0.5,\n "curve": [],\n "at": [],\n "library": null\n}\n'
    )


def test_what_is_not_a_number_is_null_and_not_a_number_again():
    run = Run(math.nan, [[1, math.nan], [2, 0.5]], (math.inf, 1.0))
    text = encode(run)
    assert json.loads(text) == {
        "loss": None,
        "curve": [[1, None], [2, 0.5]],
        "at": [None, 1.0],
        "library": None,
    }
    found = decode(text, Run)
    assert math.isnan(found.loss)
    assert math.isnan(found.curve[0][1])
    assert found.curve[1] == [2, 0.5]
    assert isinstance(found.at, tuple)
    assert math.isnan(found.at[0])
    assert found.library is None, "only figures may not be numbers"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_not_finite_may_come_from_a_rank(value):
    found = convert({"loss": value}, Run).loss
    assert found == value or math.isnan(found) == math.isnan(value)


@pytest.mark.parametrize("upper", [math.inf, 0.3])
def test_an_upper_bound_that_is_infinite_is_null_and_infinite_again(upper):
    interval = Interval(0.2, 0.0, upper, alpha=0.025, observations=3)
    assert plain(interval)["upper"] == (None if math.isinf(upper) else upper)
    assert decode(encode(interval), Interval) == interval


@pytest.mark.parametrize("rule", [Floor(0.95, 0.98), Band(0.9, 1.1), Ceiling(5.0), None])
def test_a_rule_comes_back_as_its_own_kind(rule):
    judgement = Judgement(Verdict.INVALID, None, rule, 0, "no threshold")
    assert decode(encode(judgement), Judgement) == judgement


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"runs": [{"loss": 1.0}, {"loss": "low"}]}', "runs[1].loss: Expected `float | null`"),
        (b'{"runs": [{}]}', "runs[0]: Object missing required field `loss`"),
        (b'{"runs": [{"loss": 1.0, "curve": [[1, "x"]]}]}', "runs[0].curve[0][1]: Expected"),
        (b'{"runs": 3}', "runs: Expected `array`, got `int`"),
        (b"[]", "Expected `object`, got `array`"),
    ],
)
def test_a_text_that_is_another_record_is_told_with_its_place_first(text, said):
    with pytest.raises(Unreadable) as caught:
        decode(text, Group)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b'{"runs": [}', b'{"runs": [NaN]}', b"\xff\xfe", b"{} {}"],
)
def test_a_text_that_is_no_json_is_told(text):
    with pytest.raises(Unreadable, match=r"^not valid JSON: "):
        decode(text, Group)


@pytest.mark.parametrize("opening", [b"[", b'{"runs":'])
def test_a_text_that_is_nested_without_end_is_told(opening):
    with pytest.raises(Unreadable, match=r"^nested more deeply than any document$"):
        decode(b'{"other": ' + opening * 100_000, Group)


def test_a_number_that_no_float_holds_is_told():
    with pytest.raises(Unreadable, match="out of range"):
        decode(b'{"runs": [{"loss": 1e999}]}', Group)


def test_fields_that_this_version_does_not_know_are_ignored():
    assert decode(b'{"loss": 0.5, "later": 1}', Run) == Run(0.5)


def test_the_schema_accepts_what_is_written_and_nothing_else():
    validator = jsonschema.Draft202012Validator(schema(Group))
    written = json.loads(encode(Group([Run(math.nan, [[1, 2.0]])])))
    assert list(validator.iter_errors(written)) == []
    assert not validator.is_valid({"runs": [{"curve": []}]})
    assert not validator.is_valid({"runs": [{"loss": "low"}]})


def test_a_replaced_record_keeps_what_is_not_a_number():
    assert math.isnan(replace(Run(math.nan), library="MPI").loss)
