"""Tables from their subjects, such as cases: a field is a column, or the three of an interval, with
the function that fills it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hvdperf.report.cases import cells_of
from hvdperf.report.content import Column, Row, Table, Value
from hvdperf.stats import Interval

Subject = TypeVar("Subject")


@dataclass(frozen=True)
class Field(Generic[Subject]):
    """Columns, and the function that returns their cells for the subject of a row, by key."""

    columns: tuple[Column, ...]
    cells: Callable[[Subject], Row]


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


def table(subjects: Iterable[Subject], fields: Sequence[Field[Subject]]) -> Table:
    """Return a table with a row for each subject."""
    return Table(
        tuple(column for field in fields for column in field.columns),
        tuple(
            {key: cell for field in fields for key, cell in field.cells(subject).items()}
            for subject in subjects
        ),
    )
