"""The throughput of Horovod with its defaults: one figure a launch, by workload and world size.
This is the only definition of samples/s, for the terminal, the page, nights and the history.

A block counts only if Horovod trained in it with all defaults on the session's own stack, if other
programs did not disturb it, and if its case is sound. A launch that several cases share counts
once.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from hvdperf.plan.arms import Arm, BlockKind, Workload
from hvdperf.records.documents import Case
from hvdperf.records.outcome import Outcome, each_launch
from hvdperf.records.rounds import Turns, is_disturbed
from hvdperf.worker.strategies.table import Strategy


def throughputs(cases: Iterable[Case]) -> dict[tuple[Workload, int], tuple[float, ...]]:
    """Return the throughputs of a session's documents, as `throughputs_of` does."""
    return throughputs_of(case.outcome for case in cases)


def throughputs_of(outcomes: Iterable[Outcome]) -> dict[tuple[Workload, int], tuple[float, ...]]:
    """Return the samples per second of all replicas together, by workload and world size.

    There is one value a launch, the median of its blocks, in the order of rounds. If several kinds
    of rounds have launches of their own, the values follow kind by kind."""
    counted = [outcome for outcome in outcomes if outcome.is_sound]
    found: dict[tuple[Workload, int], list[tuple[str, str, int, float]]] = {}
    for outcome, measured, launch in each_launch(counted):
        workload, work, topic = outcome.comparison.round_group
        speeds = [
            block.samples_per_second
            for block in launch.of_kind(BlockKind.FULL)
            if block.seconds > 0 and not is_disturbed([block])
        ]
        in_turns = isinstance(launch.work, Turns)
        if speeds and in_turns and _is_plain(launch.arm, workload):
            place = work, topic, measured.number
            found.setdefault((workload, launch.arm.world_size), []).append((*place, median(speeds)))
    return {key: tuple(speed for *_, speed in sorted(each)) for key, each in found.items()}


def _is_plain(arm: Arm, workload: Workload) -> bool:
    """Return whether the arm is Horovod with its defaults. A recipe may change the workload."""
    return arm == Arm(workload, Strategy.HOROVOD, arm.world_size) and (
        workload.learning_rate == "constant"
    )
