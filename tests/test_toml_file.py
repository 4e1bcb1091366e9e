"""TOML files become records, or one line that names the file and the key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

import pytest
from msgspec import Meta

from hvdperf.errors import UserError
from hvdperf.toml_file import Text, as_record, read_toml


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Inner:
    low: Annotated[int, Meta(ge=1)] = 1
    high: Annotated[int, Meta(ge=1)] = 8

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low: must not be above high = {self.high}")


@dataclass(frozen=True)
class Outer:
    source: str
    name: Text
    inner: Inner = Inner()
    colours: tuple[Colour, ...] = ()
    sizes: Mapping[Colour, tuple[float, ...]] = field(default_factory=dict)


@pytest.fixture
def read(tmp_path):
    def of(text: str) -> Outer:
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return as_record(path, read_toml(path), Outer, source="elsewhere")

    return of


def test_tables_become_records(read):
    record = read('name = "a"\ncolours = ["red"]\ninner.low = 2\nsizes = {blue = [1, 2.5]}\n')
    assert record == Outer("elsewhere", "a", Inner(low=2), (Colour.RED,), {Colour.BLUE: (1.0, 2.5)})


def test_keys_that_are_left_out_have_their_defaults(read):
    # Some editors of Windows begin a file with a mark.
    for mark in ("", "\ufeff"):
        assert read(f'{mark}name = "a"\n') == Outer("elsewhere", "a")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "name: this key is missing"),
        ('name = ""', "name: Expected `str` of length >= 1"),
        ('name = "a"\nsource = "b"', "source: unknown key; known here: name, inner, "),
        ('name = "a"\ninner = 1', "inner: Expected `table`, got `int`"),
        ('name = "a"\ninner.low = 9', "inner.low: must not be above high = 8"),
        ('name = "a"\ninner.low = 0', "inner.low: Expected `int` >= 1"),
        ('name = "a"\ncolours = ["red", "x"]', "colours[1]: unknown value 'x'; known are "),
        ('name = "a"\nsizes.x = [1]', "sizes.x: unknown value 'x'; known are red, blue"),
        ('name = "a"\nsizes.red = [1, true]', "sizes.red[1]: Expected `float`, got `bool`"),
        ('name = "a"\nsizes.red = [1, 2, 1]', "sizes.red: lists 1 2 times"),
        ('name = "a"\nsizes.red = [1, nan]', "sizes.red[1]: must be a finite number, not nan"),
        (f"sizes.red = [{2**63}]", "sizes.red[0]: a whole number of more than 64 bits"),
        ("name = " + "9" * 5000, "a whole number has too many digits"),
        ("name = " + "[" * 3000, "nested too deeply"),
        ("name = ", "not valid TOML: Invalid value (at end of document)"),
        ('name = "a"\ninner."a\\nb" = 1', 'inner."a\\nb": unknown key'),
    ],
)
def test_what_is_wrong_is_one_line_with_file_and_key(read, text, told):
    with pytest.raises(UserError) as caught:
        read(text)
    line = str(caught.value)
    assert f"mine.toml: {told}" in line
    assert line.isprintable()
