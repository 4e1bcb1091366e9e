"""The cause of a growth in words, and an attribution of several causes."""

from __future__ import annotations

from collections.abc import Sequence

from hvdperf.plan.terms import Term
from hvdperf.records.outcome import Attribution, Cause, fields_of

# A term that takes some ranks this many times as long as the others is told as a multiple, from
# A_MULTIPLE to MULTIPLES: beyond that the others take next to nothing.
A_MULTIPLE = 1.5
MULTIPLES = 50


def attribution_of(causes: Sequence[Cause]) -> Attribution:
    """Return causes as an attribution to the first of them, and then to the others."""
    if not causes:
        return Attribution()
    first, *others = causes
    return Attribution(**fields_of(first), also=tuple(others))


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
