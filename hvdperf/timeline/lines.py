"""Lines and their lasting changes, along either axis. A line is a figure over the documents of a
series: nights in the order of dates, or sessions in the order of releases."""

from __future__ import annotations

from dataclasses import dataclass

from hvdperf.timeline.steps import Step
from hvdperf.verdict import Verdict


@dataclass(frozen=True)
class Line:
    """A figure along an axis.

    name: of the case, or of a throughput. model, world_size: of the case. at: index of the document
    of each figure, ascending; by release, one document has a figure for each launch. figures:
    positive. lower_is_better: whether the figure is a duration or a growth. verdicts: of the case;
    () for a throughput. is_gate: whether the figure compares the stack with the reference. replica:
    what each replica trains on; "" by date, where it is the same on all nights, or a mark.
    """

    name: str
    model: str
    world_size: int
    at: tuple[int, ...]
    figures: tuple[float, ...]
    lower_is_better: bool = False
    verdicts: tuple[Verdict, ...] = ()
    is_gate: bool = False
    replica: str = ""


@dataclass(frozen=True)
class Change:
    """A lasting change of a line. step: in the line's own points. before, since: the date or the
    release of the last document before it, and of the first one that has it; the same if the change
    lies within a release. marks: what else changed at about that place, in words."""

    line: Line
    step: Step
    before: str
    since: str
    marks: tuple[str, ...] = ()

    @property
    def at(self) -> int:
        """Return the index of the first document that has it."""
        return self.line.at[self.step.at]

    @property
    def count(self) -> int:
        """Return how many figures have it, up to the next change."""
        return self.step.until - self.step.at

    @property
    def is_worse(self) -> bool:
        return (self.step.change > 1) == self.line.lower_is_better

    @property
    def size(self) -> str:
        """Return the size with its interval, such as `-4.9 % (-5.6 to -4.1)`."""
        sizes = (self.step.change, self.step.lower, self.step.upper)
        size, lower, upper = (100 * (each - 1) for each in sizes)
        return f"{size:+.1f} % ({lower:+.1f} to {upper:+.1f})"


def throughput(model: str, world_size: int) -> str:
    """Return the name of the line of a throughput."""
    return f"throughput[{model}-np{world_size}]"
