"""Made-up years, and nights that measured something else than they did."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from bench.nights import GOOD, night, summary
from hvdperf.plan.comparisons import Question
from hvdperf.records.documents import Limit, Result, Row, Summary
from hvdperf.records.outcome import Measure
from hvdperf.session.proposals import NIGHTS
from hvdperf.timeline.nights.night import Night
from hvdperf.verdict import Verdict

# On these hosts throughputs are 8 % lower.
BAD = ("gpu-01", "gpu-07"), ("gpu-01", "gpu-09")


@dataclass(frozen=True)
class Year:
    """What is planted in a year.

    noise: standard deviation between nights. steps: night -> factor of the lines of the first
    network. drift: factor of the second network's lines at the end of the year. missing: nights
    without a document. bad: nights on each of the two bad nodes. weekend: factor of
    throughputs on Saturdays and Sundays.
    """

    noise: float
    steps: Mapping[int, float] = field(default_factory=lambda: {90: 0.97, 180: 0.95, 270: 0.90})
    drift: float = 0.96
    missing: Sequence[int] = tuple(range(40, 50))
    bad: Sequence[Sequence[int]] = ((60, 121, 122, 200), (30, 150, 251, 310))
    weekend: float = 1.0
    networks: int = 15
    world_sizes: tuple[int, ...] = (1, 2, 4, 8)


def nights(year: Year, seed: int) -> list[Night]:
    """Return the nights of a made-up year, a throughput and a figure for every network and world
    size."""
    noise = random.Random(seed)
    return [_night(year, index, noise) for index in range(NIGHTS) if index not in set(year.missing)]


def _night(year: Year, index: int, noise: random.Random) -> Night:
    bad = next((node for node, at in zip(BAD, year.bad, strict=True) if index in at), None)
    usual = (0.92 if bad else 1.0) * (year.weekend if index % 7 >= 5 else 1.0)
    stepped = math.prod(size for at, size in year.steps.items() if index >= at)
    planted = {0: stepped, 1: year.drift ** (index / NIGHTS)}
    rows, results = [], []
    for network, size in product(range(year.networks), year.world_sizes):
        model, factor = f"network_{network}", usual * planted.get(network, 1.0)
        speed = 400.0 * size * factor * math.exp(noise.gauss(0, year.noise))
        launches = tuple(speed * math.exp(noise.gauss(0, 0.002)) for _ in range(3))
        results.append(Result(Measure.SPEED, model, size, launches))
        figure = 0.9 * math.exp(noise.gauss(0, year.noise))
        place = f"weak_scaling[{model}-np{size}]", Question.WEAK_SCALING, model, size
        bounds = figure, figure * 0.98, figure * 1.02
        rows.append(Row(*place, Verdict.PASS, *bounds, Limit(0.8, None), 3, ""))
    return night(index, summary(index, rows, results, hosts=bad or GOOD))


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
