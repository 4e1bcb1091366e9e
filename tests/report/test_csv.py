"""Tables as CSV are read back as they were, by whatever reads RFC 4180, and calculate nothing."""

from __future__ import annotations

import csv
import re
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdperf.report.content import Column, Table
from hvdperf.report.formats.tables import tables, text
from hvdperf.report.formats.text import one_line
from tests.support.any_report import HOSTILE, report

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
    heading, *records = read(text(table(*rows)))
    assert heading == ["name", "seconds [s]", "count"]
    assert [record[0] for record in records] == [meant(row[0]) for row in rows]
    for record, (_, seconds, count) in zip(records, rows, strict=True):
        assert (float(record[1]) if record[1] else None) == seconds
        assert (int(record[2]) if record[2] else None) == count


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_text_is_a_formula_and_each_record_is_a_line(hostile):
    for made in tables(report(hostile)).values():
        for row in read(made):
            for cell in row:
                assert not cell.startswith(FORMULA)
                assert not re.search(r"[\x00-\x1f\x7f-\x9f]", cell)
        assert made.endswith("\r\n")
        assert made.count("\r\n") == made.count("\n") == made.count("\r") == len(read(made))
        made.encode()


def test_negative_numbers_stay_numbers_and_texts_that_look_like_them_do_not():
    made = text(table(("-5", -5.25, -5), ("=1+1", 1e-7, None)))
    assert made == "name,seconds [s],count\r\n'-5,-5.25,-5\r\n'=1+1,1e-07,\r\n"


def test_quotes_are_doubled():
    made = text(table(('a "b", c', None, 1)))
    assert made.splitlines()[1] == '"a ""b"", c",,1'


def test_every_figure_has_a_file():
    made = tables(report("x", figures=3))
    assert list(made) == ["board", "figure-0", "figure-1", "figure-2"]


def test_a_table_without_rows_is_its_heading():
    assert text(table()) == "name,seconds [s],count\r\n"
