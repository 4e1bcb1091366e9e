"""Sessions with made-up rounds, on a made-up machine that follows a script."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from hvdperf.machine.disturbance import Disturbance
from hvdperf.machine.noise_record import Load, MachineRecord, Sessions
from hvdperf.machine.placement import Offer, place
from hvdperf.plan.arms import Arm, BlockKind, Schedule, Side
from hvdperf.plan.comparisons import Comparison, RoundGroup
from hvdperf.plan.profile import Profile, Sampling
from hvdperf.plan.questions import (
    at_gradient_sizes,
    communication,
    fault_cases,
    overlap,
    parity,
    strong_scaling,
    weak_scaling,
)
from hvdperf.plan.thresholds import Line, Thresholds
from hvdperf.records.outcome import Failure, Outcome
from hvdperf.records.rounds import Correctness, Launch, Round
from hvdperf.session.scheduler import Scheduler
from hvdperf.verdict import Band, Ceiling, Floor, Verdict
from hvdperf.work.base import RoundRequest, Work
from hvdperf.work.blocks import turns_of
from hvdperf.work.in_turn import Budget
from tests.support.rounds import HOROVOD_2, WORKLOAD, change_reports, exchanging_round, launch

WEAK, STRONG = weak_scaling(WORKLOAD, 2), strong_scaling(WORKLOAD, 2)
COMMUNICATION, PARITY = communication(WORKLOAD, 2), parity(WORKLOAD, 2)
OTHER = replace(WORKLOAD, model="vgg_16_s")
ALL = (WEAK, STRONG, COMMUNICATION, PARITY)

Speed = Callable[[Side, int], float]


def level(side: Side, number: int) -> float:
    """Return samples per second without any overhead, so that every figure is 1."""
    replicas = side.arm.world_size
    return 1000.0 * replicas


def noisy(ratio: float, spread: float) -> Speed:
    """Return speeds at which Horovod on two replicas has a ratio that varies by the spread."""
    offsets = (1.0, 1 + spread, 1 - spread, 1 + spread / 2, 1 - spread / 2, 1 + spread / 3)

    def speed(side: Side, number: int) -> float:
        own = ratio * offsets[number % len(offsets)] if side.arm == HOROVOD_2 else 1.0
        return level(side, number) * (own if side.kind is not BlockKind.LOCAL else 1.0)

    return speed


def restless(launched: Launch) -> None:
    """Make every other turn of two replicas a fifth longer."""
    if launched.arm == HOROVOD_2:
        change_reports(
            launched,
            lambda _, own: replace(own, seconds=1.2 * own.seconds),
            lambda block: block.turn % 2 == 1,
        )


def struck(arm: Arm, factor: float) -> Speed:
    """Return speeds at which that arm is faster than everything else by the factor."""
    return lambda side, number: level(side, number) * (factor if side.arm == arm else 1.0)


def exchanged(asked: Comparison, ratio: float, **other: Any) -> Callable[[Launch], None]:
    """Return a function that makes every launch exchange as in a round whose figure is `ratio`."""

    def spoil(launched: Launch) -> None:
        made = exchanging_round(asked, ratio).of(launched.arm)
        launched.work, launched.metadata = made.work, made.metadata
        if other and launched.arm == asked.reference.arm:
            ranks = [replace(rank, **other) for rank in launched.series[0].ranks]
            turns_of(launched).series[0] = replace(launched.series[0], ranks=ranks)

    return spoil


@dataclass
class Script:
    """The behaviour of the made-up machine. Seconds pass only while a round is measured."""

    scratch: Path
    speed: Speed = level
    round_seconds: float = 10.0
    start_seconds: float = 0.0
    turn_seconds: float = 1.0
    failing: dict[Arm, int] = field(default_factory=dict)
    started: bool = True
    spoil: Callable[[Launch], None] = lambda launched: None
    disturbances: dict[int, Disturbance] = field(default_factory=dict)
    trained: dict[Arm, list[float]] = field(default_factory=dict)
    digests: dict[Arm, list[str]] = field(default_factory=dict)
    irreproducible: dict[Arm, str] = field(default_factory=dict)
    clock: float = 0.0
    launched: list[list[Arm]] = field(default_factory=list)
    schedules: set[Schedule] = field(default_factory=set)
    turns: list[int] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.clock


class MadeUpRunner:
    """A stand-in for hvdperf.work.round_runner.RoundRunner."""

    def __init__(
        self, script: Script, work: Work, schedule: Schedule, check: Sequence[Arm], **arguments: Any
    ) -> None:
        self._script, self.work, self.schedule, self.check = script, work, schedule, check
        script.schedules.add(self.schedule)
        self.failures: dict[Arm, Failure] = {}
        self.correctness: dict[Arm, Launch] = {}
        self.turns = 0
        self.kinds: Mapping[Arm, Collection[BlockKind]] = {}
        self._say, self._note = work.settings.progress, work.settings.doing

    def run(self, request: RoundRequest) -> Round:
        script, number = self._script, request.number
        self.turns, self.kinds = request.turns, request.kinds
        self._say("start")
        self._note("turn 1 of 3")
        living = [arm for arm in request.arms if arm not in self.failures]
        script.launched.append(living)
        script.turns.append(self.turns)
        script.clock += script.round_seconds + self.turns * script.turn_seconds
        script.clock += script.start_seconds * sum(arm.processes for arm in living)
        self.work.turn_seconds = script.turn_seconds
        launches = [self._launch(arm, number) for arm in living]
        return Round(number, self.schedule, launches, script.disturbances.get(number))

    def _launch(self, arm: Arm, number: int) -> Launch:
        script = self._script
        if script.failing.get(arm) == number:
            self.failures[arm] = Failure(
                arm.name, 1, "block", "it broke", ["last words"], script.started
            )
            broken: Launch = launch(arm, {}, number)
            return broken
        speeds = {kind: script.speed(Side(arm, kind), number) for kind in self.kinds[arm]}
        launched: Launch = launch(arm, speeds, number, turns=self.turns)
        if arm in self.check and arm not in self.correctness:
            digests = script.digests.get(arm, ["c0de"] * arm.world_size)
            why = script.irreproducible.get(arm, "")
            launched.correctness = [
                Correctness(0.5, [digest], irreproducible=why) for digest in digests
            ]
            np.savez(self.weights(arm), a0=np.array(script.trained.get(arm, [1.0, 2.0])))
            self.correctness[arm] = launched
        script.spoil(launched)
        return launched

    def weights(self, arm: Arm) -> Path:
        return self._script.scratch / f"{arm.label}.npz"


LINES = (
    Line(("*_scaling", "*", "*", "*"), Floor.at(0.9)),
    Line(("communication", "*", "*", "*"), Floor.at(0.5)),
    Line(("parity", "*", "*", "*"), Band(0.9, 1.1)),
)
ENOUGH = 1e6
# The looks of a profile that names none.
FIRST_LOOK, SECOND_LOOK, LAST_LOOK = Sampling().looks
CEILINGS = (
    Line(("collective_overhead", "*", "*", "*"), Ceiling(5.0, unit="")),
    Line(("overlap", "*", "*", "*"), Ceiling(1.5, unit="")),
)
GRADIENTS_OF, BOUND = at_gradient_sizes(WORKLOAD, 2), overlap(WORKLOAD, 2)
FAULT_CASES = {each.variant: each for each in fault_cases(WORKLOAD, 2)}


@dataclass
class Stage:
    """A stage on which the made-up machine measures comparisons."""

    script: Script
    cores: int = 2
    slots: int = 2
    gpus: tuple[str, ...] = ()
    budget_s: float = ENOUGH
    sampling: Sampling = field(default_factory=lambda: Sampling(early=False, turns_min=3))
    schedule: Schedule = Schedule.ALTERNATE
    lines: tuple[Line, ...] = LINES
    later: tuple[Comparison, ...] = ()
    oversubscribed: tuple[str, ...] = ()
    said: list[str] = field(default_factory=list)
    noted: list[str] = field(default_factory=list)
    # The variance between launches in each earlier session of the made-up machine.
    launch_variances: tuple[float, ...] = ()
    opened: list[Outcome] = field(default_factory=list)
    earlier: tuple[Outcome, ...] = ()
    decided_earlier: tuple[Outcome, ...] = ()
    session: Scheduler = field(init=False)

    def measure(self, *comparisons: Comparison) -> dict[Comparison, Outcome]:
        cores = tuple(range(self.cores))
        offers = [Offer(rank, "host", cores, self.gpus) for rank in range(self.slots)]
        arm_launcher: Any = SimpleNamespace(
            unseen=(), slots=place(offers), scratch=self.script.scratch
        )
        kept: dict[Comparison, Outcome] = {}
        rounds: dict[RoundGroup, dict[int, Round]] = {}
        for outcome in (*self.earlier, *self.decided_earlier):
            known = rounds.setdefault(outcome.comparison.round_group, {})
            known |= {each.number: each for each in outcome.rounds}
        self.session = Scheduler(
            arm_launcher=arm_launcher,
            profile=Profile(
                "made-up",
                (WORKLOAD.model, OTHER.model),
                WORKLOAD.dataset,
                batch=32,
                budget_s=self.budget_s,
                sampling=self.sampling,
                schedule=self.schedule,
                oversubscribed=self.oversubscribed,
            ),
            thresholds=Thresholds("made up", Path("cpu-made-up.toml"), self.lines),
            progress=self.said.append,
            doing=self.noted.append,
            seed=1,
            decided=lambda outcome: kept.update({outcome.comparison: outcome}),
            open_=self.opened.append,
            earlier=self.earlier,
            rounds=rounds,
            record=MachineRecord(
                Path("made-up.json"),
                Sessions(
                    {
                        f"session {i}": dict.fromkeys(Load, variance)
                        for i, variance in enumerate(self.launch_variances)
                    }
                ),
            ),
            budget=Budget(self.script.clock, self.budget_s, self.script.monotonic),
        )
        for comparison in comparisons:
            if comparison not in kept:
                self.session.measure(comparison, dict.fromkeys([*comparisons, *self.later]))
        assert set(kept) >= set(comparisons), "every case is decided in the end"
        return {comparison: kept[comparison] for comparison in comparisons}


def verdicts(outcomes: dict[Comparison, Outcome]) -> dict[Comparison, Verdict]:
    return {comparison: outcome.judgement.verdict for comparison, outcome in outcomes.items()}
