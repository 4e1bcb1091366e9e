"""Made-up years of nights with planted changes: which are found, after how many nights, and how
often something is found that is not there.

    python -m bench.nights --years 10
    python -m bench.nights --years 10 --quiet    # years without any change: does one FAIL?
"""

from __future__ import annotations

import argparse
import math
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import get_args, get_origin, get_type_hints

from hvdperf.plan.comparisons import Question
from hvdperf.records.documents import Limit, Row
from hvdperf.records.fingerprint import Fingerprint
from hvdperf.timeline.nights.changes import BadNode, findings, standings
from hvdperf.timeline.nights.falls import judge_speeds
from hvdperf.timeline.nights.night import FORMAT, Night, Part, Speeds
from hvdperf.timeline.nights.series import Series
from hvdperf.verdict import Verdict

NIGHTS = 365
FIRST = datetime(2025, 11, 24, 1, tzinfo=UTC)
GOOD, BAD = ("gpu-01", "gpu-02"), (("gpu-01", "gpu-07"), ("gpu-01", "gpu-09"))
NAMED = ("gpu-07",), ("gpu-09",)


@dataclass(frozen=True)
class Year:
    """What is planted in a year.

    noise: standard deviation between nights. steps: night -> factor of the lines of the first
    network. drift: factor of the second network's lines at the end of the year. missing: nights
    without a document. bad: nights on each of the two bad nodes. bad_factor: on them. weekend:
    factor of throughputs on Saturdays and Sundays.
    """

    noise: float
    steps: Mapping[int, float] = field(default_factory=lambda: {90: 0.97, 180: 0.95, 270: 0.90})
    drift: float = 0.96
    missing: Sequence[int] = tuple(range(40, 50))
    bad: Sequence[Sequence[int]] = ((60, 121, 122, 200), (30, 150, 251, 310))
    bad_factor: float = 0.92
    weekend: float = 1.0
    networks: int = 15
    world_sizes: tuple[int, ...] = (1, 2, 4, 8)


def fingerprint(driver: str = "535.129.03") -> Fingerprint:
    """Return the fingerprint of a made-up node of 8 GPUs."""
    values = {name: _value(kind) for name, kind in get_type_hints(Fingerprint).items()}
    known = {"gpus": 8, "gpu_model": ["NVIDIA A100-SXM4-40GB"], "gpu_driver": [driver]}
    return Fingerprint(**{**values, **known})  # type: ignore[typeddict-item]


def _value(kind: object) -> object:
    """Return some value of a field of the fingerprint."""
    if get_origin(kind) is list:
        return []
    kinds = get_args(kind) or (kind,)
    return next((value for of, value in ((str, "x"), (int, 1)) if of in kinds), None)


def nights(year: Year, seed: int) -> list[Night]:
    """Return the nights of a made-up year, a throughput and a figure for every network and world
    size."""
    noise = random.Random(seed)
    return [_night(year, index, noise) for index in range(NIGHTS) if index not in set(year.missing)]


def _night(year: Year, index: int, noise: random.Random) -> Night:
    began = FIRST + timedelta(days=index)
    bad = next((node for node, at in zip(BAD, year.bad, strict=True) if index in at), None)
    rows, speeds = [], []
    for network in range(year.networks):
        factor = year.bad_factor if bad else 1.0
        if began.weekday() >= 5:
            factor *= year.weekend
        if network == 0:
            factor *= math.prod(size for at, size in year.steps.items() if index >= at)
        if network == 1:
            factor *= year.drift ** (index / NIGHTS)
        for size in year.world_sizes:
            speed = 400.0 * size * factor * math.exp(noise.gauss(0, year.noise))
            launches = tuple(speed * math.exp(noise.gauss(0, 0.002)) for _ in range(3))
            speeds.append(Speeds(f"network_{network}", size, launches))
            efficiency = 0.9 * math.exp(noise.gauss(0, year.noise))
            rows.append(
                Row(
                    f"weak_scaling[network_{network}-np{size}]",
                    Question.WEAK_SCALING,
                    f"network_{network}",
                    size,
                    Verdict.PASS,
                    efficiency,
                    efficiency * 0.98,
                    efficiency * 1.02,
                    Limit(0.8, None),
                    3,
                    "",
                )
            )
    part = Part(
        False,
        f"{began:%Y%m%dT%H%M%SZ}-1",
        0,
        50.0,
        bad or GOOD,
        fingerprint("535.129.03" if index < 180 else "550.54.15"),
        {},
        tuple(rows),
        tuple(speeds),
    )
    ended = began + timedelta(minutes=50)
    return Night(
        FORMAT,
        "a100",
        began.date(),
        began,
        "pytest perf/ --profile=nightly-gpu",
        parts=(part,),
        ended_at=ended,
    )


@dataclass
class Found:
    """What was found of one planted step, over years: the sizes, and after how many nights."""

    sizes: list[float] = field(default_factory=list)
    delays: list[int] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.nights",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--years", type=int, default=5)
    parser.add_argument("--noises", type=numbers, default=(0.01, 0.02, 0.03), metavar="A,B")
    parser.add_argument("--quiet", action="store_true")
    given = parser.parse_args()
    if given.years < 1:
        parser.error(f"{given.years} years: must be above zero")
    if given.quiet:
        for text in quiet(given.noises, given.years):
            print(text, flush=True)
        return
    for noise in given.noises:
        print("\n".join(table(Year(noise), given.years)), flush=True)


def numbers(text: str) -> tuple[float, ...]:
    """Return the numbers of a list. Raises ValueError."""
    return tuple(map(float, text.split(",")))


def table(year: Year, years: int) -> list[str]:
    """Return lines on what was found in these years, looked at once at their end and, for the
    delays, night by night."""
    planted = {at: Found() for at in year.steps}
    others, drift = 0, 0
    nodes: list[BadNode] = []
    for seed in range(years):
        made = nights(year, seed)
        found = findings(made)
        nodes += found.nodes
        for change in found.changes:
            index = _index(made[change.at])
            near = next((at for at in planted if abs(at - index) <= 7), None)
            if change.line.model == "network_0" and change.line.name.startswith("t") and near:
                planted[near].sizes.append(change.step.change)
            elif change.line.model == "network_1" and change.line.name.startswith("t"):
                drift += 1
            else:
                others += 1
        for at, delays in _delays(made, year).items():
            planted[at].delays += delays
    of = years * len(year.world_sizes)
    lines = years * year.networks * len(year.world_sizes) * 2
    told = [f"noise {100 * year.noise:.0f} %, {years} years, {lines} lines of a year"]
    for at, each in planted.items():
        size = f"{100 * (median(each.sizes) - 1):+.1f} %" if each.sizes else "-"
        nights_ = sorted(each.delays)
        after = f"{nights_[len(nights_) // 2]} ({nights_[-1]} at most)" if nights_ else "-"
        told.append(
            f"  {100 * (year.steps[at] - 1):+.0f} %: found in {len(each.sizes)} of {of} lines, "
            f"as {size}; seen by then within {after} nights, in {len(nights_)} of {of} lines"
        )
    told.append(f"  drift of {100 * (year.drift - 1):+.0f} %: {drift} steps in {of} lines")
    seen = sum(node.hosts in NAMED for node in nodes)
    told.append(f"  bad nodes: {seen} of {2 * years} found, {len(nodes) - seen} others blamed")
    told.append(f"  changes that were not planted: {others}")
    return told


def quiet(noises: Sequence[float], years: int) -> Iterator[str]:
    """Yield a line on each of these quiet years, of which weekends are 2 % faster and 15 nights are
    missing. A year is looked at three times."""
    calm = Year(0.0, steps={}, drift=1.0, bad=((), ()), weekend=1.02)
    for seed in range(100, 100 + years):
        noise = noises[seed % len(noises)]
        missing = (*calm.missing, 77, 101, 205, 206, 300)
        made = nights(replace(calm, noise=noise, missing=missing), seed)
        fell = judge_speeds(made).falls
        red = sum(Series("a100", made[:seen]).is_red for seen in (120, 240, len(made)))
        changes = Counter(word.value for word in standings(findings(made).changes))
        yield f"noise {100 * noise:.0f} %: {len(fell)} nights fell, red {red} of 3, {dict(changes)}"


def _delays(made: Sequence[Night], year: Year) -> dict[int, list[int]]:
    """Return after how many measured nights each step is first seen, for each line that sees it
    within 60."""
    first_network = [_only_first(night) for night in made]
    found: dict[int, list[int]] = {}
    for at in year.steps:
        found[at] = []
        began = next(i for i, night in enumerate(made) if _index(night) >= at)
        waiting = set(year.world_sizes)
        for seen in range(3, 61):
            told = findings(first_network[: began + seen]).changes
            for change in told:
                size = change.line.world_size
                is_it = (
                    change.line.name.startswith("t")
                    and abs(_index(first_network[change.at]) - at) <= 7
                )
                if is_it and size in waiting:
                    waiting.remove(size)
                    found[at].append(seen)
            if not waiting:
                break
    return found


def _only_first(night: Night) -> Night:
    (part,) = night.parts
    speeds = tuple(each for each in part.speeds if each.model == "network_0")
    return Night(
        **{**vars(night), "parts": (Part(**{**vars(part), "speeds": speeds, "cases": ()}),)}
    )


def _index(night: Night) -> int:
    return (night.began_at - FIRST).days


if __name__ == "__main__":
    main()
