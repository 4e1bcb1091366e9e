"""The report in lines of 80 columns, as a session shows it at its end.

Only columns with a brief heading are shown, and only the figures that have such columns, or that
are brief themselves.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest

from hvdperf.columns import WIDTH, Columns, wrapped
from hvdperf.plan.comparisons import Question
from hvdperf.report.content import CaseNote, Figure, Report, Row, Table
from hvdperf.report.formats.text import NONE, alike, neutral, printable, shown
from hvdperf.report.words import plural
from hvdperf.verdict import Verdict, counted

# Lines of a launch's errors; a launch of many ranks has written more.
MOST_LINES = 25


def terminal(report: Report) -> str:
    """Return the report as text."""
    counts = counted(report.counts) or "nothing measured"
    return "\n".join([*wrapped(f"{printable(report.title)}: {counts}"), *lines_of(report)])


def lines_of(report: Report) -> list[str]:
    """Return the lines below the counts of verdicts: machine and versions, what did not pass, how
    training scales, and the cases whose results are not in that table."""
    report = printable(report)
    known = filter(None, (report.facts.get("machine"), report.facts.get("stack")))
    lines = wrapped("; ".join(known))
    lines += [line for warning in report.warnings for line in wrapped(warning)]
    quiet = neutral(report)
    lines += _notes(note for note in report.notes if note not in quiet)
    board, answered = report.board.table, set[str]()
    if report.overview is not None:
        table = report.overview.table
        answered = {column.title for column in table.columns}
        lines += ["", *_table(table), *wrapped(report.overview.says)]
    kept = [row for row in board.rows if not _is_answered(row, answered)]
    if kept and _briefly(board).columns:
        lines += ["", *_table(replace(board, rows=tuple(kept)))]
    lines += _notes(quiet)
    if report.board.brief:
        lines += wrapped(report.board.says)
    for section in report.sections:
        lines += _side_by_side([_titled(f) for f in section.figures if _briefly(f.table).columns])
        for figure in section.figures:
            if figure.brief:
                lines += wrapped(f"{figure.title}. {figure.says}")
    return [*lines, *filter(None, [report.facts.get("took")])]


def _is_answered(row: Row, answered: Collection[str]) -> bool:
    """Return whether the first table and the notes say all that a row of the board would.
    answered: the questions of the first table."""
    passed = row["verdict"] in (Verdict.PASS.value, Verdict.INFO.value)
    return passed and bool(answered) and row["question"] in (*answered, Question.AA.label)


def _briefly(table: Table) -> Table:
    """Return the table with brief headings, and the verdict as its last column."""
    kept = sorted((each for each in table.columns if each.brief), key=lambda c: c.key == "verdict")
    columns = (replace(each, title=each.brief, unit="", hidden=False) for each in kept)
    return Table(tuple(columns), table.rows)


def _table(table: Table) -> list[str]:
    """Return the header and the rows; rows that share a topic and a world size stand below these,
    and settings below their row."""
    grouped = any(column.key == "topic" for column in table.columns)
    rows = sorted(table.rows, key=_place) if grouped else table.rows
    told = shown(replace(_briefly(table), rows=tuple(rows)))
    cells = [(f"{'  ' * grouped}{first}", *more) for first, *more in told.rows]
    widths = [max(map(len, column)) for column in zip(told.headings, *cells, strict=True)]
    # A name that is too long moves the other cells of its row.
    widths[0] = min(widths[0], WIDTH - sum(widths[1:]) - len(widths[1:]))
    for i, numeric in enumerate(told.numeric):
        if not numeric or any("[" in row[i] for row in cells):
            widths[i] *= -1
    columns = Columns(*zip(told.headings, widths, strict=True))
    lines, group = [columns.header], ""
    for row, texts in zip(rows, cells, strict=True):
        if grouped and group != (group := _group(row)):
            lines.append(group)
        lines.append(columns.row(*(text.replace(NONE, "-") for text in texts)))
        if row.get("settings"):
            lines += wrapped(str(row["settings"]), "    ", "      ")
    return lines


def _group(row: Row) -> str:
    topic = str(row["topic"]).replace("_", " ")
    return f"{topic}, {plural(int(row['world_size'] or 0), 'rank')}"


def _place(row: Row) -> tuple[str, int, str]:
    return str(row["topic"]), int(row["world_size"] or 0), str(row["label"])


def _titled(figure: Figure) -> list[str]:
    table = _table(figure.table)
    # The name of a session has a hyphen, and is copied.
    title = textwrap.wrap(figure.title, max(map(len, table)), break_on_hyphens=False)
    return [*title, *table]


def _side_by_side(blocks: Iterable[list[str]]) -> list[str]:
    """Return blocks of lines, each to the right of the one before it if there is room."""
    lines: list[str] = []
    beside: list[str] = []
    for block in blocks:
        left = max(map(len, beside), default=0)
        if beside and left + 2 + max(map(len, block)) <= WIDTH:
            both = zip_longest(beside, block, fillvalue="")
            beside = [f"{one:<{left}}  {other}" for one, other in both]
        else:
            lines, beside = [*lines, *beside], block
    return [*lines, *beside]


def _notes(notes: Iterable[CaseNote]) -> Iterator[str]:
    """Yield each reason once, with the cases that share it and the end of what ranks printed."""
    for group in alike(note for note in notes if note.reason):
        verdict, reason, output = group[0].verdict, group[0].reason, group[0].output
        names = [note.case for note in group]
        told = f": {reason}" if verdict is Verdict.INFO else f" {', '.join(names)}: {reason}"
        yield from wrapped(f"{verdict.value}{told}")
        if output:
            yield "The end of its errors:"
            lines = [line for text in output for line in text.splitlines()]
            yield from (f"    {line}" for line in lines[-MOST_LINES:])
