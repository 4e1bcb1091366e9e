"""The throughput of Horovod with its defaults: one figure a launch, by workload and world size.
This is the only definition of samples/s, for the terminal, the page, nights and the history.

A block counts only if Horovod trained in it with all defaults on the session's own stack, if other
programs did not disturb it, and if its case is sound. A launch that several cases share counts
once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median

from hvdperf.plan.arms import Arm, BlockKind, Workload
from hvdperf.records.documents import Case
from hvdperf.records.outcome import Outcome
from hvdperf.records.rounds import Turns, is_disturbed
from hvdperf.worker.strategies.table import Strategy


def throughputs(cases: Iterable[Case]) -> dict[tuple[Workload, int], tuple[float, ...]]:
    """Return the throughputs of a session's documents, as `throughputs_of` does."""
    return throughputs_of(case.outcome for case in cases)


def throughputs_of(outcomes: Iterable[Outcome]) -> dict[tuple[Workload, int], tuple[float, ...]]:
    """Return the samples per second of all replicas together, by workload and world size.

    There is one value a launch, the median of its blocks, in the order of rounds. If several kinds
    of rounds have launches of their own, the values follow kind by kind."""
    launches: dict[tuple[Workload, int], dict[tuple[str, str, int], float]] = {}
    for outcome in outcomes:
        if outcome.is_sound and _has_turns(outcome):
            workload, (_, work, topic) = outcome.comparison.workload, outcome.comparison.round_group
            for world_size, number, speed in _speeds(outcome):
                of_rounds = launches.setdefault((workload, world_size), {})
                of_rounds[work, topic, number] = speed
    return {
        key: tuple(speed for _, speed in sorted(of_rounds.items()))
        for key, of_rounds in launches.items()
    }


def _has_turns(outcome: Outcome) -> bool:
    """Return whether its launches timed blocks in turns with other launches."""
    launches = (launch for measured in outcome.rounds for launch in measured.launches)
    return any(isinstance(launch.work, Turns) for launch in launches)


def _speeds(outcome: Outcome) -> Iterator[tuple[int, int, float]]:
    """Yield the world size, the round, and the samples per second of each launch that counts. While
    a session runs, the rounds of an outcome also have the launches of other cases, which do not."""
    comparison = outcome.comparison
    plain = [arm for arm in comparison.arms if _is_plain(arm, comparison.workload)]
    for measured in outcome.rounds:
        for launch in measured.launches:
            if launch.arm not in plain:
                continue
            speeds = [
                block.samples_per_second
                for block in launch.of_kind(BlockKind.FULL)
                if block.seconds > 0 and not is_disturbed([block])
            ]
            if speeds:
                yield launch.arm.world_size, measured.number, median(speeds)


def _is_plain(arm: Arm, workload: Workload) -> bool:
    """Return whether the arm is Horovod with its defaults. A recipe may change the workload."""
    return arm == Arm(workload, Strategy.HOROVOD, arm.world_size) and (
        workload.learning_rate == "constant"
    )
