"""Launches that run timed blocks and exchange tensors, in turns."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import TypeVar

from hvdperf.launch.group import Group
from hvdperf.machine.cpu_usage import Reading, used
from hvdperf.machine.disturbance import together
from hvdperf.measure.interleaving import Visit, walk
from hvdperf.measure.live_groups import LiveGroups
from hvdperf.measure.mode import Mode, RoundRequest, affordable
from hvdperf.plan.arms import Arm, BlockKind, Side, Transfer
from hvdperf.records.reports import CollectiveReport
from hvdperf.records.rounds import Block, Launch, Round, Series, back_to_back, is_disturbed

# Steps of a warm-up block, if a launch has one kind of blocks. Several kinds share these steps,
# because a process takes new memory in its first 15 steps or so, whatever their kind. Only the
# first step of a kind, in which its graph is optimized, does not serve the other kinds.
WARM_UP_STEPS, FEWEST_WARM_UP_STEPS = 5, 3
WARM_UP_BLOCKS_MAX = 8
WARM_UP_REPEATS = 2

# Limits of the repeats of a transfer in one turn: their time together, and their number.
SERIES_SECONDS = 0.05
REPEATS_MAX = 10

Thing = TypeVar("Thing")


@dataclass
class TimedBlocks(Mode):
    """Timed blocks in turns, each turn followed by collective operations if there are any.

    repeats: of each transfer in a turn, by arm.
    """

    forks = True

    repeats: dict[tuple[Arm, Transfer], int] = field(default_factory=dict)

    def measure(self, live: LiveGroups, request: RoundRequest) -> None:
        kinds = {arm: request.kinds[arm] for arm in live.groups}
        live.run_each(lambda group, launch: self._warm_up(group, launch, live.result, kinds))
        self._settle_steps(live.result)
        visits = walk({arm: kinds[arm] for arm in live.groups}, request.pairs, self.settings.order)
        meter = self.settings.meter
        began, turn, wanted = time.monotonic(), 0, request.turns
        if meter is not None:
            meter.begin_watch()
        # A turn that other programs disturbed is repeated; at most as many turns are added.
        while wanted > 0 and turn < 2 * request.turns:
            self.settings.doing(f"repetition {turn + 1} of {turn + wanted}")
            self._take_turn(live, visits if turn % 2 == 0 else visits[::-1], turn)
            wanted -= not _was_disturbed(live, request, turn)
            turn += 1
            if meter is not None:
                meter.watch()
        self.turn_seconds += (time.monotonic() - began) / turn
        self._keep_disturbance(live.result, kinds)

    def _warm_up(
        self,
        group: Group,
        launch: Launch,
        result: Round,
        kinds_of: dict[Arm, Collection[BlockKind]],
    ) -> None:
        self.settings.doing(f"warm up {launch.arm.label}")
        for transfer in self.settings.transfers.get(launch.arm, ()):
            first = self._series(group, result, launch, transfer, 0, WARM_UP_REPEATS)
            self.repeats.setdefault((launch.arm, transfer), affordable_repeats(first))
        kinds = self._in_random_order(kinds_of[launch.arm])
        for kind in kinds:
            wanted = max(FEWEST_WARM_UP_STEPS, math.ceil(WARM_UP_STEPS / len(kinds)))
            steps = affordable(wanted, self.known_pace(launch.arm))
            seconds: list[float] = []
            while not settled(seconds) and len(seconds) < WARM_UP_BLOCKS_MAX:
                block = self.take_block(group, launch, kind, len(seconds), steps)
                seconds.append(block.seconds)
                launch.warm_up.append(block)

    def _settle_steps(self, result: Round) -> None:
        """Set the steps of a block by arm and kind, once for all rounds: enough for the fastest of
        the arms that live side by side."""
        for kind in BlockKind:
            step_seconds = {
                launch.arm: median(b.seconds / b.steps for b in launch.warm_up if b.kind is kind)
                for launch in result.launches
                if any(b.kind is kind for b in launch.warm_up)
            }
            for arm in step_seconds:
                steps = self.steps_of_a_block(min(step_seconds.values()))
                self.steps.setdefault((arm, kind), steps)

    def _take_turn(self, live: LiveGroups, visits: Sequence[Visit], turn: int) -> None:
        for number, visit in enumerate(visits, turn * len(visits)):
            live.run(visit.arm, partial(self._visit, visit=visit, turn=turn, number=number))
        order = list(dict.fromkeys(visit.arm for visit in visits))
        transfers = self.settings.transfers
        every = list(dict.fromkeys(each for of_arm in transfers.values() for each in of_arm))
        self.settings.order.shuffle(every)
        # All arms exchange the same transfer back to back.
        for transfer in every:
            for arm in order:
                if transfer in transfers.get(arm, ()):
                    exchange = partial(
                        self._exchange, result=live.result, transfer=transfer, turn=turn
                    )
                    live.run(arm, exchange)

    def _visit(self, group: Group, launch: Launch, visit: Visit, turn: int, number: int) -> None:
        for kind in self._in_random_order(visit.kinds):
            before = self._reading(group)
            block = self.take_block(group, launch, kind, turn, self.steps[visit.arm, kind])
            after = self._reading(group)
            usage = used(before, after, self._cores_here(visit.arm)) if before and after else None
            launch.blocks.append(replace(block, visit=number, usage=usage))

    def _reading(self, group: Group) -> Reading | None:
        if self.settings.meter is None:
            return None
        here = socket.gethostname()
        return self.settings.meter.read(rank.pid for rank in group.ranks if rank.host == here)

    def _cores_here(self, arm: Arm) -> int:
        """Return the number of cores on which the arm's ranks on this host compute. A core that
        ranks share counts once for each of them."""
        slots, here = self.settings.arm_launcher.slots[: arm.world_size], socket.gethostname()
        return sum(len(slot.cores) for slot in slots if slot.host == here)

    def _exchange(
        self, group: Group, launch: Launch, result: Round, transfer: Transfer, turn: int
    ) -> None:
        repeats = self.repeats[launch.arm, transfer]
        # The result is checked once per launch, because that takes longer than the exchange.
        series = self._series(group, result, launch, transfer, turn, repeats, check=turn == 0)
        launch.series.append(series)

    def _series(
        self,
        group: Group,
        result: Round,
        launch: Launch,
        transfer: Transfer,
        turn: int,
        repeats: int,
        check: bool = False,
    ) -> Series:
        ranks = group.reports(
            CollectiveReport,
            "collective",
            self.settings.sampling.block_deadline_s,
            collective=transfer.collective.value,
            tensor_bytes=_tensor_bytes(result, launch.arm, transfer),
            repeats=repeats,
            check=check,
        )
        return Series(transfer, turn, ranks)

    def _keep_disturbance(self, result: Round, arms: Collection[Arm]) -> None:
        """Add the disturbance during these arms' blocks to the round's."""
        usages = [
            block.usage
            for arm in arms
            if result.has(arm)
            for block in result.of(arm).blocks
            if block.usage is not None
        ]
        if self.settings.meter is not None and usages:
            found = self.settings.meter.disturbance(usages)
            result.disturbance = together([result.disturbance, found])

    def _in_random_order(self, kinds: Collection[BlockKind]) -> list[BlockKind]:
        shuffled = sorted(kinds, key=lambda kind: kind.value)
        self.settings.order.shuffle(shuffled)
        return shuffled


def _was_disturbed(live: LiveGroups, request: RoundRequest, turn: int) -> bool:
    """Return whether other programs disturbed a pair of compared blocks of this turn."""
    pairs = (
        pair
        for sides in request.pairs
        if all(side.arm in live.groups for side in sides)
        for pair in back_to_back(*(_blocks_of_turn(live.result, side, turn) for side in sides))
    )
    return any(map(is_disturbed, pairs))


def _blocks_of_turn(result: Round, side: Side, turn: int) -> list[Block]:
    return [block for block in result.of(side.arm).of_kind(side.kind) if block.turn == turn]


def _tensor_bytes(result: Round, arm: Arm, transfer: Transfer) -> list[int]:
    """Return the bytes of each tensor; return [] for a model's own gradients. A strategy without a
    framework exchanges one buffer as large as all gradients together."""
    if transfer.tensor_bytes or arm.strategy.spec.trains:
        return list(transfer.tensor_bytes)
    sizes = [launch.metadata[0].gradient_bytes for launch in result.launches]
    return [size for size in sizes if size][:1]


def affordable_repeats(series: Series) -> int:
    """Return the number of repeats that a turn has time for, by a first series; 1 if that series
    has no times."""
    if not series.repeats:
        return 1
    # The last repeat counts, because the first may have allocated memory.
    return min(max(int(SERIES_SECONDS / series.repeats[-1]), 1), REPEATS_MAX)


def settled(seconds: Sequence[float], tolerance: float = 0.1) -> bool:
    """Return whether a warm-up is over: it has three blocks or more, and the last one is not faster
    than all others by more than the tolerance. A slower last block was disturbed, because a warm-up
    only gets faster."""
    return len(seconds) >= 3 and (1 + tolerance) * seconds[-1] >= min(seconds[:-1])
