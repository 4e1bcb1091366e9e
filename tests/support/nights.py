"""Nights that measured something else than they did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hvdperf.records.documents import Summary
from hvdperf.records.outcome import Measure
from hvdperf.timeline.nights.night import Night


def with_part(night: Night, **fields: Any) -> Night:
    """Return the night, of one session, with other fields of that session's summary."""
    (part,) = night.parts
    return replace(night, parts=(replace(part, **fields),))


def slowed(
    night: Night, factor: float, only: Callable[[str, int], bool] = lambda *_: True
) -> Night:
    """Return the night with other throughputs and the same ratios. only: of which network and world
    size."""
    return replace(night, parts=tuple(slowed_part(part, factor, only) for part in night.parts))


def slowed_part(
    part: Summary, factor: float, only: Callable[[str, int], bool] = lambda *_: True
) -> Summary:
    results = tuple(
        replace(each, values=tuple(factor * x for x in each.values))
        if each.measure is Measure.SPEED and only(each.model, each.world_size)
        else each
        for each in part.results
    )
    return replace(part, results=results)
