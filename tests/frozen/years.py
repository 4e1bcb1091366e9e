"""Three years of nights, simulated from one that was measured: what happened in them is known."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

TEMPLATE = Path(__file__).parent / "night.json"
FIRST = date(2025, 1, 6)
NIGHTS = 364
# The nights after which a year is looked at.
LOOKS = (20, 45, 60, 75, 105, 135, 165, 195, 225, 270, 310, 364)
SPEEDS = {
    "vgg_16_s": (1386.0, 2373.0),
    "alexnet_s": (2000.0, 3500.0),
    "resnet_50_s": (2400.0, 4200.0),
}


class Year:
    """A machine that does not change, with independent nights 0.7 % apart. A fault is planted by
    a subclass."""

    nodes: tuple[str, ...] = ("",)
    sd = 0.007

    def __init__(self) -> None:
        self.random = random.Random(type(self).__name__)

    def shared(self, night: int) -> float:
        """Return ln of what all throughputs of a night have in common."""
        return 0.0

    def change(self, night: int, node: str, model: str, world_size: int) -> float:
        """Return ln of a throughput / the usual one; -inf if it is not measured."""
        return 0.0

    def gate(self, night: int) -> float:
        """Return ln of the figure of the gate."""
        return 0.0


class Steps(Year):
    """Two-rank throughput of one network -6 % from night 50 to 100; all -0.2 % a night from night
    140 to 170; a gate that falls by 9 % on nights 220 to 240."""

    def change(self, night: int, node: str, model: str, world_size: int) -> float:
        drift = -0.002 * min(max(night - 140, 0), 30)
        return drift - 0.06 * (50 <= night < 100 and (model, world_size) == ("vgg_16_s", 2))

    def gate(self, night: int) -> float:
        return -0.09 * (220 <= night < 240)


class Nodes(Year):
    """Three nodes; gpu3 is 20 % slow from night 40 on and gone from night 70 on. All have common
    noise; one night in 50 is 25 % slow on one node."""

    nodes = ("gpu1", "gpu2", "gpu3")

    def shared(self, night: int) -> float:
        return self.random.gauss(0.0, 0.01)

    def change(self, night: int, node: str, model: str, world_size: int) -> float:
        if node == "gpu3" and night >= 70:
            return -math.inf
        slow = -0.22 * (node == "gpu3" and night >= 40)
        return slow - 0.3 * (night % 50 == 49 and node == "gpu1")


class Correlated(Year):
    """AR(1) noise with 0.5 that all have in common; a wildly fast night 30; two fast nights 130
    and 131; alexnet_s is no longer measured from night 180 on; all -15 % from night 250 on."""

    def __init__(self) -> None:
        super().__init__()
        self.last = 0.0

    def shared(self, night: int) -> float:
        self.last = 0.5 * self.last + self.random.gauss(0.0, 0.008)
        return self.last + 0.7 * (night == 30) + 0.06 * (night in (130, 131))

    def change(self, night: int, node: str, model: str, world_size: int) -> float:
        if model == "alexnet_s" and night >= 180:
            return -math.inf
        return -0.16 * (night >= 250)


YEARS: tuple[type[Year], ...] = (Steps, Nodes, Correlated)


def nights(year: Year) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each night's file name and document, in the form of November 2026."""
    source = json.loads(TEMPLATE.read_text())
    for number in range(NIGHTS):
        day = FIRST + timedelta(days=number)
        shared = year.shared(number)
        for place, node in enumerate(year.nodes):
            night = copy.deepcopy(source)
            began = datetime(day.year, day.month, day.day, 1, 17, tzinfo=UTC)
            night |= {
                "night": day.isoformat(),
                "began_at": began.isoformat(),
                "ended_at": (began + timedelta(hours=1)).isoformat(),
                "node": node,
            }
            parts = night["parts"]
            if isinstance(year, Steps):
                parts.append(_gate(year, copy.deepcopy(parts[0]), number))
            for index, part in enumerate(parts):
                session = f"{began:%Y%m%dT%H%M%SZ}-{1000 + 10 * place + index}"
                part |= {"session": session, "hosts": [node or "gpu0"], "node": node}
            parts[0]["speeds"] = list(_speeds(year, number, node, shared))
            measured = {speed["model"] for speed in parts[0]["speeds"]}
            parts[0]["cases"] = [case for case in parts[0]["cases"] if case["model"] in measured]
            if measured:
                yield f"{day}.{node}.json" if node else f"{day}.json", night


def _speeds(year: Year, night: int, node: str, shared: float) -> Iterator[dict[str, Any]]:
    for model, usual in SPEEDS.items():
        for world_size, speed in enumerate(usual, start=1):
            change = year.change(night, node, model, world_size)
            own = shared + change + year.random.gauss(0.0, year.sd)
            rounds = [speed * math.exp(own + year.random.gauss(0.0, 0.007)) for _ in range(8)]
            if change > -math.inf:
                row = {"model": model, "world_size": world_size}
                yield row | {"samples_per_second": rounds}


def _gate(year: Year, part: dict[str, Any], night: int) -> dict[str, Any]:
    """Return a part of a night that compares with a reference stack."""
    own = year.gate(night) + year.random.gauss(0.0, 0.004)
    rounds = [own + year.random.gauss(0.0, 0.01) for _ in range(8)]
    mean = sum(rounds) / len(rounds)
    figure, lower, upper = (math.exp(mean + each) for each in (0.0, -0.012, 0.012))
    verdict = "PASS" if lower > 0.95 else "FAIL" if upper < 0.95 else "INCONCLUSIVE"
    (case,) = (each for each in part["cases"] if each["question"] == "weak_scaling")
    limit = {"at_least": 0.95, "at_most": None}
    case |= {"verdict": verdict, "figure": figure, "lower": lower, "upper": upper}
    case |= {"limit": limit, "rounds": 8, "observations": rounds}
    return part | {"is_gate": True, "cases": [case], "speeds": []}


def write(results: Path) -> None:
    """Write a series for each year and look, such as steps-045, with the nights until then."""
    for kind in YEARS:
        year = kind()
        named = list(nights(year))
        for look in LOOKS:
            until = f"{FIRST + timedelta(days=look)}"
            series = f"{kind.__name__.lower()}-{look:03}"
            directory = results / "nights" / series
            directory.mkdir(parents=True)
            for name, night in named:
                if name < until:
                    (directory / name).write_text(json.dumps(night | {"series": series}))
