"""Cells stand below each other, numbers fit, and paragraphs are not wider than a terminal."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdperf.columns import WIDTH, Columns, interval, number, wrapped


def test_cells_stand_below_their_headings():
    table = Columns(("model", -8), ("np", 3), ("verdict", 0))
    assert table.header == "model     np verdict"
    assert table.row("vgg_16", 16, "PASS") == "vgg_16    16 PASS"
    assert table.row("vgg_16", 16, "") == "vgg_16    16"


def test_a_cell_that_is_too_long_is_whole():
    assert Columns(("model", -5), ("np", 3)).row("inception", 2) == "inception   2"


@pytest.mark.parametrize(
    ("value", "width", "digits", "text"),
    [
        (0.8734, 6, 3, "0.873"),
        (9.994, 4, 2, "9.99"),
        (9.996, 4, 2, "10.0"),
        (99.96, 4, 2, "100"),
        (12345.6, 4, 2, "1e4"),
        (-1.5, 4, 2, "-1.5"),
    ],
)
def test_a_number_has_as_many_digits_as_fit(value, width, digits, text):
    assert number(value, width, digits) == text


@given(st.floats(1e-9, 1e9))
def test_a_positive_number_fits_in_four_columns(value):
    assert len(number(value, 4, 2)) <= 4
    assert float(number(value, 4, 2)) == pytest.approx(value, rel=0.51, abs=0.0051)


@pytest.mark.parametrize(
    ("lower", "upper", "text"),
    [
        (0.8614, 0.8836, "[0.861, 0.884]"),
        (0.0, math.inf, "[-, -]"),
        (-math.inf, 12.3456, "[-, 12.35]"),
    ],
)
def test_a_bound_that_is_not_known_is_a_hyphen(lower, upper, text):
    assert interval(lower, upper) == text


def test_a_paragraph_is_not_wider_than_a_terminal_but_its_words_are_whole():
    long = "x" * (WIDTH + 1)
    lines = wrapped(f"{'word ' * 30}{long}", "  ")
    assert [line[:4] for line in lines] == ["  wo", "    ", "    "]
    assert lines[-1].strip() == long
    assert all(len(line) <= WIDTH for line in lines[:-1])
