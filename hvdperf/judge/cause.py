"""The cause of a growth: a term, the ranks at fault, and how much it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hvdperf.json_records import Figures, Number
from hvdperf.plan.terms import Term

# A term that takes some ranks this many times as long as the others is told as a multiple, from
# A_MULTIPLE to MULTIPLES: beyond that the others take next to nothing.
A_MULTIPLE = 1.5
MULTIPLES = 50


@dataclass(frozen=True)
class Cause(Figures):
    """A term that takes longer, and whose it is.

    term: "" if it is not known. rank: the only rank at fault. ranks: several ranks at fault, but
    not all. Without either, all ranks take longer alike. host: the host whose ranks they all are;
    "" if they are not. share: the extra time / the time of the step, or of that phase of the start;
    for memory, the growth of ln(resident set). seconds: of the term, on these ranks; usual_seconds:
    on the reference; others_seconds: on the other ranks. step_seconds, usual_step_seconds: of the
    whole step (of wall time: of the whole training) on both sides. None where they are not known.
    """

    term: str = ""
    rank: int | None = None
    share: Number = 0.0
    ranks: tuple[int, ...] = ()
    host: str = ""
    seconds: float | None = None
    usual_seconds: float | None = None
    others_seconds: float | None = None
    step_seconds: float | None = None
    usual_step_seconds: float | None = None

    @property
    def at_fault(self) -> tuple[int, ...]:
        """The ranks at fault; () if all ranks take longer alike."""
        return self.ranks if self.rank is None else (self.rank,)

    @property
    def whose(self) -> str:
        """The ranks at fault, in words."""
        if not self.at_fault:
            return "all ranks"
        if self.host:
            return f"host {self.host} ({_listed(self.at_fault)})"
        return _listed(self.at_fault)

    def __str__(self) -> str:
        return f"{self.term} of {self.whose} (+{100 * self.share:.0f} %)"


@dataclass(frozen=True)
class Attribution(Cause):
    """The cause of a growth, the largest one if there are several. also: the other causes, the
    larger ones first. of_reference: whether the reference is the slower side."""

    also: tuple[Cause, ...] = ()
    of_reference: bool = False

    def __str__(self) -> str:
        if not self.term:
            return "not attributed"
        return f"attributed to {'; also to '.join(map(str, self.causes))}"

    @property
    def causes(self) -> tuple[Cause, ...]:
        """All causes, the first of which is this one; () if none is known."""
        return (Cause(**_fields(self)), *self.also) if self.term else ()


def _fields(cause: Cause) -> dict[str, Any]:
    return {name: getattr(cause, name) for name in Cause.__dataclass_fields__}


def _listed(ranks: Sequence[int]) -> str:
    """Return ranks in words, such as `ranks 0, 2-3`."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    words = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"rank{'s' * (len(ranks) > 1)} {words}"


def attribution_of(causes: Sequence[Cause]) -> Attribution:
    """Return causes as an attribution to the first of them, and then to the others."""
    if not causes:
        return Attribution()
    first, *others = causes
    return Attribution(**_fields(first), also=tuple(others))


def told(found: Attribution, reference: str) -> str:
    """Return the causes with their seconds, such as `input wait of all ranks: 344 of 369 ms a step
    (np 1: 12.0 of 40.0)`. reference: what the figure compares with."""
    return "; ".join(_told(cause, reference) for cause in found.causes) or "not attributed"


def _told(cause: Cause, reference: str) -> str:
    if cause.seconds is None:
        return str(cause)
    of_step = cause.step_seconds is not None
    unit = 1000 if of_step else 1
    beside = []
    text = f"{cause.term} of {cause.whose}: {_number(unit * cause.seconds)}"
    if cause.step_seconds is not None:
        text += f" of {_number(unit * cause.step_seconds)} ms a step"
    else:
        text += " s"
    if cause.others_seconds is not None:
        others = f"the others {_number(unit * cause.others_seconds)}"
        if A_MULTIPLE * cause.others_seconds <= cause.seconds <= MULTIPLES * cause.others_seconds:
            others = f"{cause.seconds / cause.others_seconds:.1f} times as long as {others}"
        beside.append(others)
    if cause.usual_seconds is not None:
        usual = f"{reference} {_number(unit * cause.usual_seconds)}"
        if cause.usual_step_seconds is not None:
            usual += f" of {_number(unit * cause.usual_step_seconds)}"
        beside.append(usual)
    text += f" ({', '.join(beside)})" if beside else ""
    waited = cause.at_fault and of_step and cause.term != Term.EXCHANGE
    return f"{text}, for which the other ranks wait" if waited else text


def _number(figure: float) -> str:
    """Return a figure with one digit after the point below 100, and none above."""
    return f"{figure:.0f}" if figure >= 99.95 else f"{max(0.0, figure):.1f}"
