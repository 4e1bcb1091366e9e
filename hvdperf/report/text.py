"""Text that all formats share (cells of tables, notes), and the report for a terminal.

The text has no markup; each format escapes it in its own way. Of tables, a terminal shows the
columns with a brief heading, and of figures those that have such columns or are brief themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from hvdperf.columns import WIDTH, Columns, wrapped
from hvdperf.plan.comparisons import Question
from hvdperf.report import words
from hvdperf.report.content import CaseNote, Column, Report, Row, Table, Value
from hvdperf.verdict import Verdict, counted

# Shown where there is no figure.
NONE = "\N{EN DASH}"
# Numbers from here on are shown in the form 1.235e+16.
_LARGE = 1e15
# Control characters but line feed and tab are shown as pictures. Others have no picture and become
# U+FFFD: C1 controls, changes of the direction of text, and what UTF-8 or HTML forbids.
_WITHOUT_PICTURE = (*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
PICTURES = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "\u2421",
    # Vega breaks a line at these.
    **dict.fromkeys((0x2028, 0x2029), "\u2424"),
    **dict.fromkeys((*_WITHOUT_PICTURE, *range(0xD800, 0xE000), 0xFFFE, 0xFFFF), "\ufffd"),
}


@dataclass(frozen=True)
class Shown:
    """A table as text, one line per cell. numeric: for each column, whether it holds numbers."""

    headings: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]


def printable(value: Any) -> Any:
    """Return a copy of a report, or of a part of one, whose text every format can show."""
    if isinstance(value, str):
        return value.translate(PICTURES)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: printable(getattr(value, field.name)) for field in fields(value)}
        return replace(value, **parts)
    if isinstance(value, Mapping):
        return {printable(key): printable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(printable, value))
    return value


def shown(table: Table) -> Shown:
    """Return the table as text, without hidden columns.

    Bounds join their estimate, such as `0.873 [0.861, 0.884]` (`Table.bounds`).
    """
    table = replace(table, columns=tuple(table.seen))
    bounds = {column.key: table.bounds(column.key) for column in table.columns}
    joined = {column.key for pair in bounds.values() for column in pair}
    columns = [column for column in table.columns if column.key not in joined]
    return Shown(
        tuple(one_line(column.heading) for column in columns),
        tuple(is_numeric(table, column) for column in columns),
        tuple(
            tuple(_joined(row, each, bounds[each.key]) for each in columns) for row in table.rows
        ),
    )


def value_text(value: Value, digits: int | None = None, none: str = "") -> str:
    """Return a value as people see it. digits: those of its column. none: the text for None."""
    if value is None:
        return none
    return value if isinstance(value, str) else number_text(value, digits)


def number_text(value: float, digits: int | None) -> str:
    """Return a number as people see it. A small number is not rounded to zero."""
    if digits is None:
        return str(value) if isinstance(value, int) else f"{value:.6g}"
    if abs(value) >= _LARGE:
        return f"{value:.3e}"
    text = f"{value:.{digits}f}"
    return f"{value:.2g}" if value != 0 and float(text) == 0 else text


def is_numeric(table: Table, column: Column) -> bool:
    """Return whether the column is flush right: it holds only numbers, or is empty and has
    digits."""
    values = [row[column.key] for row in table.rows if row[column.key] is not None]
    if not values:
        return column.digits is not None
    return not any(isinstance(value, str) for value in values)


def one_line(text: str) -> str:
    return " ".join(text.split())


def _joined(row: Row, column: Column, bounds: Sequence[Column]) -> str:
    text = value_text(row[column.key], column.digits, NONE)
    if any(row[bound.key] is not None for bound in bounds):
        ends = (value_text(row[bound.key], bound.digits, NONE) for bound in bounds)
        text = f"{text} [{', '.join(ends)}]"
    return one_line(text)


# Notes -----------------------------------------------------------------------------------------

MEANINGS: Mapping[Verdict, str] = {
    Verdict.FAIL: "outside the limit, or crashed",
    Verdict.INVALID: "failed a validity check",
    Verdict.NOT_RUN: "was not measured",
    Verdict.INCONCLUSIVE: "what was measured does not decide",
    Verdict.PASS: "within the limit",
    Verdict.INFO: "shown without a limit",
}
# The verdicts that need a person's attention.
_NOT_PASSED = (Verdict.FAIL, Verdict.INVALID, Verdict.NOT_RUN, Verdict.INCONCLUSIVE)


def blames(report: Report) -> dict[Verdict, list[CaseNote]]:
    """Return the notes of the cases that did not pass, by verdict, the worst first; a case without
    a note gets an empty one."""
    noted = {note.case for note in report.notes}
    bare = [
        CaseNote(str(row["case"]), Verdict(row["verdict"]), ())
        for row in report.board.table.rows
        if row["case"] not in noted and row["verdict"] in {each.value for each in _NOT_PASSED}
    ]
    every = [*report.notes, *bare]
    found = {
        verdict: [note for note in every if note.verdict is verdict] for verdict in _NOT_PASSED
    }
    return {verdict: notes for verdict, notes in found.items() if notes}


def alike(notes: Iterable[CaseNote]) -> list[list[CaseNote]]:
    """Return the notes in groups that share the verdict, the first paragraph and the output."""
    found: dict[tuple[Verdict, tuple[str, ...], tuple[str, ...]], list[CaseNote]] = {}
    for note in notes:
        found.setdefault((note.verdict, note.paragraphs[:1], note.output), []).append(note)
    return list(found.values())


def neutral(report: Report) -> list[CaseNote]:
    """Return the notes of cases that need nobody's attention."""
    return [note for note in report.notes if note.verdict not in _NOT_PASSED]


# Lines of 80 columns --------------------------------------------------------------------------

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
        for figure in section.figures:
            if _briefly(figure.table).columns:
                lines += [*wrapped(figure.title), *_table(figure.table)]
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
    """Return the header and the rows; rows that share a topic and a world size stand below
    these."""
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
    return lines


def _group(row: Row) -> str:
    topic = str(row["topic"]).replace("_", " ")
    return f"{topic}, {words.plural(int(row['world_size'] or 0), 'rank')}"


def _place(row: Row) -> tuple[str, int, str]:
    return str(row["topic"]), int(row["world_size"] or 0), str(row["label"])


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
