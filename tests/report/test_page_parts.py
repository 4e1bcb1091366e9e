"""What a page is made of, without a browser."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdperf.inline import EARLY, LATE, PAGE, VENDOR, Theme, copies, json_text, themes
from hvdperf.report.content import CaseNote, Column, Report, Table
from hvdperf.report.html import body, page
from hvdperf.report.text import alike, blames, neutral, number_text, printable
from hvdperf.verdict import Verdict
from tests.report.cases import luminance
from tests.report.sample import a_report, hostile

COPIES = copies()
# WCAG 2.2: text (1.4.3, AA), and what is no text but has to be seen (1.4.11).
TEXT, GRAPHICS = 4.5, 3.0
NO_ROWS = Table(a_report().board.table.columns, ())
VERDICTS = [verdict.name.lower() for verdict in Verdict]


@pytest.mark.parametrize(
    ("note", "folded"),
    [
        (CaseNote("a", Verdict.FAIL, ("The figure.", "The cause.")), ""),
        (CaseNote("a", Verdict.FAIL, ("The figure.", "The cause. " * 40)), "The cause."),
        (CaseNote("a", Verdict.FAIL, ("The figure.",), ("The cause.",)), "The cause."),
    ],
)
def test_what_is_long_of_a_note_is_folded(note: CaseNote, folded: str) -> None:
    report = replace(a_report(), notes=(note,), facts={})
    report = replace(report, board=replace(report.board, table=NO_ROWS))
    seen, _, rest = page(report).partition("<nav")[0].partition("<details>")
    assert "The figure." in seen
    assert "The cause." in (rest if folded else seen)


def test_a_reason_that_cases_share_is_told_once_with_its_cases() -> None:
    rows = a_report().board.table.rows[:8]
    notes = tuple(
        CaseNote(str(row["case"]), Verdict.FAIL, ("So and so.", f"Figure {number}."))
        for number, row in enumerate(rows)
    )
    other = CaseNote("another", Verdict.FAIL, ("Something else.",))
    report = replace(a_report(), notes=(*notes, other))
    head = page(report).partition("<nav")[0]
    assert head.count("So and so.") == 1
    assert [head.count(f"Figure {number}.") for number in range(8)] == [1] * 8
    assert all(f">{note.case}</bdi>" in head for note in notes)
    groups = [[note.case for note in group] for group in alike(report.notes)]
    assert groups == [[note.case for note in notes], ["another"]]


@pytest.mark.parametrize("report", [a_report(), hostile()])
def test_nothing_that_is_clicked_lies_in_what_folds(report: Report) -> None:
    """A screen reader tells a summary as one button, without what lies in it."""
    summaries = re.findall(r"<summary>(.*?)</summary>", page(report), re.DOTALL)
    assert summaries
    assert not any(re.search(r"<(a|button|input|select)\b", each) for each in summaries)


# What a browser may run -------------------------------------------------------------------------


@pytest.mark.parametrize("report", [a_report(), hostile()], ids=["usual", "hostile"])
def test_the_policy_names_every_script_and_style_and_nothing_else(report: Report) -> None:
    document = page(report)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', document)
    scripts, styles = (
        re.findall(rf"<{kind}>(.*?)</{kind}>", document, re.DOTALL) for kind in ("script", "style")
    )
    packed = re.findall(r'<script type="application/gzip" class="library">(.*?)</script>', document)
    libraries = [gzip.decompress(base64.b64decode(each)).decode() for each in packed]
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in (*scripts, *libraries, *styles)
    ]
    assert len(scripts) == len(EARLY) + len(LATE)
    assert len(libraries) == len(COPIES)
    assert re.findall(r"'sha256-[^']*'", unescape(policy)) == hashes
    assert "default-src 'none'; script-src 'sha256-" in unescape(policy)
    assert "unsafe" not in policy
    assert "http" not in policy


def test_every_script_of_the_page_is_in_it() -> None:
    assert {path.name for path in PAGE.glob("*.js")} == {*EARLY, *LATE}


@given(st.recursive(st.text() | st.floats(allow_nan=False), st.lists, max_leaves=5))
def test_json_in_a_script_is_what_it_was_and_ends_nothing(value: object) -> None:
    text = json_text(value)
    assert "<" not in text
    assert json.loads(text) == value


# The copies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("copy", COPIES, ids=lambda copy: copy["file"])
def test_a_copy_is_what_it_is_said_to_be(copy: dict[str, str]) -> None:
    algorithm, _, digest = copy["integrity"].partition("-")
    content = (VENDOR / copy["file"]).read_bytes()
    assert base64.b64encode(hashlib.new(algorithm, content).digest()).decode() == digest
    assert f'"{copy["version"]}"'.encode() in content


@pytest.mark.parametrize("copy", COPIES, ids=lambda copy: copy["file"])
def test_a_copy_comes_with_its_licence_and_so_does_the_page(copy: dict[str, str]) -> None:
    text = (VENDOR / copy["licence"]).read_text()
    assert "Redistributions in binary form must reproduce the above copyright notice" in text
    assert text.splitlines()[0] in page(a_report())


def test_nothing_else_lies_among_them() -> None:
    known = {VENDOR / copy[key] for copy in COPIES for key in ("file", "licence")}
    assert {path for path in VENDOR.rglob("*") if path.is_file()} == known


# Colours ----------------------------------------------------------------------------------------


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def texts() -> Iterator[tuple[str, str]]:
    """What is written on what."""
    for ground in ("page", "panel", "sunken"):
        yield from ((name, ground) for name in ("text", "muted", "accent"))
    for verdict in VERDICTS:
        yield from ((verdict, ground) for ground in (f"{verdict}_tint", "panel", "page", "sunken"))
    yield "text", "inconclusive_tint"
    yield "accent", "inconclusive_tint"
    yield "page", "text"


def graphics() -> Iterator[tuple[str, str]]:
    yield from ((name, "panel") for name in ("ideal", "limit", "interval", "named", "quiet"))
    yield from (("edge", ground) for ground in ("page", "panel"))


@pytest.mark.parametrize("theme", themes().values(), ids=themes())
def test_contrast_is_enough_for_everybody(theme: Theme) -> None:
    faint = [
        f"{name} on {ground}: {contrast(theme[name], theme[ground]):.2f}"
        for pairs, least in ((texts(), TEXT), (graphics(), GRAPHICS))
        for name, ground in pairs
        if contrast(theme[name], theme[ground]) < least
    ]
    faint += [
        f"{colour}: {contrast(colour, theme['panel']):.2f}"
        for colour in (*theme["categories"], *theme["sizes"])
        if contrast(colour, theme["panel"]) < (GRAPHICS if colour in theme["categories"] else 1.5)
    ]
    assert faint == []


def test_the_themes_have_the_same_colours() -> None:
    light, dark = themes().values()
    assert light.keys() == dark.keys()
    assert len(light["categories"]) == len(dark["categories"]) == 8
    for theme in (light, dark):
        assert all(one != other for one, other in combinations(theme["categories"], 2))


# Text and numbers -------------------------------------------------------------------------------


@given(st.text(st.characters()))
def test_what_is_shown_can_be_written_and_obeys_nothing(text: str) -> None:
    shown = printable(text)
    shown.encode()
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]", shown)
    assert len(shown) == len(text)


def test_what_does_not_print_is_seen_as_its_picture() -> None:
    assert printable("a\x1b[31m\x7f\n\tb \u05d0") == "a\u241b[31m\u2421\n\tb \u05d0"
    assert printable("a\x9bb\u202ec\ud800") == "a\ufffdb\ufffdc\ufffd"
    assert "\x1b" not in str(printable(hostile()))
    assert printable(a_report()) == a_report()


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (0.8236, 3, "0.824"),
        (12, 3, "12.000"),
        (12, None, "12"),
        (0.1 + 0.2, None, "0.3"),
        (1234.5678, 1, "1234.6"),
        (0.00004, 3, "4e-05"),
        (0.0, 3, "0.000"),
        (1e300, 3, "1.000e+300"),
    ],
)
def test_numbers_are_rounded_for_people(value: float, digits: int | None, shown: str) -> None:
    assert number_text(value, digits) == shown


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers())
def test_a_cell_has_all_digits(value: float) -> None:
    cell = body(Table((Column("a", "A", digits=2),), ({"a": value},)))
    found = re.search(r'<data value="([^"]*)">', cell)
    assert found is not None
    assert type(value)(found[1]) == value


def test_no_value_is_an_empty_cell_and_an_empty_text_is_none() -> None:
    cells = body(Table((Column("a", "A"),), ({"a": None}, {"a": ""}, {"a": "0"})))
    assert cells.split("\n") == [
        '<tr><th scope="row"></tr>',
        '<tr><th scope="row"><bdi></bdi></tr>',
        '<tr><th scope="row">0</tr>',
    ]


# The head ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "says"),
    [({}, "Nothing was measured"), ({Verdict.FAIL: 2, Verdict.PASS: 26}, "2 FAIL, 26 PASS")],
)
def test_the_title_of_the_window_counts_the_verdicts(counts: dict[Verdict, int], says: str) -> None:
    assert f"<title>{says} · " in page(replace(a_report(), counts=counts))


def test_whatever_did_not_pass_is_told_the_worst_first() -> None:
    report = a_report()
    told = blames(report)
    assert list(told) == list(Verdict)[:4]
    wanted = {verdict.value for verdict in told}
    cases = {row["case"] for row in report.board.table.rows if row["verdict"] in wanted}
    assert {note.case for notes in told.values() for note in notes} == cases
    assert {note.verdict for note in neutral(report)} == {Verdict.INFO}


def test_a_case_that_failed_is_told_without_a_note_too() -> None:
    silent = replace(a_report(), notes=())
    assert len([note for notes in blames(silent).values() for note in notes]) == 4
