"""Content of a report, independent of its format: sections of figures, each a table and its plot.

report/sections/ makes the content from results; text.py, html.py and markup.py write it. A table
holds the only copy of its numbers: a plot refers to the table's columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hvdperf.stats import Interval
from hvdperf.verdict import Verdict, is_bounded

Subject = TypeVar("Subject")

Value = str | int | float | None
Row = Mapping[str, Value]
# A Vega-Lite specification without data: its fields are the keys of the table's columns.
Plot = Mapping[str, Any]
# Parts of the keys of a lower and of an upper bound.
_BOUNDS = (("lower", "_low"), ("upper", "_high"))


@dataclass(frozen=True)
class Column:
    """A column of a table.

    key: its key in the rows. title: its heading for people. unit: such as "img/s"; "" for text and
    ratios. digits: digits after the point that people see; None for text and whole numbers.
    hidden: whether only plots and programs use the column, so that people do not see it. brief: its
    heading on a terminal, which has no room for columns without one. link: the key of the column
    with the address of a page about the cell; "" for none.
    """

    key: str
    title: str
    unit: str = ""
    digits: int | None = None
    hidden: bool = False
    brief: str = ""
    link: str = ""

    @property
    def heading(self) -> str:
        """Return a heading such as `throughput [img/s]`."""
        return f"{self.title} [{self.unit}]" if self.unit else self.title


@dataclass(frozen=True)
class Field(Generic[Subject]):
    """A column of a table, or the three of an interval. cells: returns their cells for the subject
    of a row, by key."""

    columns: tuple[Column, ...]
    cells: Callable[[Subject], Row]


@dataclass(frozen=True)
class Table:
    """A table. Each row has the keys of all columns at least, with None where there is no figure.
    Numbers are finite and not rounded. A column "verdict" holds the values of
    hvdperf.verdict.Verdict. A terminal sorts rows with a column "topic" by it, by "world_size" and
    by "label"."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    def column(self, key: str) -> Column:
        return next(column for column in self.columns if column.key == key)

    @property
    def seen(self) -> list[Column]:
        """The columns that people see."""
        return [column for column in self.columns if not column.hidden]

    def bounds(self, key: str) -> tuple[Column, ...]:
        """Return the columns of a figure's lower and upper bound, which are the two beside it and
        have a key with "lower" and "upper", or "_low" and "_high"; () if it has none."""
        place = [column.key for column in self.columns].index(key)
        figure, *beside = self.columns[place : place + 3]
        named = [
            [column.key.replace(end, "") for end in ends if end in column.key]
            for column, ends in zip(beside, _BOUNDS, strict=False)
        ]
        alike = len(beside) == 2 and named[0] == named[1] != []
        units = {column.unit for column in (figure, *beside)}
        return tuple(beside) if alike and figure.digits is not None and len(units) == 1 else ()

    @staticmethod
    def of(subjects: Iterable[Subject], *fields: Field[Subject]) -> Table:
        """Return a table with a row for each subject, such as a case."""
        return Table(
            tuple(column for field in fields for column in field.columns),
            tuple(
                {key: cell for field in fields for key, cell in field.cells(subject).items()}
                for subject in subjects
            ),
        )

    @staticmethod
    def filled(columns: Sequence[Column], rows: Iterable[Sequence[Value]]) -> Table:
        """Return a table from rows that have their cells in the order of the columns."""
        keys = [column.key for column in columns]
        return Table(tuple(columns), tuple(dict(zip(keys, row, strict=True)) for row in rows))


@dataclass(frozen=True)
class Figure:
    """A table with its plot.

    name: unique in a report, made of a-z, 0-9, "_" and "-"; the id in the page and the name of the
    saved file. says: a conclusion or an explanation that the table does not have; "" for none.
    plot: None for a table alone. brief: whether a terminal shows what it says; that shows its table
    if the table has columns for it. lead: of what it says, the part for the head of a page.
    """

    name: str
    title: str
    says: str
    table: Table
    plot: Plot | None = None
    brief: bool = False
    lead: str = ""


@dataclass(frozen=True)
class Section:
    """A section of a report. intro: one or two sentences on how to read its figures. missing:
    shown if there are no figures: the quantity that was not measured and the command that measures
    it; "" for a section that always has figures. explains: whether it explains figures of other
    sections, so that a page folds it."""

    name: str
    title: str
    intro: str
    figures: tuple[Figure, ...] = ()
    missing: str = ""
    explains: bool = False


@dataclass(frozen=True)
class CaseNote:
    """Information about a case that its row in the board lacks. output: text as a process printed
    it. reason: the paragraph, if there is one, that is shown where there is no room for all."""

    case: str
    verdict: Verdict
    paragraphs: tuple[str, ...]
    output: tuple[str, ...] = ()
    reason: str = ""


# Of what has no cases.
NO_BOARD = Figure("cases", "Cases", "", Table((), ()))


@dataclass(frozen=True)
class Report:
    """A report.

    counts: number of cases by verdict. verdict: the worst verdict of the cases; INFO if none
    was judged. facts: short facts about the session by name, such as machine and duration.
    board: a figure whose table has a row per case and the columns "verdict" and "case", and of
    sessions "question", "model" and "world_size", among others. notes: for the cases that need one.
    left_out: a line per file that could not be read. overview: the figure that a reader wants
    first; None if it was not measured. limits: what the thresholds are called that cases were
    judged by. next_steps: what to type next, in lines. headline: "" for the counts in words. lead:
    the sentences below it, the most important one first. links: words and addresses of other pages.
    """

    title: str
    verdict: Verdict
    counts: Mapping[Verdict, int]
    facts: Mapping[str, str]
    warnings: tuple[str, ...] = ()
    board: Figure = NO_BOARD
    notes: tuple[CaseNote, ...] = ()
    sections: tuple[Section, ...] = ()
    left_out: tuple[str, ...] = ()
    overview: Figure | None = None
    limits: str = ""
    next_steps: tuple[str, ...] = ()
    headline: str = ""
    lead: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()

    @property
    def has_board(self) -> bool:
        return bool(self.board.table.columns)

    @property
    def figures(self) -> Sequence[Figure]:
        """Return the overview, the board and the figures of all sections."""
        first = () if self.overview is None else (self.overview,)
        return (
            *first,
            *([self.board] if self.has_board else ()),
            *(each for section in self.sections for each in section.figures),
        )


# Fields ----------------------------------------------------------------------------------------


def value(
    key: str,
    title: str,
    get: Callable[[Subject], Value],
    unit: str = "",
    digits: int | None = None,
    **more: Any,
) -> Field[Subject]:
    """Return a field of one column. more: of the column."""
    return Field((Column(key, title, unit, digits, **more),), lambda subject: {key: get(subject)})


def interval(
    key: str,
    title: str,
    get: Callable[[Subject], Interval | None],
    unit: str = "",
    digits: int = 3,
    *,
    bounds: Sequence[str] = (),
    ends: Sequence[str] = ("lower", "upper"),
    brief_bounds: bool = False,
    **more: Any,
) -> Field[Subject]:
    """Return a field of an estimate with its bounds. bounds: their keys, by default KEY_low and
    KEY_high. ends: their titles. brief_bounds: whether a terminal shows them. more: of the
    estimate's column."""
    low, high = bounds or (f"{key}_low", f"{key}_high")
    of_bounds = (
        Column(own, end, unit, digits, brief=end * brief_bounds)
        for own, end in zip((low, high), ends, strict=True)
    )
    columns = (Column(key, title, unit, digits, **more), *of_bounds)
    return Field(columns, lambda subject: cells_of(get(subject), key, low, high))


def cells_of(figure: Interval | None, estimate: str, lower: str, upper: str) -> dict[str, Value]:
    """Return a figure's cells under these keys. The bounds are None if they are not finite."""
    if figure is None:
        return {estimate: None, lower: None, upper: None}
    bounded = is_bounded(figure)
    return {
        estimate: figure.estimate,
        lower: figure.lower if bounded else None,
        upper: figure.upper if bounded else None,
    }
