"""Work: what the launches of a round do once they have started, and what its figures are.

One class for each kind of work, which the rows of questions name (hvdperf/plan/comparisons.py).
Instances have groups do the work; class methods are plain arithmetic on what was reported.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import ClassVar

from hvdperf.launch.arm_launcher import PATIENCE, ArmLauncher
from hvdperf.launch.live_launch import LaunchFailed, LiveLaunch
from hvdperf.machine.disturbance import CpuMeter
from hvdperf.plan.arms import Arm, BlockKind, Schedule, Side, Transfer
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.profile import Profile, Runs, Sampling
from hvdperf.records.outcome import Attribution, Failure, ScalingBreakdown
from hvdperf.records.rounds import Block, BlockReport, Launch, Pair, Round
from hvdperf.verdict import Judgement, Rule
from hvdperf.work.evidence import problems_of_launch
from hvdperf.worker.protocol import Phase

# The launches of candidate and reference, one pair a round, and the host of each of the candidate's
# ranks, () if they are not known.
Pairs = Sequence[Pair]
Hosts = Sequence[str]

Progress = Callable[[str], None]
Act = Callable[[LiveLaunch, Launch], None]

# A block of slow steps has fewer of them than the profile says, but not less than one, so that it
# does not take longer than this, in seconds.
LONGEST_BLOCK_S = 30.0
# Times that a block is taken again because something was stopped meanwhile.
TAKEN_AGAIN = 3


@dataclass
class LiveLaunches:
    """The groups that live side by side. If one fails, the others go on without it.

    result: the round whose launches they are. failures: takes the arms that fail. progress: is
    called with a line for each of them.
    """

    result: Round
    failures: dict[Arm, Failure]
    progress: Progress
    groups: dict[Arm, LiveLaunch] = field(default_factory=dict)

    def run(self, arm: Arm, act: Act) -> None:
        """Resume the arm's group for act(), then stop it again, because an idle group burns CPU
        time that the others need. Do nothing if the arm has failed."""

        def awake(group: LiveLaunch) -> None:
            group.resume()
            act(group, self.result.of(arm))
            group.pause()

        self.guard(arm, awake)

    def run_each(self, act: Act) -> None:
        """Resume one group after the other for act()."""
        for arm in list(self.groups):
            self.run(arm, act)

    def guard(self, arm: Arm, act: Callable[[LiveLaunch], None]) -> None:
        """Call act() with the arm's group. If the group fails, end it. Do nothing if the arm has
        failed."""
        if arm not in self.groups:
            return
        try:
            act(self.groups[arm])
        except LaunchFailed as failed:
            group = self.groups.pop(arm)
            if group.was_stopped:
                # Its next launch may do better: it is missing in this round only.
                self.progress(f"left out of this round, as the session was stopped: {failed}")
                launches = self.result.launches
                launches[:] = [launch for launch in launches if launch.arm != arm]
            else:
                self.fail(arm, failed.failure)
            group.end()

    def fail(self, arm: Arm, failure: Failure) -> None:
        """Note that the arm has failed."""
        self.failures[arm] = failure
        self.progress(f"FAILED {failure}")

    def end(self) -> None:
        """End all groups at once: after Ctrl-C mpirun gives the whole session one second."""
        for group in self.groups.values():
            group.kill()
        for group in self.groups.values():
            group.end()


@dataclass(frozen=True)
class RoundRequest:
    """The plan of one round.

    number: the round's, from 0. arms: to launch. kinds: kinds of blocks wanted of each arm. pairs:
    the compared sides, which are timed one right after the other. turns: number of turns of the
    round.
    """

    number: int
    arms: Sequence[Arm]
    kinds: Mapping[Arm, Collection[BlockKind]]
    pairs: Sequence[tuple[Side, Side]]
    turns: int


@dataclass(frozen=True)
class RoundSettings:
    """The settings that all rounds of a workload have in common.

    order: draws every random order. progress: called with a line for each event. doing: called with
    each activity between two lines. runs: lengths of training runs. transfers: the exchanges of
    each arm in a turn, after its blocks. meter: reads the CPU usage of blocks; None if the kernel
    does not report it.
    """

    arm_launcher: ArmLauncher
    sampling: Sampling
    order: random.Random
    progress: Progress
    doing: Progress = lambda text: None
    runs: Runs = field(default_factory=Runs)
    transfers: Mapping[Arm, Sequence[Transfer]] = field(default_factory=dict)
    meter: CpuMeter | None = None


@dataclass
class Work(ABC):
    """A kind of work.

    name: in the rows of questions and in documents. depends_on: settings of a session (`asked` of
    its document) that change the meaning of figures. starts: how long it takes, in starts of a
    process. forks: whether ranks may be forked, which is quick but unlike a user's start, so a
    measured start is not forked.
    draws_seeds: whether every session draws other initial weights, because the figure depends on
    them; the speed of a block does not. validates: whether training ends with a validation, for
    which every strategy trains on the same batches. steps: steps of a block, by arm
    and kind. turn_seconds: mean seconds of a turn of all arms in the last round.
    """

    name: ClassVar[str]
    depends_on: ClassVar[tuple[str, ...]] = ()
    starts: ClassVar[int] = 0
    forks: ClassVar[bool] = True
    draws_seeds: ClassVar[bool] = False
    validates: ClassVar[bool] = False

    settings: RoundSettings
    steps: dict[tuple[Arm, BlockKind], int] = field(default_factory=dict)
    turn_seconds: float = 0.0

    # What a round of these comparisons must contain, so that all of them can be judged ----------

    @classmethod
    def schedule(cls, profile: Profile) -> Schedule:
        """Return the order of arms: one after the other, unless arms take turns."""
        return Schedule.FRESH

    @classmethod
    def sampling(cls, comparisons: Sequence[Comparison], sampling: Sampling) -> Sampling:
        """Return the sampling. sampling: the profile's."""
        return sampling

    @classmethod
    def last_phase(cls, comparisons: Sequence[Comparison]) -> Phase:
        """Return the phase with which a start-up ends."""
        return Phase.BROADCAST

    @classmethod
    def kinds(cls, comparison: Comparison, judged: bool) -> dict[Arm, set[BlockKind]]:
        """Return the kinds of blocks wanted of each arm. judged: whether the comparison is compared
        with a threshold."""
        return {arm: {BlockKind.FULL} for arm in comparison.arms}

    @classmethod
    def transfers(cls, comparison: Comparison) -> list[Transfer]:
        """Return what both arms exchange in a turn, besides its blocks."""
        return []

    # Running -----------------------------------------------------------------------------------

    @abstractmethod
    def measure(self, live: LiveLaunches, request: RoundRequest) -> None:
        """Have the groups do their work, and add their reports to their launches."""

    # Figures -----------------------------------------------------------------------------------

    @classmethod
    def measures(cls, comparison: Comparison, measured: Round) -> bool:
        """Return whether the round measures that comparison."""
        return all(map(measured.has, comparison.arms))

    @classmethod
    def takes_turns(cls, comparison: Comparison, schedule: Schedule) -> bool:
        """Return whether a round has an observation a turn, of both sides one right after the
        other."""
        return False

    @classmethod
    @abstractmethod
    def observe(cls, comparison: Comparison, measured: Round) -> list[float]:
        """Return the observations of a round, each ln of the figure: one a turn if the arms took
        turns, else one. Turns that other programs disturbed are left out; if too few are left,
        return []. Raises KeyError if a side was not measured in that round, ValueError or
        ZeroDivisionError if it has no figure."""

    @classmethod
    def observe_all(cls, comparison: Comparison, measured: Round) -> list[float]:
        """Return the observations of a round with those that other programs disturbed."""
        return cls.observe(comparison, measured)

    @classmethod
    def problems(cls, launch: Launch) -> list[str]:
        """Return why a launch is no evidence, one text each; [] if it is sound."""
        return problems_of_launch(launch)

    @classmethod
    def problems_of_rounds(
        cls, comparison: Comparison, rounds: Sequence[Round], judged: bool, at_look: bool
    ) -> list[str]:
        """Return why sound launches cannot be compared, one text each. judged: as in `kinds`.
        at_look: whether figures count, too: only full looks may doubt them, because a test that is
        repeated errs more often."""
        return []

    @classmethod
    def too_short(cls, comparison: Comparison, rounds: Sequence[Round], rule: Rule) -> str:
        """Return why the runs are too short to be judged by the rule; "" if they are not."""
        return ""

    @classmethod
    def explained(
        cls, judgement: Judgement, comparison: Comparison, rounds: Sequence[Round]
    ) -> Judgement:
        """Return the judgement on the figure with what the rounds say besides."""
        return judgement

    @classmethod
    def breakdown(cls, comparison: Comparison, rounds: Sequence[Round]) -> ScalingBreakdown | None:
        """Return the breakdown of the wall time, if it was measured."""
        return None

    @classmethod
    def cause(cls, comparison: Comparison, pairs: Pairs, hosts: Hosts) -> Attribution | None:
        """Return the terms and ranks that make the candidate slower than the reference, or than the
        reference's share of ideal scaling; None if no cause can be told."""
        return None

    @classmethod
    @abstractmethod
    def durations(cls, comparison: Comparison, launch: Launch) -> list[float]:
        """Return the seconds that a launch of the candidate was timed, for pytest-benchmark; [] if
        it ended before."""

    # Timing blocks -----------------------------------------------------------------------------

    def take_block(
        self,
        group: LiveLaunch,
        launch: Launch,
        kind: BlockKind,
        turn: int,
        steps: int,
        wait: bool = False,
    ) -> Block:
        """Return a block that the group has timed. A block during which this session or a rank was
        stopped is taken again. wait: whether each step is waited for."""
        deadline_s = self.deadline_s(launch, kind, steps)
        asked = {"kind": kind.value, "steps": steps, "wait": wait}
        for _ in range(TAKEN_AGAIN + 1):
            before = group.stops
            ranks = group.reports(
                BlockReport, "block", deadline_s, limit="block_deadline_s", **asked
            )
            stopped = [str(number) for number, rank in enumerate(ranks) if rank.resumed]
            if group.stops == before and not stopped:
                break
            whose = f"rank {', '.join(stopped)}" if stopped else "this session"
            self.settings.progress(
                f"{whose} was stopped for a while: the block of {launch.arm.label} is taken again"
            )
        return Block(kind, turn, steps, ranks)

    def deadline_s(self, launch: Launch, kind: BlockKind, steps: int) -> float:
        """Return the deadline of that many steps, in seconds. A launch whose known pace is slow
        gets a later one."""
        known = [b.seconds / b.steps for b in (*launch.warm_up, *launch.blocks) if b.kind is kind]
        known = known or [rank.seconds / rank.steps for rank in launch.run]
        pace = median(known) if known else self.known_pace(launch.arm)
        return max(self.settings.sampling.block_deadline_s, PATIENCE * pace * steps)

    def steps_of_a_block(self, step_seconds: float) -> int:
        """Return how many steps a block must have at this pace."""
        sampling = self.settings.sampling
        wanted = math.ceil(sampling.min_block_seconds / step_seconds)
        return affordable(max(sampling.min_block_steps, wanted), step_seconds)

    def known_pace(self, arm: Arm) -> float:
        """Return the seconds of a step of the arm's network when it was tried; 0 if it was not."""
        return self.settings.arm_launcher.pace(arm).step_seconds


def affordable(steps: int, step_seconds: float) -> int:
    """Return as many of the steps as end within LONGEST_BLOCK_S, but at least one."""
    if steps * step_seconds <= LONGEST_BLOCK_S:
        return steps
    return max(1, int(LONGEST_BLOCK_S / step_seconds))
