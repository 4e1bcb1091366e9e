"""Tables and captions as LaTeX, and tables as CSV.

LaTeX is a file to be \\input, in UTF-8, LaTeX's default since 2018, with a booktabs table per
figure. Its head lists the packages that it needs.

CSV (RFC 4180) has every column, in full precision. A text that a spreadsheet would take for a
formula gets a leading apostrophe, with which spreadsheets themselves mark text. A record is one
line, because every text is put in one line.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from io import StringIO

from hvdperf.report import text as texts
from hvdperf.report.content import Figure, Report, Table, Value

# LaTeX -----------------------------------------------------------------------------------------

# adjustbox shrinks only a table that is too large for a page.
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
    told, title = texts.shown(figure.table), tex(figure.title)
    kinds = "".join("r" if numeric else "l" for numeric in told.numeric)
    rows = [
        # A figure, perhaps with its interval, has minus signs for hyphens.
        _latex_row(
            tex(cell).replace("-", "$-$") if numeric else tex(cell)
            for numeric, cell in zip(told.numeric, row, strict=True)
        )
        for row in told.rows
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
