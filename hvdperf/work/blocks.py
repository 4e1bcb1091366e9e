"""Launches that run timed blocks, in turns."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from statistics import median
from typing import ClassVar

from hvdperf.explain.attribution import attribute_sides
from hvdperf.launch.live_launch import LiveLaunch
from hvdperf.machine.disturbance import Reading, together, used
from hvdperf.plan.arms import NEED_LOCAL_BLOCKS, Arm, BlockKind, Schedule, Side
from hvdperf.plan.comparisons import Comparison, JudgedAs
from hvdperf.plan.profile import Profile
from hvdperf.plan.questions import fault_case_of
from hvdperf.records.outcome import Attribution
from hvdperf.records.rounds import (
    Block,
    Launch,
    Round,
    Turns,
    back_to_back,
    is_disturbed,
    median_speed,
)
from hvdperf.work import base

# Steps of a warm-up block, if a launch has one kind of blocks. Several kinds share these steps,
# because a process takes new memory in its first 15 steps or so, whatever their kind. Only the
# first step of a kind, in which its graph is optimized, does not serve the other kinds.
WARM_UP_STEPS, FEWEST_WARM_UP_STEPS = 5, 3
WARM_UP_BLOCKS_MAX = 8
# The fewest turns of a round that other programs must not have disturbed.
FEWEST_SOUND = 2
# Settings of a session by which its blocks have their length.
LENGTH_OF_BLOCKS = ("sampling.min_block_seconds", "sampling.min_block_steps")


@dataclass
class Blocks(base.Work):
    """Timed blocks, in turns."""

    name = "blocks"
    depends_on: ClassVar[tuple[str, ...]] = ("schedule", *LENGTH_OF_BLOCKS)

    @classmethod
    def schedule(cls, profile: Profile) -> Schedule:
        return profile.schedule

    @classmethod
    def kinds(cls, comparison: Comparison, judged: bool) -> dict[Arm, set[BlockKind]]:
        """Return full blocks for both sides; those without exchange if the comparison or the cause
        of a FAIL needs them; split ones only if they are judged."""
        kinds: dict[Arm, set[BlockKind]] = {arm: {BlockKind.FULL} for arm in comparison.arms}
        case = fault_case_of(comparison)
        for side in comparison.sides:
            if case is not None and case.term in NEED_LOCAL_BLOCKS:
                kinds[side.arm].add(BlockKind.LOCAL)
            if side.kind is not BlockKind.SPLIT or judged:
                kinds[side.arm].add(side.kind)
        if judged and _exchange_may_be_at_fault(comparison):
            kinds[comparison.candidate.arm].add(BlockKind.LOCAL)
        return kinds

    # Running -----------------------------------------------------------------------------------

    def measure(self, live: base.LiveLaunches, request: base.RoundRequest) -> None:
        arms = list(live.groups)
        live.run_each(partial(self.warm_up, live, request))
        self._settle_steps(live.result)
        kinds = {arm: request.kinds[arm] for arm in live.groups}
        visits = walk(kinds, request.pairs, self.settings.order)
        meter = self.settings.meter
        began, turn, wanted = time.monotonic(), 0, request.turns
        if meter is not None:
            meter.begin_watch()
        # A turn that other programs disturbed is repeated; at most as many turns are added.
        while wanted > 0 and turn < 2 * request.turns:
            self.settings.doing(f"turn {turn + 1} of {turn + wanted}")
            self.take_turn(live, visits if turn % 2 == 0 else visits[::-1], turn)
            wanted -= not _was_disturbed(live, request, turn)
            turn += 1
            if meter is not None:
                meter.watch()
        self.turn_seconds += (time.monotonic() - began) / turn
        self._keep_disturbance(live.result, arms)

    def warm_up(
        self, live: base.LiveLaunches, request: base.RoundRequest, group: LiveLaunch, launch: Launch
    ) -> None:
        """Take blocks until their times settle. live: all launches so far."""
        self.settings.doing(f"warm up {launch.arm.label}")
        launch.work = work = Turns()
        kinds = self._in_random_order(request.kinds[launch.arm])
        for kind in kinds:
            wanted = max(FEWEST_WARM_UP_STEPS, math.ceil(WARM_UP_STEPS / len(kinds)))
            steps = base.affordable(wanted, self.known_pace(launch.arm))
            seconds: list[float] = []
            while not settled(seconds) and len(seconds) < WARM_UP_BLOCKS_MAX:
                block = self.take_block(group, launch, kind, len(seconds), steps)
                seconds.append(block.seconds)
                work.warm_up.append(block)

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

    def take_turn(self, live: base.LiveLaunches, visits: Sequence[Visit], turn: int) -> None:
        """Have every arm take its blocks of a turn."""
        for number, visit in enumerate(visits, turn * len(visits)):
            live.run(visit.arm, partial(self._visit, visit.kinds, turn, number))

    def _visit(
        self, kinds: Collection[BlockKind], turn: int, visit: int, group: LiveLaunch, launch: Launch
    ) -> None:
        for kind in self._in_random_order(kinds):
            before = self._reading(group)
            block = self.take_block(group, launch, kind, turn, self.steps[launch.arm, kind])
            after = self._reading(group)
            usage = used(before, after, self._cores_here(launch.arm)) if before and after else None
            turns_of(launch).blocks.append(replace(block, visit=visit, usage=usage))

    def _reading(self, group: LiveLaunch) -> Reading | None:
        if self.settings.meter is None:
            return None
        here = socket.gethostname()
        return self.settings.meter.read(rank.pid for rank in group.ranks if rank.host == here)

    def _cores_here(self, arm: Arm) -> int:
        """Return the number of cores on which the arm's ranks on this host compute. A core that
        ranks share counts once for each of them."""
        slots, here = self.settings.arm_launcher.slots[: arm.world_size], socket.gethostname()
        return sum(len(slot.cores) for slot in slots if slot.host == here)

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

    # Figures -----------------------------------------------------------------------------------

    @classmethod
    def measures(cls, comparison: Comparison, measured: Round) -> bool:
        return super().measures(comparison, measured) and all(
            measured.of(side.arm).of_kind(side.kind) for side in comparison.sides
        )

    @classmethod
    def takes_turns(cls, comparison: Comparison, schedule: Schedule) -> bool:
        return schedule is Schedule.ALTERNATE or comparison.is_of_one_arm

    @classmethod
    def observe(cls, comparison: Comparison, measured: Round) -> list[float]:
        """Return ln(speed of the candidate / speed of the reference / ideal ratio), as Work.observe
        does; of a single side, ln(its speed / ideal ratio). A slowdown of both sides cancels in a
        turn. If the arms took no turns, it is the ratio of the two launches' medians."""
        if not cls.takes_turns(comparison, measured.schedule):
            return cls.observe_all(comparison, measured)
        pairs = _pairs_of_turns(comparison, measured)
        sound = [pair for pair in pairs if not is_disturbed(pair)]
        enough = len(sound) >= min(FEWEST_SOUND, len(pairs))
        return [_observation(comparison, *pair) for pair in sound] if enough else []

    @classmethod
    def observe_all(cls, comparison: Comparison, measured: Round) -> list[float]:
        if cls.takes_turns(comparison, measured.schedule):
            pairs = _pairs_of_turns(comparison, measured)
            return [_observation(comparison, *pair) for pair in pairs]
        ours, theirs = (median_speed(_of_side(side, measured)) for side in comparison.sides)
        return [math.log(ours / theirs) - math.log(comparison.ideal_ratio)]

    @classmethod
    def cause(
        cls, comparison: Comparison, pairs: base.Pairs, hosts: base.Hosts
    ) -> Attribution | None:
        if comparison.is_of_one_side:
            return None  # there is nothing to compare its terms with
        return attribute_sides(*comparison.sides, pairs, hosts, _ideal(comparison))

    @classmethod
    def durations(cls, comparison: Comparison, launch: Launch) -> list[float]:
        return [block.seconds for block in launch.of_kind(comparison.candidate.kind)]


def turns_of(launch: Launch) -> Turns:
    """Return the turns of a launch that has been warmed up."""
    assert isinstance(launch.work, Turns)
    return launch.work


def _exchange_may_be_at_fault(comparison: Comparison) -> bool:
    """Return whether a FAIL needs to be told whether the exchange or the computing of a rank is its
    cause. A comparison of two ways of exchange says that by itself, and a comparison of stacks is
    attributed as far as the rounds that it shares allow."""
    arm = comparison.candidate.arm
    return (
        comparison.judged_as is JudgedAs.THRESHOLD
        and arm.strategy.spec.horovod
        and arm.world_size > 1
        and not comparison.question.spec.has_variants
        and not comparison.is_of_one_side
    )


def _ideal(comparison: Comparison) -> float:
    """Return the seconds that a step of the candidate should take, for one second of the
    reference's: those with which the figure is 1."""
    ours, theirs = (
        side.arm.workload.batch * (1 if side.kind is BlockKind.SPLIT else side.arm.world_size)
        for side in comparison.sides
    )
    return ours / theirs / comparison.ideal_ratio


def _pairs_of_turns(comparison: Comparison, measured: Round) -> list[tuple[Block, Block]]:
    pairs = back_to_back(*(_of_side(side, measured) for side in comparison.sides))
    if not pairs:
        raise KeyError(f"{comparison.name}: no turn in which both sides were measured")
    return pairs


def _observation(comparison: Comparison, ours: Block, theirs: Block) -> float:
    usual = 1.0 if comparison.is_of_one_side else theirs.samples_per_second
    return math.log(ours.samples_per_second / usual) - math.log(comparison.ideal_ratio)


def _of_side(side: Side, measured: Round) -> list[Block]:
    blocks = measured.of(side.arm).of_kind(side.kind)
    if not blocks:
        raise KeyError(f"{side.arm.name}: no block of kind {side.kind.value}")
    return blocks


def _was_disturbed(live: base.LiveLaunches, request: base.RoundRequest, turn: int) -> bool:
    """Return whether other programs disturbed a pair of compared blocks of this turn."""
    pairs = (
        pair
        for sides in request.pairs
        if all(side.arm in live.groups for side in sides)
        for pair in back_to_back(*(live.result.of(side.arm).of_kind(side.kind) for side in sides))
        if pair[0].turn == turn
    )
    return any(map(is_disturbed, pairs))


def settled(seconds: Sequence[float], tolerance: float = 0.1) -> bool:
    """Return whether a warm-up is over: it has three blocks or more, and the last one is not faster
    than all others by more than the tolerance. A slower last block was disturbed, because a warm-up
    only gets faster."""
    return len(seconds) >= 3 and (1 + tolerance) * seconds[-1] >= min(seconds[:-1])


# The order of a turn ------------------------------------------------------------------------------
# A shared machine is slow for seconds and then fast again, so blocks that are compared are timed
# one right after the other: an arm that is compared with many is visited again.

Pair = tuple[Side, Side]
# Links[a][b]: the kinds of blocks of arm a that are compared with blocks of arm b.
Links = dict[Arm, dict[Arm, set[BlockKind]]]


@dataclass(frozen=True)
class Visit:
    """A visit to an arm within a turn. kinds: the kinds of blocks that the arm then takes."""

    arm: Arm
    kinds: frozenset[BlockKind]


def walk(
    kinds: Mapping[Arm, Collection[BlockKind]], pairs: Sequence[Pair], order: Random
) -> list[Visit]:
    """Return visits in random order, except that the arms of each pair follow each other once, and
    that every arm takes all its kinds. If the pairs form a tree, there are as few visits as
    possible.

    kinds: the wanted kinds of blocks by arm. pairs: the compared sides; a pair with an arm that is
    not in kinds is ignored.
    """
    links = _links(kinds, pairs)
    trails = []
    # Begin where an odd number of pairs is left, because a trail must begin or end at such an arm.
    while arm := _beginning(links, order):
        trails.append(_trail(links, arm, order))
    met = {visit.arm for trail in trails for visit in trail}
    trails += [[Visit(arm, frozenset())] for arm in kinds if arm not in met]
    order.shuffle(trails)
    return _completed([visit for trail in trails for visit in trail], kinds)


def _links(kinds: Mapping[Arm, Collection[BlockKind]], pairs: Sequence[Pair]) -> Links:
    links: Links = {arm: {} for arm in kinds}
    for one, other in pairs:
        if one.arm == other.arm or not {one.arm, other.arm} <= kinds.keys():
            continue
        links[one.arm].setdefault(other.arm, set()).add(one.kind)
        links[other.arm].setdefault(one.arm, set()).add(other.kind)
    return links


def _beginning(links: Links, order: Random) -> Arm | None:
    left = [arm for arm, others in links.items() if others]
    odd = [arm for arm in left if len(links[arm]) % 2]
    return order.choice(odd or left) if left else None


def _trail(links: Links, arm: Arm, order: Random) -> list[Visit]:
    """Return visits from pair to pair until none is left; the pairs are removed from `links`."""
    trail, kinds = [], set[BlockKind]()
    while others := links[arm]:
        following = order.choice(list(others))
        trail.append(Visit(arm, frozenset(kinds | others.pop(following))))
        kinds = links[following].pop(arm)
        arm = following
    return [*trail, Visit(arm, frozenset(kinds))]


def _completed(visits: Sequence[Visit], kinds: Mapping[Arm, Collection[BlockKind]]) -> list[Visit]:
    """Return the visits. On its first visit each arm also takes the kinds that none of its visits
    has."""
    result: list[Visit] = []
    for visit in visits:
        wanted = set(kinds[visit.arm])
        first = all(visit.arm != earlier.arm for earlier in result)
        assigned = {kind for each in visits if each.arm == visit.arm for kind in each.kinds}
        own = visit.kinds | (wanted - assigned) if first else visit.kinds
        result.append(Visit(visit.arm, frozenset(own & wanted)))
    return result
