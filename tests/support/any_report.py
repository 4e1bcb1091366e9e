"""A report to write in a format, with any given text in all of its places."""

from __future__ import annotations

from hvdperf.report.content import CaseNote, Column, Figure, Report, Section, Table
from hvdperf.verdict import Verdict

# Names of a case, a reason or a machine that would do harm in some format.
HOSTILE = (
    "</summary></details><script>alert(1)</script>",
    "a|b||c \\| d\\",
    "one\ntwo\r\n\r\n# three\n- four\n```\nfive",
    "`one` ``two`` ```",
    "**bold** _it_ ~~gone~~ [x](http://y) ![i](z) [^1] [ref]: /url",
    "@octocat https://example.com $x^2$ $$y$$ &amp; &#64;x",
    "\x00\x07\x1b[31mred\x1b[0m\x7f\x85",
    "\u202etxt.exe\u202c \u200f \u2066 \ud800 \ufeff",
    "\u05d0\u05d1\u05d2 \u0627\u0644 \u4e2d\u6587 \U0001f600 e\u0301 \u00e9 \u0141 \u03bc \u2265",
    "\\input{/etc/passwd} \\write18{ls} ^^5cinput %x {}} \\end{table} \\\\[1cm]",
    "=cmd|' /C calc'!A0",
    "-2+3",
    "\t=1+1",
    "\uff1dA1",
    "[0.1] *x* -- --- ,, '' \"q\" ?` !` << >>",
    "1. one",
    "",
    " ",
    "x" * 5000,
)
COLUMNS = (
    Column("verdict", "verdict"),
    Column("question", "question"),
    Column("model", "model"),
    Column("world_size", "replicas"),
    Column("case", "case"),
    Column("seconds", "time", "s", 3),
    Column("lower", "lower", "s", 3),
    Column("upper", "upper", "s", 3),
    Column("bytes", "size", "B"),
)


def board(text: str = "x", rows: int = 2, verdict: Verdict = Verdict.FAIL) -> Figure:
    """Return a board of `rows` cases, of which only the first did not pass, with the text in its
    text cells."""
    cells = tuple(
        {
            "verdict": (verdict if row == 0 else Verdict.PASS).value,
            "question": text,
            "model": text,
            "world_size": 2,
            "case": f"{text}{row}",
            "seconds": 0.87312 + row,
            "lower": 0.86149 + row,
            "upper": None if row else 0.88361,
            "bytes": 134217728,
        }
        for row in range(rows)
    )
    return Figure("board", "All cases", f"says {text}", Table(COLUMNS, cells))


def report(text: str = "x", figures: int = 2, rows: int = 2) -> Report:
    """Return a report with the text in every place that may have one."""
    columns = (*COLUMNS, Column("more", text, text))
    cells = [{**row, "more": text} for row in board(text, rows).table.rows]
    tables = (
        Table(columns, tuple({**row, "bytes": number} for row in cells))
        for number in range(figures)
    )
    of_section = tuple(
        Figure(f"figure-{number}", f"Figure {number}: {text}", text, table)
        for number, table in enumerate(tables)
    )
    return Report(
        title=f"T {text}",
        verdict=Verdict.FAIL,
        counts={Verdict.FAIL: 1, Verdict.PASS: rows - 1},
        facts={f"machine {text}": text},
        warnings=(f"W {text}",),
        board=board(text, rows),
        notes=(CaseNote(f"{text}0", Verdict.FAIL, (f"R {text}", f"S {text}"), (text, "end")),),
        sections=(
            Section("one", f"One {text}", f"I {text}", of_section, missing=f"N {text}"),
            Section("two", f"Two {text}", text, missing=f"M {text}"),
        ),
        left_out=(f"L {text}",),
    )
