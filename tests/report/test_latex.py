"""Tables for LaTeX hold no command but ours, and every row has all of its cells."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdperf.report.content import Column, Table
from hvdperf.report.formats.tables import MOST_ROWS, latex, number, tex
from tests.support.any_report import HOSTILE, board, report

# An escaped special character, the command of a character, braces against a ligature, and text.
PRINTED = re.compile(
    r"(\\[{}$&#_%]|\\text(backslash|asciitilde|asciicircum|asciigrave|less|greater|bar|quotedbl"
    r"|endash)\{\}|\{\[\}|\{\*\}|-\{\}(?=-)|[^\\{}$&#_%~^<>|\"`\[*\n])*"
)


def bodies(made: str) -> list[str]:
    """Return the tables, without the head."""
    return re.findall(r"\\begin\{table\}.*?\\end\{table\}", made, re.DOTALL)


def rows(body: str) -> list[list[str]]:
    """Return the cells of a table, headings first."""
    inside = body[body.index(r"\toprule") : body.index(r"\bottomrule")]
    lines = [line for line in map(str.strip, inside.splitlines()) if line.endswith(r"\\")]
    return [re.split(r"(?<!\\)&", line.removesuffix(r"\\")) for line in lines]


@given(st.text() | st.sampled_from(HOSTILE))
def test_no_special_character_of_a_text_is_left_unescaped(text):
    assert PRINTED.fullmatch(tex(text))
    assert "--" not in tex(text)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("resnet_50_s, 5 %", r"resnet\_50\_s, 5 \%"),
        ("--budget ---", r"-{}-budget -{}-{}-"),
        ("[1cm] *", "{[}1cm] {*}"),
        (r"\input{/etc/passwd}", r"\textbackslash{}input\{/etc/passwd\}"),
        ("Łódź\nEpyc®", "Łódź Epyc®"),
    ],
)
def test_a_text_is_printed_as_it_is(text, made):
    assert tex(text) == made


def test_a_number_has_a_minus_sign():
    assert number("-0.5 [-1.0, 0.1]") == "$-$0.5 {[}$-$1.0, 0.1]"


@pytest.mark.parametrize("text", HOSTILE)
def test_any_report_has_a_table_a_figure_with_whole_rows(text):
    found = bodies(latex(report(text)))
    assert len(found) == 3
    for body in found:
        assert re.findall(r"\\(?:begin|end)\{(\w+)\}", body) == [
            *("table", "adjustbox", "tabular"),
            *("tabular", "adjustbox", "table"),
        ]
        (columns,) = re.findall(r"\\begin\{tabular\}\{@\{\}([lr]+)@\{\}\}", body)
        cells = rows(body)
        assert len(cells) == 3
        assert {len(row) for row in cells} == {len(columns)}
        assert all(PRINTED.fullmatch(cell) for row in cells for cell in row)


def test_every_figure_has_a_caption_and_a_label():
    made = latex(report("x", figures=2))
    labels = re.findall(r"\\label\{(.*?)\}", made)
    assert labels == ["tab:board", "tab:figure-0", "tab:figure-1"]
    assert r"\caption[{All cases}]{All cases. says x}" in made


def test_cells_have_digits_units_and_intervals():
    heading, first, second = rows(bodies(latex(report("x")))[0])
    assert heading[5:] == [" time {[}s] ", " size {[}B] "]
    assert first[5:] == [" 0.873 {[}0.861, 0.884] ", " 134217728 "]
    assert second[5] == r" 1.873 {[}1.861, \textendash{}] "


def test_an_empty_table_has_a_row_all_the_same():
    figure = replace(board(), table=Table(tuple(Column(key, key) for key in "ab"), ()))
    (body,) = bodies(latex(replace(report(), board=figure, sections=())))
    assert rows(body) == [["a ", " b "], [r"\textendash{} ", "  "]]


def test_what_is_too_long_for_a_page_is_named():
    made = latex(replace(report(), board=board("x", MOST_ROWS + 1), sections=()))
    assert bodies(made) == []
    assert made.endswith(f"% tab:board: {MOST_ROWS + 1} rows are too many for a page\n")
