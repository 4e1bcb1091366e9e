"""The report as text with markup: Markdown, LaTeX, and its tables as CSV.

Markdown is GitHub's, for the summary of a CI job ($GITHUB_STEP_SUMMARY). Cases that did not pass
come first, then the board, then the folded tables of the sections. Only the page has plots. Names
and other text in cells are code, so that they make no markup, no link and no mention. GitHub
refuses a summary above 1 MiB as a whole, so tables are left out, from the end on.

LaTeX is a file to be \\input, in UTF-8, LaTeX's default since 2018, with a booktabs table per
figure. Its head lists the packages that it needs.

CSV (RFC 4180) has every column, in full precision. A text that a spreadsheet would take for a
formula gets a leading apostrophe, with which spreadsheets themselves mark text. A record is one
line, because every text is put in one line.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from io import StringIO

from hvdperf.report import text as texts
from hvdperf.report.content import Figure, Report, Section, Table, Value
from hvdperf.verdict import Verdict

# Markdown --------------------------------------------------------------------------------------

# GitHub's limit of the whole summary in UTF-8, and the room for the line that lists omitted parts.
LIMIT_BYTES = 1024 * 1024
_SPARE_BYTES = 16 * 1024
# The page has the rest.
_ROWS_OF_A_SECTION = 200
_OUTPUT_LINES = 40
_LONGEST_TEXT = 2000
_CLOSING = "</details>\n\n"
# Markup inside a line and at its beginning. An underscore inside a word is no markup.
_MARKUP = re.compile(r"[\\`*\[\]<>&~$|]|(?<![^\W_])_|_(?![^\W_])|^[-+#]")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")


@dataclass(frozen=True)
class _Part:
    """A part of the summary, written whole or not at all. closing: text that has to follow if the
    summary ends here."""

    text: str
    closing: str = ""


def markdown(report: Report) -> str:
    """Return the summary, of fewer than LIMIT_BYTES bytes in UTF-8."""
    parts = list(_parts(texts.printable(report)))
    left = LIMIT_BYTES - _SPARE_BYTES
    for i, part in enumerate(parts):
        left -= len(part.text.encode())
        if left < 0:
            more = f"{len(parts) - i} parts are left out to keep the summary small: see the page."
            return "".join(part.text for part in parts[:i]) + parts[i - 1].closing + _block(more)
    return "".join(part.text for part in parts)


def line(text: str) -> str:
    """Return the text as a line of Markdown that reads as the text."""
    return _NUMBERED.sub(r"\1\\\2", _MARKUP.sub(r"\\\g<0>", _short(text)))


def markdown_captions(figures: Sequence[Figure]) -> str:
    """Return the captions of figures, a paragraph each that begins with the figure's name."""
    return "\n".join(f"{code(figure.name)}: {line(figure.says)}\n" for figure in figures)


def code(text: str) -> str:
    """Return the text as code, also for the cell of a table."""
    text = _short(text)
    if not text:
        return ""
    fence = _fence(text, 1)
    # Markdown removes one space from both ends.
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"


def fenced(lines: Iterable[str]) -> str:
    """Return printed output as a block of code."""
    text = "\n".join(lines)
    fence = _fence(text, 3)
    return f"{fence}text\n{text}\n{fence}"


def _fence(text: str, least: int) -> str:
    """Return more backticks than any run in the text."""
    return "`" * max((least, *(len(run) + 1 for run in re.findall("`+", text))))


def _parts(report: Report) -> Iterator[_Part]:
    yield _Part(_headline(report))
    if report.facts:
        rows = [f"| {line(name)} | {_cell(fact)} |" for name, fact in report.facts.items()]
        yield _Part(_block("| | |", "|---|---|", *rows))
    for kind, warnings in (("Warning", report.warnings), ("Left out", report.left_out)):
        for warning in warnings:
            yield _Part(_block(f"> **{kind}**: {line(warning)}"))
    if report.overview is not None:
        yield _Part(_figure("##", report.overview, _table(report.overview.table)))
    yield from _not_passed(report)
    yield from _next_steps(report)
    yield from _infos(report)
    if report.has_board:
        yield _Part(_figure("##", report.board, _table(report.board.table)))
    for section in report.sections:
        yield from _section(section)


def _headline(report: Report) -> str:
    said = f"**{texts.headline(report)}**"
    if report.verdict is not Verdict.INFO:
        said += f": {texts.MEANINGS[report.verdict]}"
    rest = f" {texts.others(report)}." if texts.others(report) else ""
    lead = "".join(_block(line(each)) for each in report.lead)
    return _block(f"# {line(report.title)}") + _block(f"{said}.{rest}") + lead


def _not_passed(report: Report) -> Iterator[_Part]:
    """Yield the cases that did not pass, the worst verdict first, each with its note and output."""
    title = "## What did not pass"
    for verdict, notes in texts.blames(report).items():
        for note in notes:
            first, *more = map(line, note.paragraphs or ("",))
            case = f"**{verdict.value}** {code(note.case)}"
            blocks = [title, f"{case}: {first}" if first else case, *more]
            output = [each for text in note.output for each in text.expandtabs().splitlines()]
            if output:
                blocks.append(fenced(each[:_LONGEST_TEXT] for each in output[-_OUTPUT_LINES:]))
            yield _Part("".join(map(_block, blocks)))
            title = ""


def _next_steps(report: Report) -> Iterator[_Part]:
    if report.next_steps:
        yield _Part(_block("## What to type next") + _block(fenced(report.next_steps)))


def _infos(report: Report) -> Iterator[_Part]:
    """Yield each reason for not judging once, because many cases share one."""
    reasons = Counter(
        note.paragraphs[0]
        for note in texts.neutral(report)
        if note.verdict is Verdict.INFO and note.paragraphs
    )
    for reason, count in reasons.items():
        said = f"**{Verdict.INFO.value}** ({count}): {line(reason)}"
        yield _Part(_block(said))


def _section(section: Section) -> Iterator[_Part]:
    """Yield the parts of a section, folded because a summary is read from the top."""
    # GitHub reads HTML up to the next empty line, and Markdown from there on.
    opening = _block("<details>", f"<summary>{escape(_short(section.title))}</summary>")
    missing = "" if section.figures else line(section.missing)
    text = opening + _block(line(section.intro)) + _block(missing)
    yield _Part(text, _CLOSING)
    # Two plots of the same numbers have equal tables, of which only the first is written.
    told: list[Figure] = []
    for figure in section.figures:
        same = next((other for other in told if other.table == figure.table), None)
        if same is not None:
            table = f"For its numbers, see the table of: {line(same.title)}"
        elif len(figure.table.rows) > _ROWS_OF_A_SECTION:
            table = f"{len(figure.table.rows)} rows: see the page."
        else:
            table = _table(figure.table)
        told.append(figure)
        yield _Part(_figure("###", figure, table), _CLOSING)
    yield _Part(_CLOSING)


def _figure(level: str, figure: Figure, table: str) -> str:
    blocks = (f"{level} {line(figure.title)}", line(figure.says), table)
    return "".join(map(_block, blocks))


def _table(table: Table) -> str:
    told = texts.shown(table)
    if not told.rows:
        return "Nothing."
    lines = [
        _row(map(line, told.headings)),
        _row("---:" if numeric else "---" for numeric in told.numeric),
    ]
    for row in told.rows:
        cells = zip(told.numeric, row, strict=True)
        lines.append(_row(text if numeric else _cell(text) for numeric, text in cells))
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    """Return the cell of a table, in which a bar has to be escaped in code, too."""
    return text if text == texts.NONE else code(text).replace("|", r"\|")


def _short(text: str) -> str:
    text = texts.one_line(text)
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 3]}..."


def _block(*lines: str) -> str:
    """Return the lines and an empty one; return "" if all lines are empty."""
    return "\n".join((*lines, "", "")) if any(lines) else ""


# LaTeX -----------------------------------------------------------------------------------------

# More rows do not fit a page. adjustbox shrinks only a table that is still too large.
MOST_ROWS = 100
_BOX = r"\begin{adjustbox}{max width=\linewidth, max totalheight=0.8\textheight}"
_HEAD = r"""% Needs, before \begin{document}:
%   \usepackage[T1]{fontenc}
%   \usepackage{textcomp}
%   \usepackage{booktabs}
%   \usepackage{graphicx}
%   \usepackage[export]{adjustbox}
% Scripts other than Latin need lualatex or xelatex, and a font that has them.
% Tables are tab:NAME and figures fig:NAME, NAME being that of the figure in the report. Figures are
% files of that name, as PDF (--format pdf).
"""
_ESCAPES = str.maketrans(
    {
        **{letter: f"\\{letter}" for letter in "{}$&#_%"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        "`": r"\textasciigrave{}",
        # LaTeX looks for these after the end of a row.
        "[": "{[}",
        "*": "{*}",
        texts.NONE: r"\textendash{}",
        # No font of LaTeX has these.
        **dict.fromkeys(texts.PICTURES.values(), "?"),
    }
)


def latex(figures: Sequence[Figure]) -> str:
    """Return the tables of these figures."""
    return "\n".join((_HEAD, *map(_latex_table, texts.printable(tuple(figures)))))


def latex_captions(figures: Sequence[Figure]) -> str:
    """Return an environment for each figure, with its caption, of files of the figures' names.
    figures: printable."""
    floats = (
        rf"""\begin{{figure}}[htbp]
  \centering
  \includegraphics[max width=\linewidth]{{{figure.name}}}
  \caption{{{tex(figure.says)}}}
  \label{{fig:{figure.name}}}
\end{{figure}}
"""
        for figure in figures
    )
    return "\n".join((_HEAD, *floats))


def tex(text: str) -> str:
    """Return the text in one line that LaTeX prints and does not obey."""
    # Two hyphens would join to a dash.
    return re.sub("-(?=-)", "-{}", texts.one_line(text).translate(_ESCAPES))


def _latex_table(figure: Figure) -> str:
    if len(figure.table.rows) > MOST_ROWS:
        return f"% tab:{figure.name}: {len(figure.table.rows)} rows are too many for a page\n"
    told, title = texts.shown(figure.table), tex(figure.title)
    kinds = "".join("r" if numeric else "l" for numeric in told.numeric)
    nothing = (texts.NONE, *[""] * (len(told.headings) - 1))
    rows = [
        # A figure, perhaps with its interval, has minus signs for hyphens.
        _latex_row(
            tex(cell).replace("-", "$-$") if numeric else tex(cell)
            for numeric, cell in zip(told.numeric, row, strict=True)
        )
        for row in told.rows or (nothing,)
    ]
    lines = [
        r"\begin{table}[htbp]",
        r"  \centering",
        rf"  \caption[{{{title}}}]{{{title}. {tex(figure.says)}}}",
        rf"  \label{{tab:{figure.name}}}",
        rf"  {_BOX}\begin{{tabular}}{{@{{}}{kinds}@{{}}}}",
        r"    \toprule",
        _latex_row(map(tex, told.headings)),
        r"    \midrule",
        *rows,
        r"    \bottomrule",
        r"  \end{tabular}\end{adjustbox}",
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def _latex_row(cells: Iterable[str]) -> str:
    return f"    {' & '.join(cells)} \\\\"


# CSV -------------------------------------------------------------------------------------------

# The first characters of a formula. Some spreadsheets take the full-width ones for the others.
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")


def tables(report: Report) -> dict[str, str]:
    """Return the text of each table by the figure's name, which is a valid file name.

    Line ends are CRLF: write the text unchanged, in UTF-8.
    """
    return {figure.name: table_csv(figure.table) for figure in texts.printable(report).figures}


def table_csv(table: Table) -> str:
    """Return one table as CSV; a missing figure is an empty field. A heading such as `seconds [s]`
    has the key, because titles change."""
    stream = StringIO(newline="")
    keys = [column.key for column in table.columns]
    writer = csv.writer(stream)
    writer.writerow(_harmless(replace(each, title=each.key).heading) for each in table.columns)
    writer.writerows([_harmless(row[key]) for key in keys] for row in table.rows)
    return stream.getvalue()


def _harmless(value: Value) -> Value:
    if not isinstance(value, str):
        return value
    line = texts.one_line(value)
    return f"'{line}" if line.startswith(_FORMULA) else line
