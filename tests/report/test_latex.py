"""Tables for LaTeX hold no command but ours, and every row has all of its cells."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdperf.report.content import Column, Table
from hvdperf.report.formats.cells import one_line
from hvdperf.report.formats.latex import MOST_ROWS, latex
from hvdperf.report.formats.tex_text import number, tex
from tests.support.any_report import HOSTILE, board, report

# A command, or a character by itself.
TOKEN = re.compile(r"\\(?:[A-Za-z]+|.)|[^\\]", re.DOTALL)
# Of text: what stands for one character of ASCII, read by hand from the LaTeX manual.
ASCII = {
    r"\textbackslash": "\\",
    r"\{": "{",
    r"\}": "}",
    r"\$": "$",
    r"\&": "&",
    r"\#": "#",
    r"\_": "_",
    r"\%": "%",
    r"\textasciitilde": "~",
    r"\textasciicircum": "^",
    r"\textless": "<",
    r"\textgreater": ">",
    r"\textbar": "|",
    r"\textquotedbl": '"',
    r"\textasciigrave": "`",
}
# Of text, beyond ASCII: nothing that reads, writes, defines, or changes what characters mean.
SYMBOLS = re.compile(
    r"\\(text(endash|emdash|times|div|pm|mu|degree|periodcentered|ellipsis|bullet|section|euro"
    r"|copyright|registered|trademark|superscript|quote(dbl)?(left|right)|(left|right)arrow)"
    r"|ensuremath|geq|leq|approx|neq|infty|surd|ss|ae|AE|oe|OE|o|O|l|L|i|th|TH|dh|DH"
    r"|[`'^~\"=.uvHrc]|(var)?[A-Za-z]*(alpha|beta|gamma|delta|epsilon|eta|iota|kappa|lambda|mu|nu"
    r"|xi|pi|rho|sigma|tau|upsilon|phi|chi|psi|omega)"
    r"|Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|Upsilon|Phi|Psi|Omega)"
)
STRUCTURE = {
    *(r"\begin", r"\end", r"\centering", r"\caption", r"\label", r"\hvdperffit"),
    *(r"\toprule", r"\midrule", r"\bottomrule", "\\\\"),
}
ANY_TEXT = st.one_of(st.text(), st.sampled_from(HOSTILE)).map(one_line)


def depth_of_braces(made: str) -> Iterator[int]:
    depth = 0
    for token in TOKEN.findall(made):
        depth += {"{": 1, "}": -1}.get(token, 0)
        yield depth


def assert_it_is_text(made: str) -> None:
    """Whatever it came of, TeX prints it, and is where it was before."""
    assert made.isascii()
    assert made.isprintable()
    depths = [0, *depth_of_braces(made)]
    assert min(depths) == depths[-1] == 0
    for token in TOKEN.findall(made):
        if token.startswith("\\"):
            assert token in ASCII or SYMBOLS.fullmatch(token), token
        else:
            assert token not in '$&#^_%~`"<>|'


def bodies(made: str) -> list[str]:
    """The tables, without the head."""
    return re.findall(r"\\begin\{table\}.*?\\end\{table\}", made, re.DOTALL)


def rows(body: str) -> list[list[str]]:
    """The cells of a table, heading first."""
    inside = body[body.index(r"\toprule") : body.index(r"\bottomrule")]
    rules = (r"\toprule", r"\midrule", "")
    lines = [line for line in map(str.strip, inside.splitlines()) if line not in rules]
    for line in lines:
        assert line.endswith(" \\\\")
    return [re.split(r"(?<!\\) & ", line.removesuffix(" \\\\")) for line in lines]


# Text ------------------------------------------------------------------------------------------


@given(ANY_TEXT)
def test_any_text_is_only_printed(text):
    assert_it_is_text(tex(text))
    assert_it_is_text(number(text))


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_ascii_reads_as_it_is(text):
    made = tex(text)
    # TeX drops spaces behind a command's name, and so none may stand there.
    assert not re.search(r"\\[A-Za-z]+ ", made)
    printed = (ASCII.get(token, token) for token in TOKEN.findall(made) if token not in "{}")
    assert "".join(printed) == text


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("0.5\u20130.6", r"0.5\textendash{}0.6"),
        ("M\u00fcller, \u0141\u00f3d\u017a, \u00c5", r"M\"{u}ller, \L{}\'{o}d\'{z}, \r{A}"),
        ("5 \u03bcs \u2265 4 \u00b5s", r"5 \ensuremath{\mu}s \ensuremath{\geq} 4 \textmu{}s"),
        ("\u4e2d \u05d0 \U0001f600", "{[}U+4E2D{]} {[}U+05D0{]} {[}U+1F600{]}"),
        ("\u03ac \u01d6 \u2260", r"{[}U+03AC{]} {[}U+01D6{]} \ensuremath{\neq}"),
        ("--- ,, ''", "-{}-{}- ,{}, '{}'"),
        ("[1cm] *", "{[}1cm{]} {*}"),
        (r"\input{/etc/passwd}", r"\textbackslash{}input\{/etc/passwd\}"),
    ],
)
def test_text_is_printed_by_pdflatex(text, made):
    assert tex(text) == made


def test_a_number_has_a_minus_sign():
    assert number("-0.5 [-1.0, 0.1]") == (r"\ensuremath{-}0.5 {[}\ensuremath{-}1.0, 0.1{]}")


# Tables ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE)
def test_a_report_has_no_command_but_ours(text):
    made = latex(report(text))
    assert made.isascii()
    assert list(depth_of_braces(made))[-1] == 0
    for body in bodies(made):
        for token in TOKEN.findall(body):
            if token.startswith("\\"):
                assert token in STRUCTURE or token in ASCII or SYMBOLS.fullmatch(token), token
        assert Counter(re.findall(r"\\begin\{(\w+)\}", body)) == {"table": 1, "tabular": 1}
        assert re.findall(r"\\end\{(\w+)\}", body) == ["tabular", "table"]
        cells = rows(body)
        (columns,) = re.findall(r"\\begin\{tabular\}\{@\{\}([lr]+)@\{\}\}", body)
        assert {len(row) for row in cells} == {len(columns)}
        for row in cells:
            for cell in row:
                assert_it_is_text(cell)
                assert not cell.startswith(("[", "*"))


def test_every_figure_has_a_table_with_caption_and_label():
    made = latex(report("x", figures=2))
    labels = re.findall(r"\\label\{(.*?)\}", made)
    assert labels == ["tab:board", "tab:figure-0", "tab:figure-1"]
    assert r"\caption[{All cases}]{All cases. says x}" in made
    assert len(bodies(made)) == 3


def test_cells_have_digits_units_and_intervals():
    heading, first, second = rows(bodies(latex(report("x")))[0])
    assert heading[5:] == ["time {[}s{]}", "size {[}B{]}"]
    assert first[5:] == ["0.873 {[}0.861, 0.884{]}", "134217728"]
    assert second[5] == r"1.873 {[}1.861, \textendash{}{]}"


def test_the_head_names_the_packages():
    head = latex(report("x")).partition(r"\begin{table}")[0]
    packages = set(re.findall(r"^%   \\usepackage.*\{(\w+)\}$", head, re.MULTILINE))
    assert packages == {"booktabs", "fontenc", "graphicx", "textcomp"}


def test_an_empty_table_has_a_row_all_the_same():
    figure = replace(board(), table=Table(tuple(Column(key, key) for key in "ab"), ()))
    (body,) = bodies(latex(replace(report(), board=figure, sections=())))
    assert rows(body) == [["a", "b"], [r"\textendash{}", ""]]


def test_what_is_too_long_for_a_page_is_named():
    made = latex(replace(report(), board=board("x", MOST_ROWS + 1), sections=()))
    assert bodies(made) == []
    assert made.endswith(f"% tab:board: {MOST_ROWS + 1} rows are too many for a page\n")
