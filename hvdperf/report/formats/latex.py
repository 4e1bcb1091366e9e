"""Tables for a paper: the text of one .tex file to be \\input, with a booktabs table per figure.

The file is ASCII, and its head lists the packages that it needs.
"""

from __future__ import annotations

from collections.abc import Iterator

from hvdperf.report.content import Figure, Report
from hvdperf.report.formats.cells import NONE, Shown, one_line, shown
from hvdperf.report.formats.tex_text import number, tex

# More rows do not fit a page. The macro shrinks only a table that is still too large.
MOST_ROWS = 100
_HEAD = r"""% Needs, before \begin{document}:
%   \usepackage[T1]{fontenc}
%   \usepackage{textcomp}
%   \usepackage{booktabs}
%   \usepackage{graphicx}
% Tables are tab:NAME, NAME being that of the figure in the report.
\makeatletter
\@ifundefined{hvdperfbox}{\newsavebox{\hvdperfbox}}{}
\makeatother
\providecommand{\hvdperffit}[1]{%
  \sbox{\hvdperfbox}{#1}%
  \ifdim\wd\hvdperfbox>\linewidth
    \sbox{\hvdperfbox}{\resizebox{\linewidth}{!}{\usebox{\hvdperfbox}}}%
  \fi
  \ifdim\ht\hvdperfbox>0.4\textheight
    \resizebox*{!}{0.8\textheight}{\usebox{\hvdperfbox}}%
  \else
    \usebox{\hvdperfbox}%
  \fi}
"""


def latex(report: Report) -> str:
    """Return the tables of all figures, the board first."""
    return "\n".join((_HEAD, *map(_table, report.figures)))


def _table(figure: Figure) -> str:
    if len(figure.table.rows) > MOST_ROWS:
        return f"% tab:{figure.name}: {len(figure.table.rows)} rows are too many for a page\n"
    told = shown(figure.table)
    columns = "".join("r" if numeric else "l" for numeric in told.numeric)
    title = tex(one_line(figure.title))
    says = tex(one_line(figure.says))
    lines = [
        r"\begin{table}[htbp]",
        r"  \centering",
        rf"  \caption[{{{title}}}]{{{title}. {says}}}",
        rf"  \label{{tab:{figure.name}}}",
        rf"  \hvdperffit{{\begin{{tabular}}{{@{{}}{columns}@{{}}}}",
        r"    \toprule",
        f"    {_row([tex(heading) for heading in told.headings])}",
        r"    \midrule",
        *(f"    {row}" for row in _rows(told)),
        r"    \bottomrule",
        r"  \end{tabular}}",
        r"\end{table}",
        "",
    ]
    return "\n".join(line.rstrip() for line in lines)


def _rows(told: Shown) -> Iterator[str]:
    for row in told.rows:
        cells = zip(told.numeric, row, strict=True)
        yield _row([number(text) if numeric else tex(text) for numeric, text in cells])
    if not told.rows:
        yield _row([tex(NONE), *[""] * (len(told.headings) - 1)])


def _row(cells: list[str]) -> str:
    return f"{' & '.join(cells)} \\\\"
