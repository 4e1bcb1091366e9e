"""Text in the columns of a terminal: rows of a table, numbers that fit, and paragraphs."""

from __future__ import annotations

import math
import textwrap

from hvdperf.stats import Interval

# Columns of a terminal, for text that is written to it.
WIDTH = 80


class Columns:
    """The columns of a table, each a heading and a width in characters. Cells are flush right; a
    negative width makes a column flush left, and 0 is for a last column of any width."""

    def __init__(self, *columns: tuple[str, int]) -> None:
        self._columns = columns

    @property
    def header(self) -> str:
        return self.row(*(heading for heading, _ in self._columns))

    def row(self, *cells: object) -> str:
        """Return the cells in one line. A cell that is too long moves those to its right."""
        widths = (width for _, width in self._columns)
        padded = (
            f"{cell!s:<{-width}}" if width < 0 else f"{cell!s:>{width}}"
            for width, cell in zip(widths, cells, strict=True)
        )
        return " ".join(padded).rstrip()


def number(value: float, width: int, digits: int) -> str:
    """Return the value with as many decimals, up to `digits`, as fit in the width. A value whose
    whole part does not fit is written with an exponent."""
    for places in range(digits, -1, -1):
        text = f"{value:.{places}f}"
        if len(text) <= width:
            return text
    return f"{value:.0e}".replace("e+0", "e")


def interval(lower: float, upper: float, width: int = 5, digits: int = 3) -> str:
    """Return bounds such as `[0.861, 0.884]`. A bound that is 0 or infinite, because there were too
    few rounds, is "-". width: of each bound."""
    bounds = (
        "-" if bound == 0 or math.isinf(bound) else number(bound, width, digits)
        for bound in (lower, upper)
    )
    return f"[{', '.join(bounds)}]"


def figure_text(figure: Interval | None) -> str:
    """Return estimate and interval, such as `0.873 [0.861, 0.884]`."""
    if figure is None:
        return "-"
    return f"{number(figure.estimate, 6, 3)} {interval(figure.lower, figure.upper)}"


def wrapped(text: str, first: str = "", others: str = "    ") -> list[str]:
    """Return the text in lines of WIDTH columns; a longer word has a line of its own. first,
    others: the indent of the first line and of the others."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,  # a case's name has hyphens, and is copied
    )
