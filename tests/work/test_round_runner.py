"""Rounds over groups that only pretend: who is asked for what, and in which order."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from hvdperf.launch.arm_launcher import SEED, Pace
from hvdperf.launch.launchers import LaunchError
from hvdperf.launch.live_launch import LaunchFailed
from hvdperf.launch.processes import SlotGone
from hvdperf.machine.disturbance import Disturbance, Reading, Usage, total
from hvdperf.machine.host import local_machine
from hvdperf.machine.placement import local_offers, place
from hvdperf.plan.arms import Arm, BlockKind, Collective, Schedule, Side, Transfer
from hvdperf.plan.profile import Runs, Sampling
from hvdperf.records.outcome import Failure
from hvdperf.records.rounds import (
    Block,
    Correctness,
    Metadata,
    Round,
    StampedRun,
    Timestamps,
    back_to_back,
    is_disturbed,
)
from hvdperf.work.base import LONGEST_BLOCK_S, RoundRequest, RoundSettings, Work
from hvdperf.work.blocks import WARM_UP_BLOCKS_MAX, WARM_UP_STEPS, Blocks, Pair
from hvdperf.work.collectives import WARM_UP_REPEATS, Collectives
from hvdperf.work.round_runner import RoundRunner
from hvdperf.work.table import WORKS
from hvdperf.work.training import Endurance, Epochs, Seconds, Startup, WallTime, stamped
from hvdperf.worker.protocol import Phase
from hvdperf.worker.strategies import Strategy
from tests.support.rounds import (
    BARE_2,
    HOROVOD_1,
    HOROVOD_2,
    MIRRORED_2,
    evidence_report,
    rank_report,
    run_report,
    series_report,
)
from tests.support.with_timestamps import timestamps_of

FULL, LOCAL, SPLIT = BlockKind.FULL, BlockKind.LOCAL, BlockKind.SPLIT
ARMS = (HOROVOD_1, HOROVOD_2, MIRRORED_2)
SINGLE = replace(HOROVOD_1, strategy=Strategy.SINGLE)
Report = TypeVar("Report")


@dataclass
class Stage:
    """What groups do, and a log of what they were asked: (arm, what, details); deadlines: of each
    order, with its steps."""

    step_seconds: dict[Arm, float] = field(default_factory=dict)
    warm_up_steps_of: list[float] = field(default_factory=list)
    raises: dict[tuple[Arm, str], BaseException] = field(default_factory=dict)
    log: list[tuple[Arm, str, dict[str, Any]]] = field(default_factory=list)
    deadlines: list[tuple[str, int, float]] = field(default_factory=list)
    groups: list[FakeGroup] = field(default_factory=list)
    cores: int = 8
    clock: float = 0.0
    collective_seconds: float = 0.02
    gradient_bytes: dict[Arm, int] = field(default_factory=dict)
    run_seconds: float = 2.0
    pace: Pace = field(default_factory=Pace)
    stopped_in: Collection[int] = ()
    was_stopped: bool = False
    forks: bool = False

    def monotonic(self) -> float:
        return self.clock

    @contextmanager
    def forking(self, tell: Callable[[str], None]) -> Iterator[None]:
        self.forks = True
        yield
        self.forks = False

    def start(self, arm: Arm, kinds: Collection[BlockKind], **told: Any) -> FakeGroup:
        self.note(arm, "start", kinds=kinds, forks=self.forks, **told)
        group = FakeGroup(arm, self)
        self.groups.append(group)
        return group

    def note(self, arm: Arm, what: str, **details: Any) -> None:
        self.log.append((arm, what, details))
        error = self.raises.get((arm, what))
        if error is not None:
            raise error

    def of(self, what: str) -> list[tuple[Arm, dict[str, Any]]]:
        return [(arm, details) for arm, did, details in self.log if did == what]

    def alive(self) -> int:
        return sum(not group.ended for group in self.groups)


class FakeGroup:
    """The methods of hvdperf.launch.live_launch.LiveLaunch that a round uses."""

    def __init__(self, arm: Arm, stage: Stage) -> None:
        self.arm = arm
        self.ranks = [SimpleNamespace(host="", pid=0) for _ in range(arm.processes)]
        self.paused = False
        self.ended = False
        self.stops, self.was_stopped = 0, stage.was_stopped
        self._stage = stage
        self._blocks = 0

    def settled(self, deadline_s: float) -> bool:
        return True

    def wait_ready(self, deadline_s: float) -> None:
        self._stage.note(self.arm, "wait_ready")

    def startup_seconds(self) -> list[dict[str, float]]:
        return [{"import": 1.0} for _ in self.ranks]

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        others = [g for g in self._stage.groups if g is not self and not g.paused and not g.ended]
        assert not others, "two groups run at the same time"
        self.paused = False

    def metadata(self, report: type[Metadata]) -> list[Metadata]:
        gradient_bytes = self._stage.gradient_bytes.get(self.arm, 0)
        return [
            report(rank, self.arm.world_size, "mpi", gradient_bytes=gradient_bytes)
            for rank in range(len(self.ranks))
        ]

    def ask(self, op: str, deadline_s: float, limit: str = "", **arguments: Any) -> None:
        assert not self.paused
        assert not self.ended
        self._stage.note(self.arm, op, **arguments)
        self._stage.deadlines.append((op, arguments.get("steps", 0), deadline_s))

    def reports(
        self, report: type[Report], op: str, deadline_s: float, /, **arguments: Any
    ) -> list[Report]:
        self.ask(op, deadline_s, **arguments)
        made = self._report(op, arguments)
        assert isinstance(made, report)
        return [made for _ in self.ranks]

    def _report(self, op: str, arguments: dict[str, Any]) -> object:
        if op == "run":
            return run_report(seconds=self._stage.run_seconds)
        if op == "collective":
            return series_report([9.0, self._stage.collective_seconds])
        if op == "evidence":
            return evidence_report(world_size=self.arm.world_size)
        if op == "correctness":
            return Correctness(0.5, ["a1b2"])
        steps = arguments["steps"]
        split = arguments["kind"] == SPLIT.value
        seconds = self._stage.step_seconds.get(self.arm, 0.01) / (2 if split else 1)
        if self._blocks < len(self._stage.warm_up_steps_of):
            seconds = self._stage.warm_up_steps_of[self._blocks]
        self._blocks += 1
        self._stage.clock += seconds * steps
        self.stops += self._blocks in self._stage.stopped_in
        return rank_report(seconds * steps, 32 * steps, steps)

    def close(self, leave_group: bool = False) -> None:
        self._stage.note(self.arm, "close", leave_group=leave_group)
        self.ended = True

    def timestamps(self) -> Timestamps:
        """Those of any launch: in this one no time passes."""
        assert self.ended, "they are complete once it has ended"
        return timestamps_of(1.0, len(self.ranks))

    def kill(self) -> None:
        if not self.ended:
            self._stage.note(self.arm, "kill")

    def end(self) -> None:
        if not self.ended:
            self._stage.note(self.arm, "end")
        self.ended = True


class FakeMeter:
    """Blocks of which others took a share: of these places in the session, and of no others."""

    def __init__(self, *disturbed: int) -> None:
        self.watched = 0
        self._disturbed, self._readings, self._busy = disturbed, 0, 0.0

    def begin_watch(self) -> None:
        self.watched = 0

    def watch(self) -> None:
        self.watched += 1

    def read(self, ranks: object) -> Reading:
        block, is_end = divmod(self._readings, 2)
        self._readings += 1
        self._busy += 0.5 if is_end and block in self._disturbed else 0.0
        return Reading(self._readings / 2, 2, self._busy, 0.0, {}, {"1": (0.0, self._busy)}, 0.0)

    def disturbance(self, usages: Sequence[Usage]) -> Disturbance:
        return Disturbance(0.0, total(usages), 0.0, 1.0)


class Runner(RoundRunner):
    """A runner that is asked for the same kinds, pairs and turns every round."""

    kinds: Mapping[Arm, Collection[BlockKind]]
    pairs: Sequence[Pair]
    turns: int

    def take(self, number: int, arms: Sequence[Arm]) -> Round:
        return self.run(RoundRequest(number, arms, self.kinds, self.pairs, self.turns))


def make_runner(
    stage: Stage,
    seed: int = 1,
    kinds: Mapping[Arm, Collection[BlockKind]] | None = None,
    pairs: Sequence[Pair] = (),
    turns: int = 3,
    work: type[Work] = Blocks,
    schedule: Schedule = Schedule.ALTERNATE,
    check: Sequence[Arm] = (),
    last_phase: Phase = Phase.BROADCAST,
    progress: Callable[[str], None] = lambda text: None,
    **settings: Any,
) -> Runner:
    arm_launcher: Any = SimpleNamespace(
        start=stage.start,
        forking=stage.forking,
        cores=stage.cores,
        hub=SimpleNamespace(pump=lambda s: None),
        slots=place(local_offers(local_machine(), 2, oversubscribe=True)),
        epoch_steps=lambda arm: 78 // arm.world_size // arm.passes * arm.passes,
        scratch=Path("scratch"),
        startup_deadline=lambda arm: Sampling().startup_deadline_s,
        pace=lambda arm: stage.pace,
    )
    made = RoundSettings(arm_launcher, Sampling(), random.Random(seed), progress, **settings)
    runner = Runner(work(made), schedule, check, last_phase=last_phase)
    runner.kinds = {arm: {FULL} for arm in ARMS} if kinds is None else kinds
    runner.pairs, runner.turns = pairs, turns
    return runner


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_block_during_which_the_session_was_stopped_is_taken_again(stage):
    usual = Stage()
    make_runner(usual, turns=1).take(0, [HOROVOD_1])
    taken = len(usual.of("block"))
    stage.stopped_in = [taken]  # the last one, which is timed
    (repeated,) = blocks_of(make_runner(stage, turns=1).take(0, [HOROVOD_1]))
    assert len(stage.of("block")) == taken + 1
    assert len(repeated) == 1


def test_what_fails_while_the_session_was_stopped_is_missing_in_this_round_only(stage):
    stage.raises[HOROVOD_2, "evidence"] = failure(HOROVOD_2)
    stage.was_stopped = True
    runner = make_runner(stage, turns=1)
    measured = runner.take(0, [HOROVOD_1, HOROVOD_2])
    assert launched(measured) == {HOROVOD_1}
    assert runner.failures == {}


def failure(arm: Arm) -> LaunchFailed:
    return LaunchFailed(Failure(arm.name, 0, "block", "it broke"))


def blocks_of(measured: Round) -> list[list[Block]]:
    return [list(launch.blocks) for launch in measured.launches]


def turns(measured: Round) -> dict[Arm, list[int]]:
    return {launch.arm: [b.turn for b in launch.blocks] for launch in measured.launches}


def launched(measured: Round) -> set[Arm]:
    return {launch.arm for launch in measured.launches}


# Order -----------------------------------------------------------------------------------------


def test_arms_take_turns_forwards_and_backwards(stage):
    make_runner(stage, turns=4).take(0, [HOROVOD_2, MIRRORED_2])
    timed = [arm for arm, details in stage.of("block") if details["steps"] > WARM_UP_STEPS]
    first, second = timed[:2]
    assert first != second
    assert timed == [first, second, second, first, first, second, second, first]


@pytest.mark.parametrize(
    ("is_compared", "disturbed", "taken"),
    # The first block of the second turn, or all of them: as many turns again as there are to be.
    [(True, [2], 4), (True, range(99), 6), (False, range(99), 3)],
)
def test_turns_that_others_disturbed_are_taken_again_if_they_are_compared(
    stage, is_compared, disturbed, taken
):
    pairs = [(Side(HOROVOD_2, FULL), Side(MIRRORED_2, FULL))] * is_compared
    meter = FakeMeter(*disturbed)
    measured = make_runner(stage, pairs=pairs, meter=meter).take(0, [HOROVOD_2, MIRRORED_2])
    assert set(map(tuple, turns(measured).values())) == {tuple(range(taken))}
    if disturbed == [2]:
        assert meter.watched == taken
        found = [is_disturbed(pair) for pair in back_to_back(*blocks_of(measured))]
        assert found == [False, True, False, False]
        assert measured.disturbance is not None
        assert measured.disturbance.foreign_share == pytest.approx(0.5 / (8 * 2 * 0.5))


@pytest.mark.parametrize(
    ("cores", "most"),
    # What starts at once, in processes: of three arms with 2, 1 and 1; one may have more than fit.
    [(1, 2), (2, 2), (3, 3), (4, 4), (64, 4)],
)
def test_as_many_processes_start_at_once_as_there_are_cores(cores, most):
    found = set()
    for seed in range(10):
        stage, starting, at_once = Stage(cores=cores), 0, 0
        make_runner(stage, seed).take(0, [HOROVOD_2, MIRRORED_2, HOROVOD_1])
        for arm, what, _ in stage.log:
            starting += arm.processes * {"start": 1, "wait_ready": -1}.get(what, 0)
            at_once = max(at_once, starting)
        found.add(at_once)
        assert len(stage.of("start")) == 3
    assert max(found) == most


def test_arms_that_leave_a_core_idle_start_together():
    for seed in range(10):
        stage = Stage(cores=2)
        make_runner(stage, seed).take(0, [HOROVOD_2, MIRRORED_2, HOROVOD_1])
        steps = [(arm, what) for arm, what, _ in stage.log if what in ("start", "wait_ready")]
        both = [(MIRRORED_2, "start"), (HOROVOD_1, "start")]
        assert abs(steps.index(both[0]) - steps.index(both[1])) == 1


@pytest.mark.parametrize("work", WORKS.values())
def test_ranks_are_forked_unless_their_start_is_measured_and_leave_a_group_on_wall_time(
    stage, work
):
    launch = make_runner(stage, work=work).take(0, [HOROVOD_2]).of(HOROVOD_2)
    ((_, details),) = stage.of("start")
    assert details["forks"] is (work not in (Startup, WallTime))
    assert not stage.forks, "a server does not outlive its round"
    on_wall_time = work is WallTime
    assert isinstance(launch.work, StampedRun) is on_wall_time
    assert stage.of("close") == [(HOROVOD_2, {"leave_group": on_wall_time})]
    assert bool(stage.of("ablation")) is on_wall_time


def test_the_order_is_drawn_anew_every_round(stage):
    runner = make_runner(stage)
    orders = set()
    for number in range(12):
        stage.log.clear()
        runner.take(number, ARMS)
        orders.add(tuple(arm.label for arm, _ in stage.of("start")))
    assert len(orders) > 1


def test_kinds_of_blocks_are_shuffled_within_a_turn(stage):
    make_runner(stage, turns=20, kinds={HOROVOD_2: {FULL, LOCAL}}).take(0, [HOROVOD_2])
    blocks = [d["kind"] for _, d in stage.of("block") if d["steps"] > WARM_UP_STEPS]
    pairs = {tuple(blocks[i : i + 2]) for i in range(0, len(blocks), 2)}
    assert pairs == {("full", "local"), ("local", "full")}


def test_what_is_compared_is_measured_one_right_after_the_other(stage):
    pairs = [(Side(HOROVOD_2, LOCAL), Side(arm)) for arm in (HOROVOD_1, MIRRORED_2, SINGLE)]
    arms = (*ARMS, SINGLE)
    kinds = {arm: {FULL} for arm in arms} | {HOROVOD_2: {FULL, LOCAL}}
    measured = make_runner(stage, kinds=kinds, pairs=pairs, turns=2).take(0, arms)
    blocks = {launch.arm: launch.of_kind(FULL) for launch in measured.launches}
    hub = measured.of(HOROVOD_2)
    # Twice a turn, and once what is not compared.
    assert [block.turn for block in hub.of_kind(LOCAL)] == [0, 0, 1, 1]
    assert [block.turn for block in hub.of_kind(FULL)] == [0, 1]
    assert turns(measured)[SINGLE] == [0, 1]
    for arm in (HOROVOD_1, MIRRORED_2, SINGLE):
        for turn, block in enumerate(blocks[arm]):
            gaps = [abs(b.visit - block.visit) for b in hub.of_kind(LOCAL) if b.turn == turn]
            assert min(gaps) == 1
    # Five places, walked to and fro.
    first, second = ([b.visit for b in hub.of_kind(LOCAL) if b.turn == turn] for turn in (0, 1))
    assert sorted(9 - visit for visit in second) == first


@pytest.mark.parametrize(
    ("schedule", "order"),
    [
        (Schedule.ALTERNATE, ["start"] * 3 + ["close"] * 3),
        (Schedule.FRESH, ["start", "close"] * 3),
    ],
)
def test_arms_live_side_by_side_or_one_at_a_time(stage, schedule, order, monkeypatch):
    monkeypatch.setattr("hvdperf.work.blocks.time", stage)
    runner = make_runner(stage, schedule=schedule)
    measured = runner.take(0, ARMS)
    assert [what for _, what, _ in stage.log if what in ("start", "close")] == order
    shared = {details["share_startup"] for _, details in stage.of("start")}
    assert shared == {schedule is Schedule.ALTERNATE}
    assert launched(measured) == set(ARMS)
    # A turn is 30 steps of 0.01 s on each of three arms.
    assert runner.work.turn_seconds == pytest.approx(0.9)


# How long a block is ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step_seconds", "steps"),
    [
        # At least 0.3 s, and at least 10 steps.
        ({HOROVOD_1: 0.01, HOROVOD_2: 0.01}, 30),
        ({HOROVOD_1: 0.2, HOROVOD_2: 0.2}, 10),
        ({HOROVOD_1: 0.2, HOROVOD_2: 0.007}, 43),
    ],
)
def test_a_block_is_long_enough_on_the_fastest_arm_and_as_long_in_later_rounds(
    stage, step_seconds, steps
):
    stage.step_seconds = step_seconds
    runner = make_runner(stage)
    first = runner.take(0, [HOROVOD_1, HOROVOD_2])
    assert all(block.seconds >= 0.3 for block in chain(*blocks_of(first)))
    stage.step_seconds = {HOROVOD_1: 0.001}
    later = runner.take(1, [HOROVOD_1, HOROVOD_2])
    assert {block.steps for block in chain(*blocks_of(first), *blocks_of(later))} == {steps}
    seeds = [details["data_seed"] for _, details in stage.of("start")]
    assert seeds == [1, 1, 2, 2], "every round reads the data in another order"


@pytest.mark.parametrize(
    ("step_seconds", "blocks"),
    [([0.9, 0.5, 0.2, 0.1, 0.01], 6), ([2.0**-i for i in range(20)], WARM_UP_BLOCKS_MAX)],
)
def test_a_warm_up_ends_when_block_times_have_settled_or_never_do(stage, step_seconds, blocks):
    stage.warm_up_steps_of = step_seconds
    launch = make_runner(stage).take(0, [HOROVOD_1]).of(HOROVOD_1)
    assert (len(launch.warm_up), len(launch.blocks)) == (blocks, 3)


def test_each_kind_of_block_has_its_own_number_of_steps_and_a_share_of_the_warm_up(stage):
    runner = make_runner(stage, kinds={HOROVOD_1: {FULL}, HOROVOD_2: {FULL, LOCAL, SPLIT}})
    measured = runner.take(0, [HOROVOD_1, HOROVOD_2])
    of_two = {(HOROVOD_2, FULL): 30, (HOROVOD_2, LOCAL): 30, (HOROVOD_2, SPLIT): 60}
    assert runner.work.steps == {(HOROVOD_1, FULL): 30, **of_two}
    steps = {launch.arm: [b.steps for b in launch.warm_up] for launch in measured.launches}
    assert steps == {HOROVOD_1: [5] * 3, HOROVOD_2: [3] * 9}


@pytest.mark.parametrize(("step_seconds", "deadline_s"), [(0.2, 60), (2.0, 60), (3.0, 90)])
def test_a_launch_that_is_known_to_be_slow_does_not_hang(stage, step_seconds, deadline_s):
    stage.step_seconds = {HOROVOD_1: step_seconds}
    make_runner(stage, kinds={HOROVOD_1: {FULL, LOCAL}}).take(0, [HOROVOD_1])
    assert stage.deadlines[0] == ("block", 3, 60), "nothing is known yet"
    of_blocks = [wait for op, steps, wait in stage.deadlines if (op, steps) == ("block", 10)]
    assert of_blocks == [pytest.approx(deadline_s)] * 6


def test_what_a_run_tells_of_the_pace_counts_for_steps_that_are_taken_apart(stage):
    stage.run_seconds, stage.step_seconds = 900.0, {HOROVOD_2: 8.0}
    make_runner(stage, work=WallTime, runs=Runs(wall_time_steps=100)).take(0, [HOROVOD_2])
    first, *_ = [each for each in stage.deadlines if each[0] == "block"]
    assert first == ("block", int(LONGEST_BLOCK_S / 9), pytest.approx(3 * 3 * 9))


# Failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", list(Schedule))
@pytest.mark.parametrize(
    ("work", "what"),
    [
        *((Blocks, what) for what in ("wait_ready", "block", "evidence", "correctness", "close")),
        *((WallTime, what) for what in ("run", "ablation")),
    ],
)
def test_an_arm_that_fails_does_not_stop_the_others(stage, work, what, schedule):
    stage.raises[HOROVOD_2, what] = failure(HOROVOD_2)
    told: list[str] = []
    given = {"work": work, "schedule": schedule, "check": [HOROVOD_2]}
    runner = make_runner(stage, progress=told.append, **given)
    measured = runner.take(0, ARMS)
    assert list(runner.failures) == [HOROVOD_2]
    assert list(runner.correctness) == [HOROVOD_2] * (what == "close")
    assert len([text for text in told if "FAILED resnet_50_s horovod@2" in text]) == 1
    others = {arm: len(blocks) for arm, blocks in turns(measured).items() if arm != HOROVOD_2}
    assert others.keys() == {HOROVOD_1, MIRRORED_2}
    assert all(count >= 3 for count in others.values())
    assert stage.alive() == 0
    stage.log.clear()
    stage.raises.clear()
    assert launched(runner.take(1, ARMS)) == others.keys(), "it is never started again"


@pytest.mark.parametrize("gone", [None, SlotGone(1, "node2", "it is stopped")])
def test_an_arm_that_cannot_be_started_fails_unless_its_slot_is_gone(stage, gone):
    error = stage.raises[MIRRORED_2, "start"] = LaunchError("no such file: mpirun")
    error.__cause__ = gone
    runner = make_runner(stage)
    assert launched(runner.take(0, ARMS)) == {HOROVOD_1, HOROVOD_2}
    failed = runner.failures[MIRRORED_2]
    assert "no such file: mpirun" in str(failed)
    assert (failed.phase, failed.started) == ("launch", gone is None)


@pytest.mark.parametrize("what", ["start", "wait_ready", "block", "evidence"])
def test_nothing_is_left_running_after_ctrl_c(stage, what):
    stage.raises[MIRRORED_2, what] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        make_runner(stage).take(0, ARMS)
    assert stage.alive() == 0
    endings = [did for _, did, _ in stage.log if did in ("kill", "end")]
    assert endings == sorted(endings, reverse=True), "one waited for while others still ran"


@pytest.mark.parametrize(
    ("work", "length"),
    [
        (Epochs, {"steps": 390, "validate": True}),
        (Seconds, {"seconds": 7.0, "validate": False}),
        (Endurance, {"steps": 1200, "validate": False}),
        (Startup, None),
    ],
)
def test_a_run_is_as_long_as_its_work_says_and_a_start_up_has_none(stage, work, length):
    runs = Runs(epochs=10, seconds=7.0, endurance_steps=1200)
    launch = make_runner(stage, work=work, runs=runs).take(0, [HOROVOD_2]).of(HOROVOD_2)
    assert stage.of("run") == [(HOROVOD_2, length)] * bool(length)
    assert stage.of("block") == []
    assert [rank.steps for rank in launch.run] == [100, 100] * bool(length)
    assert launch.startup_seconds


def test_every_strategy_trains_as_many_updates_on_the_same_batches(stage):
    single = replace(HOROVOD_1, strategy=Strategy.SINGLE, passes=2)
    runner = make_runner(stage, work=Epochs, runs=Runs(epochs=10, steps_max=100))
    runner.kinds = {arm: {FULL} for arm in (HOROVOD_2, single)}
    runner.take(0, [HOROVOD_2, single])
    steps = {arm: details["steps"] for arm, details in stage.of("run")}
    assert steps == {HOROVOD_2: 100, single: 200}
    assert all(details["common_order"] for _, details in stage.of("start"))
    stage.log.clear()
    make_runner(stage, work=Seconds).take(0, [HOROVOD_2])
    assert not any(details["common_order"] for _, details in stage.of("start"))


def test_steps_are_taken_apart_in_turns_that_documents_may_have(stage):
    runner = make_runner(stage, work=WallTime, runs=Runs(ablation_turns=3))
    launch = runner.take(0, [HOROVOD_2]).of(HOROVOD_2)
    kinds = {FULL, BlockKind.LOCAL, BlockKind.COMPUTE}
    assert {(block.kind, block.turn) for block in launch.warm_up} == {(kind, 0) for kind in kinds}
    assert [block.turn for block in launch.blocks] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert all({b.kind for b in launch.blocks if b.turn == turn} == kinds for turn in range(3))
    assert all(details["wait"] for _, details in stage.of("block"))
    stage.log.clear()
    make_runner(stage).take(0, [HOROVOD_2])
    assert not any(details["wait"] for _, details in stage.of("block")), "what is timed is not"


def test_of_wall_time_a_marked_run_comes_first_and_then_its_parts(stage):
    runs = Runs(wall_time_steps=100, ablation_turns=1, deadline_s=500.0)
    runner = make_runner(stage, work=WallTime, runs=runs)
    measured = runner.take(0, [HOROVOD_1, HOROVOD_2])
    asked = {arm: sequence(stage, arm) for arm in (HOROVOD_1, HOROVOD_2)}
    ends = ["ablation", *["block"] * 6, "evidence", "close"]
    assert asked[HOROVOD_1] == asked[HOROVOD_2] == ["start", "wait_ready", "run", *ends]
    run = {"steps": 100, "validate": False, "with_timestamps": True}
    assert [details for _, details in stage.of("run")] == [run, run]
    assert {deadline_s for op, _, deadline_s in stage.deadlines if op == "run"} == {500.0}
    # The run takes 20 ms a step, and a block 0.3 s.
    assert {details["steps"] for _, details in stage.of("block")} == {15}
    # The end of a launch counts, too.
    assert [details["leave_group"] for _, details in stage.of("close")] == [True, True]
    alone, both = measured.of(HOROVOD_1), measured.of(HOROVOD_2)
    assert [len(alone.run), len(both.run)] == [1, 2]
    assert stamped(alone).timestamps is not None
    assert stamped(both).timestamps is not None
    assert both.startup_seconds


def test_every_round_of_runs_begins_with_other_weights(stage):
    runner = make_runner(stage, work=Epochs)
    for number in range(3):
        runner.take(number, [HOROVOD_1, HOROVOD_2])
    seeds = {arm: [d["seed"] for a, d in stage.of("start") if a == arm] for arm in ARMS[:2]}
    assert seeds[HOROVOD_1] == seeds[HOROVOD_2]
    assert len(set(seeds[HOROVOD_1])) == 3
    stage.log.clear()
    runner.seed = 1000
    runner.take(0, [HOROVOD_1])
    ((_, tomorrow),) = stage.of("start")
    assert tomorrow["seed"] not in seeds[HOROVOD_1]
    stage.log.clear()
    make_runner(stage).take(1, ARMS)
    assert {details["seed"] for _, details in stage.of("start")} == {SEED}, "blocks keep theirs"


# Collective operations -------------------------------------------------------------------------

SMALL, LARGE = Transfer(Collective.ALLREDUCE, (64,)), Transfer(Collective.BROADCAST, (4096,))


def exchanging(stage: Stage, *transfers: Transfer, **changes: Any) -> Runner:
    return make_runner(
        stage,
        work=Collectives,
        kinds={HOROVOD_2: set(), BARE_2: set()},
        transfers={HOROVOD_2: transfers, BARE_2: transfers},
        **changes,
    )


def test_each_size_goes_through_both_transports_back_to_back(stage):
    measured = exchanging(stage, SMALL, LARGE, turns=2).take(0, [HOROVOD_2, BARE_2])
    asked = stage.of("collective")[4:]  # past the warm-up
    collectives = [details["collective"] for _, details in asked]
    assert collectives[::2] == collectives[1::2]
    orders = [asked[i][0].strategy for i in range(0, len(asked), 2)]
    assert orders[0] == orders[1] != orders[2] == orders[3], "forwards, then backwards"
    for arm in (HOROVOD_2, BARE_2):
        of_arm = [(s.transfer, s.turn) for s in measured.of(arm).series]
        assert sorted(turn for _, turn in of_arm) == [0, 0, 1, 1]
        assert set(of_arm) == {(t, turn) for t in (SMALL, LARGE) for turn in (0, 1)}
    assert stage.of("block") == []


def test_what_the_warm_up_took_settles_how_often_it_is_repeated_and_it_is_checked_once(stage):
    runner = exchanging(stage, SMALL)
    runner.take(0, [HOROVOD_2, BARE_2])
    checks = [details["check"] for arm, details in stage.of("collective") if arm == BARE_2]
    assert checks == [False, True, False, False]
    stage.collective_seconds = 1e-6
    runner.take(1, [HOROVOD_2, BARE_2])
    repeats = [details["repeats"] for _, details in stage.of("collective")]
    warm_up, timed = [WARM_UP_REPEATS] * 2, [2] * 6
    assert repeats == [*warm_up, *timed, *warm_up, *timed]


def test_the_bare_transport_is_asked_for_all_gradients_in_one_buffer(stage):
    stage.gradient_bytes = {HOROVOD_2: 4321}
    exchanging(stage, Transfer(Collective.ALLREDUCE)).take(0, [HOROVOD_2, BARE_2])
    asked = {arm: details["tensor_bytes"] for arm, details in stage.of("collective")}
    assert asked == {HOROVOD_2: [], BARE_2: [4321]}


def test_blocks_are_taken_in_the_same_turns(stage):
    runner = exchanging(stage, SMALL)
    runner.kinds = {HOROVOD_2: {FULL, LOCAL}, BARE_2: set()}
    measured = runner.take(0, [HOROVOD_2, BARE_2])
    assert [b.turn for b in measured.of(HOROVOD_2).of_kind(LOCAL)] == [0, 1, 2]
    assert [s.turn for s in measured.of(BARE_2).series] == [0, 1, 2]
    assert measured.of(BARE_2).blocks == []


# What a launch brings --------------------------------------------------------------------------


def test_correctness_is_asked_once_of_each_arm_to_be_checked(stage):
    runner = make_runner(stage, check=[HOROVOD_2, MIRRORED_2])
    for number in range(3):
        runner.take(number, ARMS)
    asked = stage.of("correctness")
    assert sorted(arm.label for arm, _ in asked) == ["horovod@2", "mirrored@2"]
    assert {details["path"] for _, details in asked} == {
        "scratch/resnet_50_s-horovod@2.npz",
        "scratch/resnet_50_s-mirrored@2.npz",
    }
    # After a second step, deep networks differ without bounds by the order of a sum alone.
    assert [details["steps"] for _, details in asked] == [1, 1]
    assert runner.correctness[HOROVOD_2].round == 0
    assert runner.correctness[HOROVOD_2].correctness


def sequence(stage: Stage, arm: Arm) -> Sequence[str]:
    return [what for asked, what, _ in stage.log if asked == arm]


def test_slow_steps_have_later_deadlines_and_shorter_blocks(stage):
    slow = 20.0
    stage.pace = Pace(start_seconds=40.0, step_seconds=slow)
    stage.step_seconds = dict.fromkeys(ARMS, slow)
    (first, *_) = make_runner(stage, turns=1).take(0, [HOROVOD_1]).launches
    assert {block.steps for block in (*first.warm_up, *first.blocks)} == {1}
    assert min(wait for op, _, wait in stage.deadlines if op == "block") > slow
