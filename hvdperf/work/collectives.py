"""Launches that exchange tensors through Horovod and without it, between timed blocks if a question
needs blocks, too."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any

from hvdperf.explain import collectives
from hvdperf.explain.attribution import attribute_sides
from hvdperf.explain.collectives import step_times, too_fast
from hvdperf.launch.live_launch import LiveLaunch
from hvdperf.plan.arms import SWEEP, SWEEP_BYTES, Arm, BlockKind, Collective, Schedule, Transfer
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.profile import Profile, Sampling
from hvdperf.records.outcome import Attribution
from hvdperf.records.rounds import CollectiveReport, Launch, Round, Series
from hvdperf.work.base import Hosts, LiveLaunches, Pairs, RoundRequest
from hvdperf.work.blocks import LENGTH_OF_BLOCKS, Blocks, Visit, turns_of
from hvdperf.worker.protocol import Phase

# A turn of a sweep takes seconds and has several repeats, so it has this many turns at most.
SWEEP_TURNS = 3
WARM_UP_REPEATS = 2
# Limits of the repeats of a transfer in one turn: their time together, and their number.
SERIES_SECONDS = 0.05
REPEATS_MAX = 10


@dataclass
class Collectives(Blocks):
    """Turns of blocks, if any, followed by collective operations.

    repeats: of each transfer in a turn, by arm.
    """

    name = "collectives"
    depends_on = LENGTH_OF_BLOCKS

    repeats: dict[tuple[Arm, Transfer], int] = field(default_factory=dict)

    @classmethod
    def schedule(cls, profile: Profile) -> Schedule:
        # Transfers are compared back to back.
        return Schedule.ALTERNATE

    @classmethod
    def sampling(cls, comparisons: Sequence[Comparison], sampling: Sampling) -> Sampling:
        if comparisons[0].workload != SWEEP:
            return sampling
        fewest, most = (min(n, SWEEP_TURNS) for n in (sampling.turns_min, sampling.turns_max))
        return replace(sampling, turns_min=fewest, turns_max=most)

    @classmethod
    def last_phase(cls, comparisons: Sequence[Comparison]) -> Phase:
        """Return the init for a sweep, and the build for a model's gradients, unless steps are
        timed, too."""
        if any(map(_times_steps, comparisons)):
            return Phase.BROADCAST
        return Phase.INIT if comparisons[0].workload == SWEEP else Phase.BUILD

    @classmethod
    def kinds(cls, comparison: Comparison, judged: bool) -> dict[Arm, set[BlockKind]]:
        kinds: dict[Arm, set[BlockKind]] = {arm: set() for arm in comparison.arms}
        if _times_steps(comparison):
            kinds[comparison.candidate.arm] = {BlockKind.FULL, BlockKind.LOCAL}
        return kinds

    @classmethod
    def transfers(cls, comparison: Comparison) -> list[Transfer]:
        """Return every size of the compared collective in a sweep; for a network, its gradients."""
        collective = comparison.collective or Collective.ALLREDUCE
        sizes = [(size,) for size in SWEEP_BYTES] if comparison.workload == SWEEP else [()]
        return [Transfer(collective, size) for size in sizes]

    # Running -----------------------------------------------------------------------------------

    def warm_up(
        self, live: LiveLaunches, request: RoundRequest, group: LiveLaunch, launch: Launch
    ) -> None:
        for transfer in self.settings.transfers.get(launch.arm, ()):
            order = _order(live.result, launch.arm, transfer, repeats=WARM_UP_REPEATS)
            first = self._series(group, transfer, 0, order)
            self.repeats.setdefault((launch.arm, transfer), affordable_repeats(first))
        super().warm_up(live, request, group, launch)

    def take_turn(self, live: LiveLaunches, visits: Sequence[Visit], turn: int) -> None:
        """Have every arm take its blocks of a turn, and then all arms exchange the same transfer
        back to back."""
        super().take_turn(live, visits, turn)
        arms = list(dict.fromkeys(visit.arm for visit in visits))
        transfers = self.settings.transfers
        every = list(dict.fromkeys(each for of_arm in transfers.values() for each in of_arm))
        self.settings.order.shuffle(every)
        for transfer in every:
            for arm in arms:
                if transfer in transfers.get(arm, ()):
                    live.run(arm, partial(self._exchange, live.result, transfer, turn))

    def _exchange(
        self, result: Round, transfer: Transfer, turn: int, group: LiveLaunch, launch: Launch
    ) -> None:
        repeats = self.repeats[launch.arm, transfer]
        # The result is checked once per launch, because that takes longer than the exchange.
        order = _order(result, launch.arm, transfer, repeats=repeats, check=turn == 0)
        turns_of(launch).series.append(self._series(group, transfer, turn, order))

    def _series(
        self, group: LiveLaunch, transfer: Transfer, turn: int, order: Mapping[str, Any]
    ) -> Series:
        deadline_s = self.settings.sampling.block_deadline_s
        ranks = group.reports(
            CollectiveReport, "collective", deadline_s, limit="block_deadline_s", **order
        )
        return Series(transfer, turn, ranks)

    # Figures -----------------------------------------------------------------------------------

    @classmethod
    def measures(cls, comparison: Comparison, measured: Round) -> bool:
        return all(map(measured.has, comparison.arms))

    @classmethod
    def takes_turns(cls, comparison: Comparison, schedule: Schedule) -> bool:
        return False

    @classmethod
    def observe(cls, comparison: Comparison, measured: Round) -> list[float]:
        """Return ln of the time of the operation through Horovod over that through bare MPI; of a
        step, ln of its time over that of a step that hides nothing of its exchange."""
        horovod, bare = (measured.of(side.arm) for side in comparison.sides)
        if _times_steps(comparison):
            times = step_times(horovod, bare)
            return [median(math.log(turn.of_nothing_hidden) for turn in times)]
        overhead = collectives.collective_overhead(
            horovod.series, bare.series, comparison.collective
        )
        return [math.log(overhead)]

    @classmethod
    def problems(cls, launch: Launch) -> list[str]:
        # The transport comes first, because a missing transport also makes the world size wrong.
        arm = launch.arm
        transport = collectives.invalid_reasons(arm.name, arm.processes, launch.series)
        return transport + super().problems(launch)

    @classmethod
    def problems_of_rounds(
        cls, comparison: Comparison, rounds: Sequence[Round], judged: bool, at_look: bool
    ) -> list[str]:
        """Return that Horovod and bare MPI use different libraries, or that a step is faster than
        the transport allows. Speeds are not checked if replicas share cores."""
        pairs = [[measured.of(arm) for arm in comparison.arms] for measured in rounds]
        found = [collectives.library_mismatch(own.series, bare.series) for own, bare in pairs]
        if judged and at_look and _times_steps(comparison):
            times = [step_times(*pair) for pair in pairs]
            found.append(too_fast(comparison.arms[0].name, times))
        return [problem for problem in found if problem]

    @classmethod
    def cause(cls, comparison: Comparison, pairs: Pairs, hosts: Hosts) -> Attribution | None:
        if not _times_steps(comparison):
            return None
        ours = comparison.candidate
        alone = replace(ours, kind=BlockKind.LOCAL)
        return attribute_sides(ours, alone, [(launch, launch) for launch, _ in pairs], hosts)

    @classmethod
    def durations(cls, comparison: Comparison, launch: Launch) -> list[float]:
        """Return the seconds of each turn, which is once through all sizes."""
        if _times_steps(comparison):
            return super().durations(comparison, launch)
        turns: dict[int, float] = {}
        for series in launch.series:
            if series.transfer.collective is comparison.collective and series.repeats:
                turns[series.turn] = turns.get(series.turn, 0.0) + series.seconds
        return list(turns.values())


def _times_steps(comparison: Comparison) -> bool:
    """Return whether steps are timed beside the transfers."""
    return comparison.question.spec.without_exchange


def _order(
    result: Round, arm: Arm, transfer: Transfer, repeats: int, check: bool = False
) -> dict[str, Any]:
    """Return the arguments of an order. The bytes of its tensors are [] for a model's own
    gradients; a strategy without a framework exchanges one buffer as large as these together."""
    sizes = list(transfer.tensor_bytes)
    if not sizes and not arm.strategy.spec.trains:
        known = [launch.metadata[0].gradient_bytes for launch in result.launches]
        sizes = [size for size in known if size][:1]
    return {
        "collective": transfer.collective.value,
        "tensor_bytes": sizes,
        "repeats": repeats,
        "check": check,
    }


def affordable_repeats(series: Series) -> int:
    """Return the number of repeats that a turn has time for, by a first series; 1 if that series
    has no times."""
    if not series.repeats:
        return 1
    # The last repeat counts, because the first may have allocated memory.
    return min(max(int(SERIES_SECONDS / series.repeats[-1]), 1), REPEATS_MAX)
