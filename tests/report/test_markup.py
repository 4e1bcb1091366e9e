"""LaTeX holds no command but ours, and CSV is read back as it was."""

from __future__ import annotations

import csv
import itertools
import re
from dataclasses import replace
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdperf.report import markup
from hvdperf.report.content import Column, Figure, Table
from hvdperf.report.text import one_line
from tests.report import sample

# Names of a case, a reason or a machine that would do harm in LaTeX or in a spreadsheet.
HOSTILE = (
    *sample.HOSTILE,
    "\\input{/etc/passwd} \\write18{ls} ^^5cinput %x {}} \\end{table} \\\\[1cm]",
    "a|b||c \\| d\\",
    "one\ntwo\r\n\r\n# three",
    "-2+3",
    "\t=1+1",
    "\uff1dA1",
    "[0.1] *x* -- --- ,, '' \"q\" ?` !` << >>",
    "",
    " ",
)


def figure(text: str = "x") -> Figure:
    """Return a figure with the text in every place that may have one."""
    columns = (
        Column("case", "case"),
        Column("seconds", "time", "s", 3),
        Column("lower", "lower", "s", 3),
        Column("upper", "upper", "s", 3),
        Column("bytes", "size", "B"),
        Column("more", text, text),
    )
    cells = (
        (f"{text}0", 0.87312, 0.86149, 0.88361, 134217728, text),
        (text, 1.87, 1.86, None, 1, ""),
    )
    return Figure("board", f"All {text}", f"says {text}", Table.filled(columns, cells))


# LaTeX -----------------------------------------------------------------------------------------

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
    assert PRINTED.fullmatch(markup.tex(text))
    assert "--" not in markup.tex(text)


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
    assert markup.tex(text) == made


@pytest.mark.parametrize("text", HOSTILE)
def test_any_figure_is_a_table_with_whole_rows(text):
    found = bodies(markup.latex([figure(text), figure()]))
    assert len(found) == 2
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


def test_tables_have_captions_and_labels_and_cells_have_digits_units_and_intervals():
    made = markup.latex([figure()])
    assert re.findall(r"\\label\{(.*?)\}", made) == ["tab:board"]
    assert r"\caption[{All x}]{All x. says x}" in made
    heading, first, second = rows(bodies(made)[0])
    assert heading[1:3] == [" time {[}s] ", " size {[}B] "]
    assert first[1:3] == [" 0.873 {[}0.861, 0.884] ", " 134217728 "]
    assert second[1] == r" 1.870 {[}1.860, \textendash{}] "


def test_a_number_has_a_minus_sign():
    table = Table((Column("a", "a", digits=1), Column("b", "b")), ({"a": -0.5, "b": "-x"},))
    (body,) = bodies(markup.latex([replace(figure(), table=table)]))
    assert rows(body) == [["a ", " b "], ["$-$0.5 ", " -x "]]


# CSV -------------------------------------------------------------------------------------------

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\uff1d", "\uff0b", "\uff0d", "\uff20")
COLUMNS = (Column("name", "Name"), Column("seconds", "Time", "s", 3), Column("count", "Count"))


def read(made: str) -> list[list[str]]:
    return list(csv.reader(StringIO(made, newline=""), strict=True))


def table(*rows: tuple[str | None, float | None, int | None]) -> Table:
    keys = [column.key for column in COLUMNS]
    return Table(COLUMNS, tuple(dict(zip(keys, row, strict=True)) for row in rows))


def meant(value: str | None) -> str:
    """What a text is read back as."""
    line = one_line(value or "")
    return f"'{line}" if line.startswith(FORMULA) else line


@given(
    st.lists(
        st.tuples(
            st.none() | st.text() | st.sampled_from(HOSTILE),
            st.none() | st.floats(allow_nan=False, allow_infinity=False),
            st.none() | st.integers(),
        )
    )
)
def test_a_table_is_read_back_in_full_precision(rows):
    heading, *records = read(markup.table_csv(table(*rows)))
    assert heading == ["name", "seconds [s]", "count"]
    assert [record[0] for record in records] == [meant(row[0]) for row in rows]
    for record, (_, seconds, count) in zip(records, rows, strict=True):
        assert (float(record[1]) if record[1] else None) == seconds
        assert (int(record[2]) if record[2] else None) == count


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_text_is_a_formula_and_each_record_is_a_line(hostile):
    (made,) = markup.tables(replace(sample.a_report(), board=figure(hostile), sections=())).values()
    for cell in itertools.chain(*read(made)):
        assert not cell.startswith(FORMULA)
        assert not re.search(r"[\x00-\x1f\x7f-\x9f]", cell)
    assert made.endswith("\r\n")
    assert made.count("\r\n") == made.count("\n") == made.count("\r") == len(read(made))
    made.encode()


def test_negative_numbers_stay_numbers_and_texts_that_look_like_them_do_not():
    made = markup.table_csv(table(("-5", -5.25, -5), ("=1+1", 1e-7, None)))
    assert made == "name,seconds [s],count\r\n'-5,-5.25,-5\r\n'=1+1,1e-07,\r\n"
