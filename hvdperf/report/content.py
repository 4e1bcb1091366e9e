"""What a report says, whatever it is written as: sections of figures, each a table and its plot.

Made of results by report/sections/, written by report/formats/. A table is the only copy of its
numbers: a plot names columns of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hvdperf.verdict import Verdict

Value = str | int | float | None
Row = Mapping[str, Value]
# Of Vega-Lite, without data: its fields are the keys of the table's columns.
Plot = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """key: of the rows. title: for people. unit: such as "img/s"; empty for text and ratios.
    digits: how many after the point people are shown; None for text and whole numbers. hidden: for
    plots and programs; people are not shown it."""

    key: str
    title: str
    unit: str = ""
    digits: int | None = None
    hidden: bool = False


@dataclass(frozen=True)
class Table:
    """Each row has all columns' keys; None where there is no figure. Numbers are finite, and not
    rounded. A column "verdict" holds the words of hvdperf.verdict."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Figure:
    """name: unique in a report, of a-z, 0-9, "_" and "-": the id in the page, and the file that it
    is saved as. says: what there is to see, in words with numbers, for who cannot see it. plot:
    None for a table alone. tags: what it is about, for filters: "model", "world_size", "question";
    a figure about several of a kind has no such tag."""

    name: str
    title: str
    says: str
    table: Table
    plot: Plot | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Section:
    """intro: how its figures are meant, a sentence or two. missing: where there is no figure, what
    has not been measured, and the command that would; else empty."""

    name: str
    title: str
    intro: str
    figures: tuple[Figure, ...] = ()
    missing: str = ""


@dataclass(frozen=True)
class CaseNote:
    """What there is to know of a case that its row does not tell: paragraphs, and output as it was
    printed."""

    case: str
    verdict: Verdict
    paragraphs: tuple[str, ...]
    output: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """counts: of the verdicts. verdict: the worst of those that were judged; None where nothing
    was. facts: of the session in a few words each, by name, such as machine and duration. notes:
    of the cases that need one. board: a figure whose table has a row a case, with the columns
    "verdict", "question", "model", "world_size" and "case" among others. left_out: a line a file
    that could not be read."""

    title: str
    verdict: Verdict | None
    counts: Mapping[Verdict, int]
    facts: Mapping[str, str]
    warnings: tuple[str, ...]
    board: Figure
    notes: tuple[CaseNote, ...]
    sections: tuple[Section, ...]
    left_out: tuple[str, ...] = ()

    @property
    def figures(self) -> Sequence[Figure]:
        """The board, and those of all sections."""
        return (self.board, *(each for section in self.sections for each in section.figures))
