"""Nights of made-up years, and which of the lasting changes that are planted there are found:
`python -m bench.rates changes`.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import product
from statistics import median_high
from typing import get_type_hints

from bench.pages import heading, row
from hvdperf.plan.comparisons import Question
from hvdperf.records.documents import SUMMARY_FORMAT, Kind, Limit, Result, Row, Summary
from hvdperf.records.fingerprint import Fingerprint
from hvdperf.records.outcome import Measure
from hvdperf.session.proposals import NIGHTS
from hvdperf.timeline.lines import Change
from hvdperf.timeline.nights.changes import findings
from hvdperf.timeline.nights.night import FORMAT, Night
from hvdperf.verdict import Verdict

FIRST = datetime(2025, 11, 24, 1, tzinfo=UTC)
# On the bad ones throughputs are 8 % lower.
GOOD, BAD = ("gpu-01", "gpu-02"), (("gpu-01", "gpu-07"), ("gpu-01", "gpu-09"))
NAMED = ("gpu-07",), ("gpu-09",)


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


def fingerprint(driver: str = "535.129.03") -> Fingerprint:
    """Return the fingerprint of a made-up node of 8 GPUs."""
    # Some value of each kind; any other is a text.
    some: dict[object, object] = {list[str]: [], int: 1, float | None: None}
    values = {name: some.get(kind, "x") for name, kind in get_type_hints(Fingerprint).items()}
    known = {"gpus": 8, "gpu_model": ["NVIDIA A100-SXM4-40GB"], "gpu_driver": [driver]}
    return Fingerprint(**{**values, **known})  # type: ignore[typeddict-item]


def nights(year: Year, seed: int) -> list[Night]:
    """Return the nights of a made-up year, a throughput and a figure for every network and world
    size."""
    noise = random.Random(seed)
    return [_night(year, index, noise) for index in range(NIGHTS) if index not in set(year.missing)]


def _night(year: Year, index: int, noise: random.Random) -> Night:
    began = FIRST + timedelta(days=index)
    bad = next((node for node, at in zip(BAD, year.bad, strict=True) if index in at), None)
    usual = (0.92 if bad else 1.0) * (year.weekend if began.weekday() >= 5 else 1.0)
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
    machine = bad or GOOD, fingerprint("535.129.03" if index < 180 else "550.54.15")
    session = f"{began:%Y%m%dT%H%M%SZ}-1"
    ended = began + timedelta(minutes=50)
    head = SUMMARY_FORMAT, session, ended, Kind.OWN, 0, 50.0
    part = Summary(*head, *machine, {}, tuple(rows), tuple(results))
    command = "pytest perf/ --profile=nightly-gpu"
    return Night(FORMAT, "a100", began.date(), began, command, parts=(part,), ended_at=ended)


def changes(years: int) -> Iterator[str]:
    """Yield the rows of a table: what is found of what is planted in so many years, in how many
    lines; of steps also after how many nights."""
    steps = (f"{percent} %: found; after nights (most) in lines" for percent in (-3, -5, -10))
    planted = ("drift: steps found", "slow nodes found, other nodes named", "false changes")
    yield from heading("noise", *steps, *planted)
    for noise in (0.01, 0.02, 0.03):
        yield row(f"{100 * noise:.0f} %", *_planted(Year(noise), years))


def _planted(year: Year, years: int) -> Iterator[str]:
    found = [findings(nights(year, seed)) for seed in range(years)]
    causes = Counter(_cause(change, year) for each in found for change in each.changes)
    lines = years * len(year.world_sizes)
    for at in year.steps:
        after = [delay for seed in range(years) for delay in _delays(year, seed, at)]
        delays = f"{median_high(after)} ({max(after)}) in {len(after)}" if after else "-"
        yield f"{causes[at]} of {lines}; {delays}"
    yield f"{causes['drift']} in {lines}"
    named = [node.hosts in NAMED for each in found for node in each.nodes]
    yield f"{sum(named)} of {2 * years}, {len(named) - sum(named)}"
    yield f"{causes[None]} in {2 * year.networks * lines}"


def _cause(change: Change, year: Year) -> object:
    """Return the night of the step that a change is, or "drift"; None if it was not planted."""
    index = (date.fromisoformat(change.since) - FIRST.date()).days
    step = next((at for at in year.steps if abs(at - index) <= 7), None)
    planted = {"throughput[network_0": step, "throughput[network_1": "drift"}
    return planted.get(change.line.name.partition("-")[0])


def _delays(year: Year, seed: int, at: int) -> Collection[int]:
    """Return after how many measured nights a step is first seen, looked for night by night, for
    each line that sees it within 60."""
    made = nights(replace(year, networks=1), seed)
    before = sum((night.began_at - FIRST).days < at for night in made)
    found: dict[str, int] = {}
    for seen in range(3, 61):
        if len(found) < len(year.world_sizes):
            told = findings(made[: before + seen]).changes
            names = [change.line.name for change in told if _cause(change, year) == at]
            found = dict.fromkeys(names, seen) | found
    return found.values()
