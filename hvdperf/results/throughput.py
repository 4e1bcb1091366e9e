"""The throughput of Horovod as it is: of each workload and world size, a figure a launch.

Only blocks count in which Horovod trained with everything at its default on the session's own
stack and other programs left it the cores, and only of cases whose evidence is sound. A launch that
several cases share counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Any

from hvdperf.machine.disturbance import Usage, is_disturbed
from hvdperf.plan.arms import BlockKind, Strategy, Workload
from hvdperf.results.archive import Case

# Of an arm, as hvdperf.results.documents writes it: what makes it Horovod as it is.
_AS_IT_IS: Mapping[str, object] = {
    "strategy": Strategy.HOROVOD.value,
    "stack": "",
    "planted": "",
    "exchange": "",
    "passes": 1,
    "learning_rate": "constant",
}


def throughputs(cases: Iterable[Case]) -> dict[tuple[Workload, int], tuple[float, ...]]:
    """Samples per second of all replicas together, by workload and world size: the median block of
    each launch, in the order of rounds; where rounds of several kinds have launches of their own,
    kind by kind."""
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
    """World size, round, and samples per second of each launch that counts."""
    for measured in case.document["rounds"]:
        for launch in measured["launches"]:
            if any(launch[name] != value for name, value in _AS_IT_IS.items()):
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
    """Of a block as a document has it; older documents do not."""
    told = block.get("usage")
    return Usage(**told) if told else None
