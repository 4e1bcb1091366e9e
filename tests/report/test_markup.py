"""Markdown says what a report says, and text in it makes no markup: it is read back by markdown-it,
which reads tables as GitHub does. LaTeX holds no command but ours, and CSV is read back as it was.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from io import StringIO
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from hvdperf.report import markup
from hvdperf.report.content import CaseNote, Column, Figure, Report, Section, Table
from hvdperf.report.markup import LIMIT_BYTES, MOST_ROWS, code, line, markdown
from hvdperf.report.text import MEANINGS, NONE, one_line, printable
from hvdperf.verdict import Verdict
from tests.support.any_report import HOSTILE, board, report

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
MARKUP = st.text(st.sampled_from("|\\`*_~<>[]()#@$&:-+=.! \n1aE/w"), max_size=30)
HOSTILE_TEXT = st.sampled_from([text for text in HOSTILE if len(text) < 1000])
ANY_TEXT = (st.text(max_size=40) | MARKUP | HOSTILE_TEXT).map(printable)


def tokens(text: str) -> Iterator[Token]:
    """Yield all tokens, also those within lines."""
    for token in READER.parse(text):
        yield token
        yield from token.children or ()


def said(children: Iterable[Token]) -> str:
    """Return the text of a line that people read."""
    return "".join(token.content for token in children if token.type in ("text", "code_inline"))


def lines(text: str) -> list[str]:
    return [said(token.children or ()) for token in READER.parse(text) if token.type == "inline"]


def table_rows(text: str) -> list[list[str]]:
    """Return the cells of all tables, headings included."""
    rows: list[list[str]] = []
    for token, content in pairwise(READER.parse(text)):
        if token.type == "tr_open":
            rows.append([])
        elif token.type in ("td_open", "th_open"):
            rows[-1].append(said(content.children or ()))
    return rows


# Escaping --------------------------------------------------------------------------------------


@given(ANY_TEXT)
def test_any_line_reads_as_it_is(text):
    wanted = [one_line(text)] if one_line(text) else []
    assert lines(line(text)) == wanted
    kinds = {token.type for token in tokens(line(text))}
    assert kinds <= {"paragraph_open", "inline", "text", "paragraph_close"}


@given(ANY_TEXT)
def test_any_code_reads_as_it_is(text):
    children = [token for token in tokens(f"a {code(text)} b") if token.type == "code_inline"]
    assert [token.content for token in children] == ([one_line(text)] if one_line(text) else [])


@given(st.lists(ANY_TEXT, min_size=2, max_size=4))
def test_any_cell_is_code_that_reads_as_it_is(texts):
    keys = [str(number) for number in range(len(texts))]
    table = Table(tuple(Column(key, key) for key in keys), (dict(zip(keys, texts, strict=True)),))
    section = Section("s", "S", "", (Figure("f", "F", "", table),))
    made = markdown(Report("T", Verdict.INFO, {}, {}, (), board(), (), (section,)))
    assert table_rows(made)[-2:] == [keys, list(map(one_line, texts))]
    for text in texts:
        if one_line(text):
            assert code(text).replace("|", r"\|") in made


@given(st.lists(st.text(st.sampled_from("`~ ax<"), max_size=8), min_size=1, max_size=4))
def test_output_does_not_end_its_fence(texts):
    (token,) = READER.parse(markup.fenced(texts))
    assert (token.type, token.content) == ("fence", "\n".join(texts) + "\n")


# The whole -------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_report_is_markup(text):
    made = markdown(report(text))
    for token in tokens(made):
        assert not re.match("link|image|s_|em_|html_inline|code_block", token.type)
        if token.type == "html_block":
            own = re.sub(r"(?<=<summary>)[^<]*(?=</summary>)", "", token.content)
            assert own in ("<details>\n<summary></summary>\n", "</details>\n")
    opened, closed = made.count("\n<details>\n"), made.count("\n</details>\n")
    assert opened == closed == 2


def test_facts_warnings_and_reasons_come_before_the_board():
    told = lines(markdown(report("x")))
    assert told[:2] == ["T x", f"1 of 2 cases FAIL: {MEANINGS[Verdict.FAIL]}. 1 PASS."]
    wanted = ["machine x", "Warning: W x", "Left out: L x", "What did not pass", "All cases"]
    assert [line for line in told if line in wanted] == wanted
    assert "FAIL x0: R x" in told
    assert told[told.index("FAIL x0: R x") + 1] == "S x"
    # What is missing is a sentence of its own, where a section has no figure.
    assert "M x" in told
    assert "N x" not in told


def test_output_is_shown_as_it_was_printed():
    note = CaseNote("x0", Verdict.FAIL, ("it broke",), ("Traceback:\n  at <x>", "```\n\x1b[1mend"))
    made = markdown(replace(report("x"), notes=(note,)))
    (fence,) = [token for token in READER.parse(made) if token.type == "fence"]
    assert fence.content == "Traceback:\n  at <x>\n```\n\u241b[1mend\n"


def test_what_is_not_judged_says_why_once():
    notes = tuple(CaseNote(f"c{i}", Verdict.INFO, ("they share cores",)) for i in range(5))
    assert "INFO (5): they share cores" in lines(markdown(replace(report(), notes=notes)))


def test_tables_have_digits_units_and_intervals():
    made = markdown(report("x"))
    rows = table_rows(made)
    heading = ["verdict", "question", "model", "replicas", "case", "time [s]", "size [B]"]
    place = rows.index(heading)
    interval = "0.873 [0.861, 0.884]"
    assert rows[place + 1] == ["FAIL", "x", "x", "2", "x0", interval, "134217728"]
    assert rows[place + 2][5] == f"1.873 [1.861, {NONE}]"
    assert "| --- | --- | --- | ---: | --- | ---: | ---: |" in made


# The limit -------------------------------------------------------------------------------------


def test_tables_are_left_out_from_the_end():
    made = markdown(report(figures=8, rows=150, text="x" * 300))
    assert LIMIT_BYTES * 0.5 < len(made.encode()) < LIMIT_BYTES
    assert lines(made)[-1].endswith(" parts are left out to keep the summary small: see the page.")
    assert made.count("<details>") == made.count("</details>") == 1
    kept = [line for line in lines(made) if line.startswith("Figure ")]
    assert [line.split(":")[0] for line in kept] == [f"Figure {i}" for i in range(len(kept))]


@pytest.mark.parametrize(
    "made",
    [
        report(figures=1, rows=4000, text="y" * 400),
        replace(report(), warnings=("w" * 1999,) * 1000),
        replace(
            report(),
            notes=tuple(
                CaseNote(f"c{i}", Verdict.FAIL, ("r" * 1999,), ("o" * 5000,) * 90)
                for i in range(90)
            ),
        ),
        replace(report(), title="|" * 10**6, facts={"f": "@" * 10**6}),
        replace(report(), facts={f"f{i}": "\u4e2d" * 2000 for i in range(300)}),
    ],
    ids=["board", "warnings", "notes", "title", "facts"],
)
def test_whatever_is_large_the_limit_holds(made):
    text = markdown(made)
    assert len(text.encode()) < LIMIT_BYTES
    assert text.count("<details>") == text.count("</details>")
    assert text.startswith("# ")


def test_a_table_of_many_rows_is_for_the_page():
    many = Figure(
        "many", "Many", "", Table((Column("n", "n"),), tuple({"n": i} for i in range(500)))
    )
    made = markdown(replace(report(), sections=(Section("s", "S", "", (many,)),)))
    assert "500 rows: see the page." in lines(made)
    whole = markdown(replace(report(), board=board("x", 500), notes=()))
    assert "x499" in whole


def test_two_plots_of_the_same_numbers_share_their_table():
    first, other = board("x"), replace(board("x"), name="other", title="Other")
    made = markdown(replace(report(), sections=(Section("s", "S", "", (first, other)),)))
    assert "For its numbers, see the table of: All cases" in lines(made)
    assert len([row for row in table_rows(made) if row[:2] == ["verdict", "question"]]) == 2


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
def test_any_report_has_a_table_a_figure_with_whole_rows(text):
    found = bodies(markup.latex(report(text).figures))
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


def test_tables_have_captions_and_labels_and_cells_have_digits_units_and_intervals():
    made = markup.latex(report("x").figures)
    labels = re.findall(r"\\label\{(.*?)\}", made)
    assert labels == ["tab:board", "tab:figure-0", "tab:figure-1"]
    assert r"\caption[{All cases}]{All cases. says x}" in made
    heading, first, second = rows(bodies(made)[0])
    assert heading[5:] == [" time {[}s] ", " size {[}B] "]
    assert first[5:] == [" 0.873 {[}0.861, 0.884] ", " 134217728 "]
    assert second[5] == r" 1.873 {[}1.861, \textendash{}] "


@pytest.mark.parametrize(
    ("values", "row"),
    [((), [r"\textendash{} ", "  "]), (({"a": -0.5, "b": "-x"},), ["$-$0.5 ", " -x "])],
)
def test_a_number_has_a_minus_sign_and_an_empty_table_a_row_all_the_same(values, row):
    figure = replace(board(), table=Table((Column("a", "a", digits=1), Column("b", "b")), values))
    (body,) = bodies(markup.latex([figure]))
    assert rows(body) == [["a ", " b "], row]


def test_what_is_too_long_for_a_page_is_named():
    made = markup.latex([board("x", MOST_ROWS + 1)])
    assert bodies(made) == []
    assert made.endswith(f"% tab:board: {MOST_ROWS + 1} rows are too many for a page\n")


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
    found = markup.tables(report(hostile))
    assert list(found) == ["board", "figure-0", "figure-1"]
    for made in found.values():
        for row in read(made):
            for cell in row:
                assert not cell.startswith(FORMULA)
                assert not re.search(r"[\x00-\x1f\x7f-\x9f]", cell)
        assert made.endswith("\r\n")
        assert made.count("\r\n") == made.count("\n") == made.count("\r") == len(read(made))
        made.encode()


def test_negative_numbers_stay_numbers_and_texts_that_look_like_them_do_not():
    made = markup.table_csv(table(("-5", -5.25, -5), ("=1+1", 1e-7, None)))
    assert made == "name,seconds [s],count\r\n'-5,-5.25,-5\r\n'=1+1,1e-07,\r\n"
