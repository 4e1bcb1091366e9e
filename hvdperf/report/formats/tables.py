"""The tables of a report as files for programs (CSV) and for papers (LaTeX).

CSV (RFC 4180) has every column, in full precision. A text that a spreadsheet would take for a
formula gets a leading apostrophe, with which spreadsheets themselves mark text. A record is one
line, because every text is put in one line.

LaTeX is a file to be \\input, in UTF-8, LaTeX's default since 2018, with a booktabs table per
figure. Its head lists the packages that it needs.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO

from hvdperf.report.content import Column, Figure, Report, Table, Value
from hvdperf.report.formats.text import NONE, PICTURES, Shown, one_line, printable, shown

# The first characters of a formula. Some spreadsheets take the full-width ones for the others.
_FORMULA = tuple("=+-@\uff1d\uff0b\uff0d\uff20")


def tables(report: Report) -> dict[str, str]:
    """Return the text of each table by the figure's name, which is a valid file name.

    Line ends are CRLF: write the text unchanged, in UTF-8.
    """
    return {figure.name: text(figure.table) for figure in printable(report).figures}


def text(table: Table) -> str:
    """Return one table as CSV; a missing figure is an empty field."""
    stream = StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow([_harmless(_heading(column)) for column in table.columns])
    for row in table.rows:
        writer.writerow([_cell(row[column.key]) for column in table.columns])
    return stream.getvalue()


def _heading(column: Column) -> str:
    """Return a heading such as `seconds [s]`: the key, because titles change."""
    return f"{column.key} [{column.unit}]" if column.unit else column.key


def _cell(value: Value) -> Value:
    return _harmless(value) if isinstance(value, str) else value


def _harmless(value: str) -> str:
    line = one_line(value)
    return f"'{line}" if line.startswith(_FORMULA) else line


# More rows do not fit a page. adjustbox shrinks only a table that is still too large.
MOST_ROWS = 100
_BOX = r"\begin{adjustbox}{max width=\linewidth, max totalheight=0.8\textheight}"
_HEAD = r"""% Needs, before \begin{document}:
%   \usepackage[T1]{fontenc}
%   \usepackage{textcomp}
%   \usepackage{booktabs}
%   \usepackage[export]{adjustbox}
% Scripts other than Latin need lualatex or xelatex, and a font that has them.
% Tables are tab:NAME, NAME being that of the figure in the report.
"""
_HEAD_OF_FIGURES = r"""% Needs, before \begin{document}:
%   \usepackage[T1]{fontenc}
%   \usepackage{textcomp}
%   \usepackage{graphicx}
%   \usepackage[export]{adjustbox}
% and the figures as PDF (--format pdf).
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
        NONE: r"\textendash{}",
        # No font of LaTeX has these.
        **dict.fromkeys(PICTURES.values(), "?"),
    }
)


def latex(report: Report) -> str:
    """Return the tables of all figures, the board first."""
    return latex_of(report.figures)


def latex_of(figures: Sequence[Figure]) -> str:
    """Return the tables of these figures."""
    return "\n".join((_HEAD, *map(_table, printable(tuple(figures)))))


def figures_tex(figures: Sequence[Figure]) -> str:
    """Return an environment for each figure, with its caption, of files of the figures' names.
    figures: printable (formats.text)."""
    return "\n".join((_HEAD_OF_FIGURES, *map(_float, figures)))


def _float(figure: Figure) -> str:
    lines = [
        r"\begin{figure}[htbp]",
        r"  \centering",
        rf"  \includegraphics[max width=\linewidth]{{{figure.name}}}",
        rf"  \caption{{{tex(figure.says)}}}",
        rf"  \label{{fig:{figure.name}}}",
        r"\end{figure}",
        "",
    ]
    return "\n".join(lines)


def tex(text: str) -> str:
    """Return the text in one line that LaTeX prints and does not obey."""
    # Two hyphens would join to a dash.
    return re.sub("-(?=-)", "-{}", one_line(text).translate(_ESCAPES))


def number(text: str) -> str:
    """Return a figure, perhaps with its interval, with minus signs for hyphens."""
    return tex(text).replace("-", "$-$")


def _table(figure: Figure) -> str:
    if len(figure.table.rows) > MOST_ROWS:
        return f"% tab:{figure.name}: {len(figure.table.rows)} rows are too many for a page\n"
    told = shown(figure.table)
    columns = "".join("r" if numeric else "l" for numeric in told.numeric)
    title = tex(figure.title)
    lines = [
        r"\begin{table}[htbp]",
        r"  \centering",
        rf"  \caption[{{{title}}}]{{{title}. {tex(figure.says)}}}",
        rf"  \label{{tab:{figure.name}}}",
        rf"  {_BOX}\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
        r"    \toprule",
        f"    {_row(map(tex, told.headings))}",
        r"    \midrule",
        *(f"    {row}" for row in _rows(told)),
        r"    \bottomrule",
        r"  \end{tabular}\end{adjustbox}",
        r"\end{table}",
        "",
    ]
    return "\n".join(lines)


def _rows(told: Shown) -> Iterator[str]:
    for row in told.rows:
        cells = zip(told.numeric, row, strict=True)
        yield _row(number(text) if numeric else tex(text) for numeric, text in cells)
    if not told.rows:
        yield _row([tex(NONE), *[""] * (len(told.headings) - 1)])


def _row(cells: Iterable[str]) -> str:
    return f"{' & '.join(cells)} \\\\"
