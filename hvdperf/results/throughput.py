"""The throughput of Horovod with its defaults: one figure a launch, by workload and world size.

A block counts only if Horovod trained in it with everything at its default, on the session's own
stack, while other programs left it the cores, and if the evidence of its case is sound. A launch
that several cases share counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Any

from hvdperf.machine.disturbance import Usage, is_disturbed
from hvdperf.plan.arms import BlockKind, Strategy, Workload
from hvdperf.results.archive import Case

# Fields of an arm of Horovod with its defaults, as hvdperf.results.documents writes them.
_AS_IT_IS: Mapping[str, object] = {
    "strategy": Strategy.HOROVOD.value,
    "stack": "",
    "planted": "",
    "exchange": "",
    "passes": 1,
    "learning_rate": "constant",
}


def throughputs(cases: Iterable[Case]) -> dict[tuple[Workload, int], tuple[float, ...]]:
    """Return the samples per second of all replicas together, by workload and world size.

    There is one value a launch, the median of its blocks, in the order of rounds. If several kinds
    of rounds have launches of their own, the values follow kind by kind."""
    launches: dict[tuple[Workload, int], dict[tuple[str, str, int], float]] = {}
    for case in cases:
        if case.is_sound:
            for world_size, number, speed in _speeds(case):
                of_rounds = launches.setdefault((case.workload, world_size), {})
                of_rounds[*case.round_group, number] = speed
    return {
        key: tuple(speed for _, speed in sorted(of_rounds.items()))
        for key, of_rounds in launches.items()
    }


def _speeds(case: Case) -> Iterator[tuple[int, int, float]]:
    """Yield the world size, the round, and the samples per second of each launch that counts."""
    # A recipe of the case may be another precision.
    as_it_is = {**_AS_IT_IS, "precision": case.workload.precision}
    for measured in case.document["rounds"]:
        for launch in measured["launches"]:
            if any(launch[name] != value for name, value in as_it_is.items()):
                continue
            speeds = [
                float(block["samples_per_second"])
                for block in launch["blocks"]
                if block["kind"] == BlockKind.FULL.value
                and block["samples_per_second"]
                and not is_disturbed([_usage(block)])
            ]
            if speeds:
                yield int(launch["world_size"]), int(measured["number"]), median(speeds)


def _usage(block: Mapping[str, Any]) -> Usage | None:
    """Return the CPU usage from the document of a block; None if an older document has none."""
    told = block.get("usage")
    return Usage(**told) if told else None
