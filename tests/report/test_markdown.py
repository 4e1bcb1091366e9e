"""A summary for GitHub says what a report says, and text in it makes no markup. Read back by
markdown-it, which reads tables as GitHub does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from hvdperf.report.content import CaseNote, Column, Figure, Report, Section, Table
from hvdperf.report.formats.markdown import LIMIT_BYTES, code, fenced, line, markdown
from hvdperf.report.formats.text import MEANINGS, NONE, one_line, printable
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
    inside = False
    for token in READER.parse(text):
        if token.type == "tr_open":
            rows.append([])
        inside = token.type in ("td_open", "th_open") or (inside and token.type == "inline")
        if inside and token.type == "inline":
            rows[-1].append(said(token.children or ()))
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
    (token,) = READER.parse(fenced(texts))
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


def test_the_headline_says_it_in_words():
    first, second, *_ = lines(markdown(report("x")))
    assert first == "T x"
    assert second == f"1 of 2 cases FAIL: {MEANINGS[Verdict.FAIL]}. 1 PASS."
    unmeasured = replace(report("x"), verdict=Verdict.INFO, counts={})
    assert lines(markdown(unmeasured))[1] == "Nothing was measured."
    compared = replace(report("x"), verdict=Verdict.INFO)
    assert lines(markdown(compared))[1] == "2 cases, shown side by side. 1 FAIL, 1 PASS."


def test_facts_warnings_and_reasons_come_before_the_board():
    told = lines(markdown(report("x")))
    wanted = ["machine x", "Warning: W x", "Left out: L x", "What did not pass", "All cases"]
    assert [line for line in told if line in wanted] == wanted
    assert "FAIL x0: R x" in told
    assert told[told.index("FAIL x0: R x") + 1] == "S x"


def test_output_is_shown_as_it_was_printed():
    note = CaseNote("x0", Verdict.FAIL, ("it broke",), ("Traceback:\n  at <x>", "```\n\x1b[1mend"))
    made = markdown(replace(report("x"), notes=(note,)))
    (fence,) = [token for token in READER.parse(made) if token.type == "fence"]
    assert fence.content == "Traceback:\n  at <x>\n```\n\u241b[1mend\n"


def test_a_case_without_a_note_is_named_too():
    bare = replace(report("x"), notes=())
    assert "FAIL x0" in lines(markdown(bare))


def test_what_is_not_judged_says_why_once():
    notes = tuple(CaseNote(f"c{i}", Verdict.INFO, ("they share cores",)) for i in range(5))
    assert "INFO (5): they share cores" in lines(markdown(replace(report(), notes=notes)))


def test_tables_have_digits_units_and_intervals():
    rows = table_rows(markdown(report("x", figures=0)))
    heading = ["verdict", "question", "model", "replicas", "case", "time [s]", "size [B]"]
    place = rows.index(heading)
    interval = "0.873 [0.861, 0.884]"
    assert rows[place + 1] == ["FAIL", "x", "x", "2", "x0", interval, "134217728"]
    assert rows[place + 2][5] == f"1.873 [1.861, {NONE}]"
    made = markdown(report("x"))
    assert "| --- | --- | --- | ---: | --- | ---: | ---: |" in made


def test_a_section_without_a_figure_says_what_is_missing():
    told = lines(markdown(report("x")))
    # A sentence of its own, with nothing before it.
    assert "M x" in told
    assert "N x" not in told, "this section has figures"


# The limit -------------------------------------------------------------------------------------


def large(figures: int, rows: int, text: str) -> Report:
    return report(text, figures=figures, rows=rows)


def test_tables_go_from_the_end_and_are_named():
    made = markdown(large(figures=8, rows=150, text="x" * 300))
    assert LIMIT_BYTES * 0.5 < len(made.encode()) < LIMIT_BYTES
    last = lines(made)[-1]
    assert last.startswith("Left out to keep the summary small: Figure ")
    assert made.count("<details>") == made.count("</details>") == 1
    kept = [line for line in lines(made) if line.startswith("Figure ")]
    assert [line.split(":")[0] for line in kept] == [f"Figure {i}" for i in range(len(kept))]
    assert f"Figure {len(kept)}" in last


@pytest.mark.parametrize(
    "made",
    [
        large(figures=1, rows=4000, text="y" * 400),
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
