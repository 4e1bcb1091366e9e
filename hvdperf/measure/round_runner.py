"""One round: every arm of a workload once, in one of the two schedules."""

from __future__ import annotations

import math
import random
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np

from hvdperf.launch.arm_launcher import SEED, ArmLauncher
from hvdperf.launch.group import Failure, Group, GroupFailed
from hvdperf.launch.job import LaunchError, is_of_a_slot
from hvdperf.machine.cpu_usage import CpuMeter, Reading, used
from hvdperf.machine.disturbance import together
from hvdperf.measure.interleaving import Pair, Position, walk
from hvdperf.measure.records import (
    Block,
    Launch,
    Round,
    Series,
    affordable_repeats,
    back_to_back,
    is_disturbed,
    settled,
)
from hvdperf.measure.reports import (
    BlockReport,
    CollectiveReport,
    Correctness,
    Evidence,
    Metadata,
    RunReport,
    TimelineReport,
)
from hvdperf.plan.arms import Arm, BlockKind, Schedule, Side
from hvdperf.plan.collectives import Transfer
from hvdperf.plan.profile import Runs, Sampling
from hvdperf.plan.question import LaunchMode
from hvdperf.worker.protocol import Phase
from models.inputs.errors import DataError

# Steps of a warm-up block if a launch has one kind of blocks. Several kinds share these steps: a
# process takes new memory for its first 15 steps or so, of any kind. Each kind has only its first
# step, in which its graph is optimized, for itself.
WARM_UP_STEPS, FEWEST_WARM_UP_STEPS = 5, 3
WARM_UP_BLOCKS_MAX = 8
# Steps of a run in which all ranks meet before every step, and steps that Horovod records.
MET_STEPS = 60
TIMELINE_STEPS = 20
# A block that takes this many times as long as the launch's own pace predicts is taken to hang.
PATIENCE = 3
WARM_UP_REPEATS = 2
# Steps of the reproducible training by which two strategies are compared. From the second step on,
# the last bit in which two orders of summation differ grows without bounds in deep networks:
# inception_v4_s at 2 replicas agreed to 3e-5 of the update after 1 step, to 1e-1 after 2 (at a
# hundredth of the learning rate, too), and not at all after 3.
CORRECTNESS_STEPS = 1

Progress = Callable[[str], None]
Thing = TypeVar("Thing")


@dataclass(frozen=True)
class RoundRequest:
    """What one round is to hold.

    number: the round's, from 0. arms: to launch. kinds: kinds of blocks wanted of each arm. pairs:
    what is compared, and so timed one right after the other. turns: how often the arms of a launch
    take turns.
    """

    number: int
    arms: Sequence[Arm]
    kinds: Mapping[Arm, Collection[BlockKind]]
    pairs: Sequence[Pair]
    turns: int


@dataclass
class RoundRunner:
    """A runner of the rounds of one workload.

    check: arms whose reproducible training is wanted once; its weights go to `weights_directory`.
    progress: is called with a line for each event; doing, with what passes between two lines.
    failures: arms that have failed, which are never started again. steps: of a block, by arm and
    kind. turn_seconds: mean seconds of a turn of all arms in the last round. work: what the
    launches do. seed, runs: of training runs, the seed and the lengths. last_phase: of a start-up.
    transfers: what each arm exchanges in a turn, after its blocks; repeats: how often. meter: reads
    the CPU usage of blocks; None if the kernel does not report it.
    """

    arm_launcher: ArmLauncher
    sampling: Sampling
    schedule: Schedule
    check: Collection[Arm]
    weights_directory: Path
    progress: Progress
    order: random.Random
    doing: Progress = lambda text: None
    failures: dict[Arm, Failure] = field(default_factory=dict)
    steps: dict[tuple[Arm, BlockKind], int] = field(default_factory=dict)
    correctness: dict[Arm, Launch] = field(default_factory=dict)
    turn_seconds: float = 0.0
    work: LaunchMode = LaunchMode.BLOCKS
    seed: int = 0
    last_phase: Phase = Phase.BROADCAST
    runs: Runs = field(default_factory=Runs)
    transfers: Mapping[Arm, Sequence[Transfer]] = field(default_factory=dict)
    repeats: dict[tuple[Arm, Transfer], int] = field(default_factory=dict)
    meter: CpuMeter | None = None
    _asked: RoundRequest = field(init=False, repr=False)

    def run(self, request: RoundRequest) -> Round:
        """Launch every arm of the request that has not failed."""
        self._asked = request
        result = Round(request.number, self.schedule)
        living = [arm for arm in request.arms if arm not in self.failures]
        self.order.shuffle(living)
        self.turn_seconds = 0.0
        # A start that is measured must be like a user's, whose ranks are not forked.
        fresh = self.work in (LaunchMode.STARTUP, LaunchMode.LEDGER)
        with nullcontext() if fresh else self.arm_launcher.forking(self.progress):
            self._run(result, living)
        return result

    def _run(self, result: Round, living: Sequence[Arm]) -> None:
        if self.schedule is Schedule.ALTERNATE:
            self._alternate(result, living)
        else:
            for arm in living:
                self._alternate(result, [arm])
        if self.work is LaunchMode.LEDGER:
            for arm in living:
                if arm.world_size > 1 and arm not in self.failures:
                    self._record(result, arm)

    def weights(self, arm: Arm) -> Path:
        """Return the path of the arm's reproducibly trained weights."""
        return self.weights_directory / f"{arm.workload.model}-{arm.label}.npz"

    # A set of arms that live side by side; in the schedule `fresh`, one arm ----------------

    def _alternate(self, result: Round, arms: Sequence[Arm]) -> None:
        groups: dict[Arm, Group] = {}
        try:
            self._start(result, arms, groups)
            if self.work in (LaunchMode.BLOCKS, LaunchMode.COLLECTIVES):
                self._take_blocks(result, groups)
            elif self.work.is_run:
                train = self._audit if self.work is LaunchMode.LEDGER else self._train
                for arm in list(groups):
                    self._guarded(groups, arm, partial(train, groups, result, arm))
            for arm in list(groups):
                self._guarded(groups, arm, partial(self._finish, groups, result, arm))
        finally:
            # All at once: after Ctrl-C mpirun gives the whole session one second.
            for group in groups.values():
                group.kill()
            for group in groups.values():
                group.end()

    def _record(self, result: Round, arm: Arm) -> None:
        groups: dict[Arm, Group] = {}
        try:
            self.progress(f"record the timeline of {arm.label}")
            self._start_one(result, arm, groups, share_startup=False, timeline=True)
            self._guarded(groups, arm, partial(self._listen, groups, result, arm))
        finally:
            for group in groups.values():
                group.end()

    def _take_blocks(self, result: Round, groups: dict[Arm, Group]) -> None:
        arms = list(groups)
        for arm in arms:
            self._guarded(groups, arm, partial(self._warm_up, groups, result, arm))
        self._settle_steps(result)
        kinds = {arm: self._asked.kinds[arm] for arm in groups}
        visits = walk(kinds, self._asked.pairs, self.order)
        began, turn, wanted = time.monotonic(), 0, self._asked.turns
        if self.meter is not None:
            self.meter.begin_watch()
        # A turn that other programs disturbed is repeated; at most as many turns are added.
        while wanted > 0 and turn < 2 * self._asked.turns:
            self.doing(f"repetition {turn + 1} of {turn + wanted}")
            self._take_turn(result, groups, visits if turn % 2 == 0 else visits[::-1], turn)
            wanted -= not self._was_disturbed(result, groups, turn)
            turn += 1
            if self.meter is not None:
                self.meter.watch()
        self.turn_seconds += (time.monotonic() - began) / turn
        taken = [block for arm in arms for block in result.of(arm).blocks]
        self._keep_disturbance(result, taken)

    def _take_turn(
        self, result: Round, groups: dict[Arm, Group], way: Sequence[Position], turn: int
    ) -> None:
        for number, visit in enumerate(way, turn * len(way)):
            act = partial(self._visit, groups, result, visit, turn, number)
            self._guarded(groups, visit.arm, act)
        order = list(dict.fromkeys(visit.arm for visit in way))
        # All arms exchange the same transfer back to back.
        for transfer in self._in_random_order(self._all_transfers()):
            for arm in order:
                if transfer not in self.transfers.get(arm, ()):
                    continue
                act = partial(self._exchange, groups, result, arm, transfer, turn)
                self._guarded(groups, arm, act)

    def _was_disturbed(self, result: Round, living: Collection[Arm], turn: int) -> bool:
        """Return whether other programs disturbed a pair of compared blocks of this turn."""
        pairs = (
            pair
            for sides in self._asked.pairs
            if all(side.arm in living for side in sides)
            for pair in back_to_back(*(_blocks_of_turn(result, side, turn) for side in sides))
        )
        return any(map(is_disturbed, pairs))

    def _keep_disturbance(self, result: Round, blocks: Iterable[Block]) -> None:
        """Add the disturbance by other programs during these blocks to that of the round."""
        usages = [block.usage for block in blocks if block.usage is not None]
        if self.meter is not None and usages:
            found = self.meter.disturbance(usages)
            result.disturbance = together([result.disturbance, found])

    def _train(self, groups: Mapping[Arm, Group], result: Round, arm: Arm) -> None:
        group = groups[arm]
        group.resume()
        self.progress(f"train {arm.label}")
        result.of(arm).run = group.reports(
            RunReport,
            "run",
            self.runs.deadline_s,
            **self._length_of_run(arm),
            validate=self.work is LaunchMode.EPOCHS,
        )
        group.pause()

    def _audit(self, groups: Mapping[Arm, Group], result: Round, arm: Arm) -> None:
        """Do a marked run, then time the parts of its steps."""
        group, launch = groups[arm], result.of(arm)
        group.resume()
        self.progress(f"train {arm.label} with timestamps")
        launch.run = group.reports(
            RunReport,
            "run",
            self.runs.deadline_s,
            steps=self.runs.ledger_steps,
            validate=False,
            marked=True,
        )
        self.progress(f"time the parts of a step of {arm.label}")
        if arm.world_size > 1:
            launch.met_run = group.reports(
                RunReport,
                "run",
                self.runs.deadline_s,
                steps=MET_STEPS,
                validate=False,
                marked=True,
                meet=True,
            )
        group.ask("ablation", self.sampling.startup_deadline_s)
        run_seconds = median(rank.seconds for rank in launch.run)
        steps = self._steps_of_a_block(run_seconds / self.runs.ledger_steps)
        kinds = [BlockKind.FULL, BlockKind.LOCAL, BlockKind.COMPUTE]
        # The first steps of a kind are slow.
        launch.warm_up += self._ablation(group, launch, kinds, 0, steps)
        for turn in range(self.runs.ablation_turns):
            launch.blocks += self._ablation(group, launch, kinds, turn, steps)
        group.pause()

    def _ablation(
        self, group: Group, launch: Launch, kinds: list[BlockKind], turn: int, steps: int
    ) -> list[Block]:
        """Time one block of each kind, in random order. Each step is waited for, because steps are
        divided into their parts."""
        self.order.shuffle(kinds)
        return [self._block(group, launch, kind, turn, steps, wait=True) for kind in kinds]

    def _listen(self, groups: Mapping[Arm, Group], result: Round, arm: Arm) -> None:
        """Have Horovod record some steps, in a launch in which nothing is timed."""
        group, launch = groups[arm], result.of(arm)
        group.wait_ready(self.sampling.startup_deadline_s)
        path = self.weights_directory / f"timeline-{arm.workload.model}-{arm.label}.json"
        deadline_s = self._deadline_s(launch, BlockKind.FULL, TIMELINE_STEPS)
        launch.timeline = group.reports(
            TimelineReport, "timeline", deadline_s, steps=TIMELINE_STEPS, path=str(path)
        )
        group.close()

    def _length_of_run(self, arm: Arm) -> dict[str, float]:
        if self.work is LaunchMode.TIME:
            return {"seconds": self.runs.seconds}
        if self.work is LaunchMode.ENDURANCE:
            return {"steps": self.runs.endurance_steps}
        # The number of updates is the same for every arm.
        wanted = self.runs.epochs * self.arm_launcher.epoch_steps(arm)
        return {"steps": min(wanted, self.runs.steps_max * arm.passes)}

    def _guarded(self, groups: dict[Arm, Group], arm: Arm, act: Callable[[], None]) -> None:
        """Run act(). If its launch fails, only its own arm fails; the others go on without it."""
        if arm not in groups:
            return
        try:
            act()
        except GroupFailed as failed:
            self._failed(arm, failed.failure)
            groups.pop(arm).end()

    def _failed(self, arm: Arm, failure: Failure) -> None:
        self.failures[arm] = failure
        self.progress(f"FAILED {failure}")

    def _start(self, result: Round, arms: Sequence[Arm], groups: dict[Arm, Group]) -> None:
        """Start as many processes at once as there are cores: more would only wait for each other,
        and poll meanwhile. Groups that are up are stopped."""
        self.progress(_start_of(arms))
        to_come, starting = list(arms), set[Arm]()
        while to_come or starting:
            # Start any arm that fits beside those that are starting, so that no core is idle.
            while arm := next((a for a in to_come if self._has_cores_for(a, starting)), None):
                to_come.remove(arm)
                self._start_one(result, arm, groups, share_startup=len(arms) > 1)
                if arm in groups:
                    starting.add(arm)
            self.arm_launcher.hub.pump(0.1)
            for arm in list(starting):
                if groups[arm].settled(self.sampling.startup_deadline_s):
                    starting.remove(arm)
                    if left := [each for each in arms if each in starting or each in to_come]:
                        self.doing(_start_of(left))
                    self._guarded(groups, arm, partial(self._started, groups, result, arm))

    def _has_cores_for(self, arm: Arm, starting: Collection[Arm]) -> bool:
        """Return whether the arm can start beside these; alone it always can."""
        processes = arm.processes + sum(each.processes for each in starting)
        return not starting or processes <= self.arm_launcher.cores

    def _start_one(
        self, result: Round, arm: Arm, groups: dict[Arm, Group], **options: bool
    ) -> None:
        """Start an arm without waiting for it. options: share_startup, and others of
        ArmLauncher.start."""
        # The result of a training run depends on the seed, so other sessions draw others. Blocks
        # are compared by their speed only, and train the same every night.
        drawn = result.number + (self.seed if self.work.is_run else 0)
        try:
            groups[arm] = self.arm_launcher.start(
                arm,
                self._asked.kinds[arm],
                data_seed=1 + drawn,
                seed=SEED + drawn if self.work.is_run else SEED,
                last_phase=self.last_phase,
                common_order=self.work is LaunchMode.EPOCHS,
                **options,
            )
        except (LaunchError, DataError, OSError) as error:
            started = not is_of_a_slot(error)
            failure = Failure(arm.name, None, Phase.LAUNCH.value, str(error), started=started)
            self._failed(arm, failure)

    def _started(self, groups: Mapping[Arm, Group], result: Round, arm: Arm) -> None:
        group = groups[arm]
        group.wait_ready(self.sampling.startup_deadline_s)
        # The group would burn CPU time that the others need to start.
        group.pause()
        launch = Launch(
            arm,
            result.number,
            startup_seconds=group.startup_seconds(),
            facts=group.facts(Metadata),
        )
        result.launches.append(launch)

    def _warm_up(self, groups: Mapping[Arm, Group], result: Round, arm: Arm) -> None:
        group, launch = groups[arm], result.of(arm)
        self.doing(f"warm up {arm.label}")
        group.resume()
        for transfer in self.transfers.get(arm, ()):
            first = self._series(groups, result, arm, transfer, 0, WARM_UP_REPEATS)
            self.repeats.setdefault((arm, transfer), affordable_repeats(first))
        kinds = self._shuffled(self._asked.kinds[arm])
        for kind in kinds:
            steps = max(FEWEST_WARM_UP_STEPS, math.ceil(WARM_UP_STEPS / len(kinds)))
            seconds: list[float] = []
            while not settled(seconds) and len(seconds) < WARM_UP_BLOCKS_MAX:
                block = self._block(group, launch, kind, len(seconds), steps)
                seconds.append(block.seconds)
                launch.warm_up.append(block)
        group.pause()

    def _settle_steps(self, result: Round) -> None:
        """Set how many steps a block has, by arm and kind: enough on the fastest of the arms that
        live side by side, and the same from then on."""
        for kind in BlockKind:
            step_seconds = {
                launch.arm: median(b.seconds / b.steps for b in launch.warm_up if b.kind is kind)
                for launch in result.launches
                if any(b.kind is kind for b in launch.warm_up)
            }
            for arm in step_seconds:
                steps = self._steps_of_a_block(min(step_seconds.values()))
                self.steps.setdefault((arm, kind), steps)

    def _steps_of_a_block(self, step_seconds: float) -> int:
        """Return how many steps a block must have at this pace."""
        enough = math.ceil(self.sampling.min_block_seconds / step_seconds)
        return max(self.sampling.min_block_steps, enough)

    def _visit(
        self, groups: Mapping[Arm, Group], result: Round, visit: Position, turn: int, number: int
    ) -> None:
        group, launch = groups[visit.arm], result.of(visit.arm)
        group.resume()
        for kind in self._shuffled(visit.kinds):
            before = self._reading(group)
            block = self._block(group, launch, kind, turn, self.steps[visit.arm, kind])
            after = self._reading(group)
            usage = used(before, after, self._cores_here(visit.arm)) if before and after else None
            launch.blocks.append(replace(block, visit=number, usage=usage))
        group.pause()

    def _reading(self, group: Group) -> Reading | None:
        if self.meter is None:
            return None
        here = socket.gethostname()
        return self.meter.read(rank.pid for rank in group.ranks if rank.host == here)

    def _cores_here(self, arm: Arm) -> int:
        """Return the number of cores on which the arm's ranks on this host compute. A core that
        ranks share counts once for each of them."""
        slots, here = self.arm_launcher.slots[: arm.world_size], socket.gethostname()
        return sum(len(slot.cores) for slot in slots if slot.host == here)

    def _exchange(
        self,
        groups: Mapping[Arm, Group],
        result: Round,
        arm: Arm,
        transfer: Transfer,
        turn: int,
    ) -> None:
        group = groups[arm]
        group.resume()
        repeats = self.repeats[arm, transfer]
        # The result is checked once per launch, because that takes longer than the exchange.
        series = self._series(groups, result, arm, transfer, turn, repeats, check=turn == 0)
        result.of(arm).series.append(series)
        group.pause()

    def _block(
        self,
        group: Group,
        launch: Launch,
        kind: BlockKind,
        turn: int,
        steps: int,
        wait: bool = False,
    ) -> Block:
        deadline_s = self._deadline_s(launch, kind, steps)
        ranks = group.reports(
            BlockReport, "block", deadline_s, kind=kind.value, steps=steps, wait=wait
        )
        return Block(kind, turn, steps, ranks)

    def _deadline_s(self, launch: Launch, kind: BlockKind, steps: int) -> float:
        """Return the deadline of that many steps, in seconds. A launch that is known to be slow
        gets longer, because it does not hang."""
        known = [b.seconds / b.steps for b in launch.warm_up + launch.blocks if b.kind is kind]
        known = known or [rank.seconds / rank.steps for rank in launch.run]
        pace = median(known) if known else 0.0
        return max(self.sampling.block_deadline_s, PATIENCE * pace * steps)

    def _series(
        self,
        groups: Mapping[Arm, Group],
        result: Round,
        arm: Arm,
        transfer: Transfer,
        turn: int,
        repeats: int,
        check: bool = False,
    ) -> Series:
        ranks = groups[arm].reports(
            CollectiveReport,
            "collective",
            self.sampling.block_deadline_s,
            collective=transfer.collective.value,
            tensor_bytes=self._tensor_bytes(result, arm, transfer),
            repeats=repeats,
            check=check,
        )
        return Series(transfer, turn, ranks)

    def _tensor_bytes(self, result: Round, arm: Arm, transfer: Transfer) -> list[int]:
        """Return the bytes of each tensor; return [] for a model's own gradients. Without a
        framework the gradients are one buffer, as large as the model reports: the most that a
        transport can be asked for at once."""
        if transfer.tensor_bytes or arm.strategy.spec.trains:
            return list(transfer.tensor_bytes)
        sizes = [launch.facts[0].gradient_bytes for launch in result.launches]
        return [size for size in sizes if size][:1]

    def _all_transfers(self) -> list[Transfer]:
        return list(dict.fromkeys(t for each in self.transfers.values() for t in each))

    def _finish(self, groups: dict[Arm, Group], result: Round, arm: Arm) -> None:
        group, launch = groups[arm], result.of(arm)
        self.doing(f"check {arm.label}")
        group.resume()
        # Every rank looks at all files of the data set, which may lie on a slow network.
        launch.evidence = group.reports(Evidence, "evidence", self.sampling.startup_deadline_s)
        if arm in self.check and arm not in self.correctness:
            launch.correctness = group.reports(
                Correctness,
                "correctness",
                self.sampling.startup_deadline_s,
                steps=CORRECTNESS_STEPS,
                path=str(self.weights(arm)),
            )
            self.correctness[arm] = launch
        group.close(leave_group=self.work is LaunchMode.LEDGER)
        if self.work is LaunchMode.LEDGER:
            launch.marks = group.marks()

    def _shuffled(self, kinds: Collection[BlockKind]) -> list[BlockKind]:
        return self._in_random_order(sorted(kinds, key=lambda kind: kind.value))

    def _in_random_order(self, things: Sequence[Thing]) -> list[Thing]:
        shuffled = list(things)
        self.order.shuffle(shuffled)
        return shuffled


def read_weights(path: Path) -> dict[str, Any]:
    """Return the trained weights that an arm has written to path, by tensor."""
    with np.load(path) as arrays:
        return dict(arrays)


def _blocks_of_turn(result: Round, side: Side, turn: int) -> list[Block]:
    if not result.has(side.arm):
        return []
    return [b for b in result.of(side.arm).of_kind(side.kind) if b.turn == turn]


def _start_of(arms: Iterable[Arm]) -> str:
    return "start " + ", ".join(arm.label for arm in arms)
