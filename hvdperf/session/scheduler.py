"""Chooses the workload of each round, until every comparison has its verdict or time is up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import compress
from math import ceil, sqrt
from statistics import fmean, median
from typing import NamedTuple

from hvdperf.interim import EARLY_LOOKS, is_failing, looks_after, next_look
from hvdperf.judge.judge import Judge, is_outside
from hvdperf.judge.rules import Rules
from hvdperf.launch.arm_launcher import ArmLauncher
from hvdperf.machine.cpu_usage import CpuMeter
from hvdperf.machine.disturbance import Disturbance, together
from hvdperf.machine.noise_record import Load, MachineRecord, load_of
from hvdperf.plan.arms import Arm, BlockKind
from hvdperf.plan.comparisons import Comparison, JudgedAs, RoundGroup
from hvdperf.plan.options import MOST_ROUNDS, Profile
from hvdperf.plan.thresholds import Thresholds
from hvdperf.records.outcome import Failure, Outcome
from hvdperf.records.rounds import Round
from hvdperf.scatter import (
    RoundMoments,
    Row,
    launch_variance,
    round_moments,
    turn_correlation,
    turn_variance,
    turns_worth,
)
from hvdperf.verdict import UNKNOWN_LAUNCH_SD, Noise, Verdict, rounds_until_precise
from hvdperf.work.base import RoundRequest, RoundSettings
from hvdperf.work.blocks import Blocks
from hvdperf.work.live_launches import Progress
from hvdperf.work.round_runner import RoundRunner, read_weights
from hvdperf.work.table import WORKS, kinds_of, measures, observed, transfers_of, work_of


class Budget(NamedTuple):
    """Time for work. began: when it began, by the clock `now`. seconds: how long it lasts. now: a
    monotonic clock in seconds; one that stands still while the session is stopped (Hub.now) does
    not count that time."""

    began: float
    seconds: float
    now: Callable[[], float] = time.monotonic

    def left(self) -> float:
        """Return the seconds that are left; negative past the end."""
        return self.began + self.seconds - self.now()

    def allows(self, seconds: float) -> bool:
        """Return whether work of this many seconds from now on would end in time."""
        return seconds <= self.left()


# Turns of a round that is only shown, or whose verdict does not depend on more turns.
FEW_TURNS = 2


@dataclass(frozen=True)
class Doing:
    """The current activity of a session.

    where: the network, its round, and the round of the next look. what: the activity. next_look:
    expected time of the next look, by the duration of the last round; None before the end of the
    first round, and if nothing is judged. ends: when the session's time for rounds ends. Both times
    are by the monotonic clock, in seconds.
    """

    where: str
    what: str
    next_look: float | None
    ends: float


def starts_of(comparisons: Iterable[Comparison]) -> int:
    """Return how long a round of these comparisons takes, in starts of a process."""
    launches = {
        (arm, comparison.round_group) for comparison in comparisons for arm in comparison.arms
    }
    return sum(arm.processes + WORKS[work].starts for arm, (_, work, _) in launches)


class WorkloadRun:
    """The comparisons of one workload and one kind of work, judged from common rounds.

    comparisons: all of them. left: those that have not been handed to the scheduler's `decided`.
    rows: for each comparison with turns, one row a round that counts: the ln ratios of its turns.
    """

    def __init__(self, scheduler: Scheduler, comparisons: Sequence[Comparison]) -> None:
        self.comparisons = tuple(comparisons)
        self.left = list(comparisons)
        self.rows: dict[Comparison, list[Row]] = {}
        # A/A pairs that may differ, which only more rounds can tell.
        self._apart: set[Comparison] = set()
        # If precision is asked for, the rounds that each comparison is likely to need.
        self._needed: dict[Comparison, float] = {}
        self._scheduler, self._rules = scheduler, scheduler.rules
        workload, work = comparisons[0].workload, work_of(comparisons[0].question)
        self._work = work
        self._prefix = workload.model + ("" if work is Blocks else f" {work.name}")
        self._sampling = work.sampling(comparisons, scheduler.profile.sampling)
        self._rounds: list[Round] = []
        # For every round, whether other programs disturbed most of its comparisons.
        self._disturbed: list[bool] = []
        self._seconds, self._starts, self._turns_taken = 0.0, 1, 0
        self._round_began = time.monotonic()
        settings = RoundSettings(
            arm_launcher=scheduler.arm_launcher,
            sampling=scheduler.profile.sampling,
            order=random.Random(f"{scheduler.seed} {workload.name} {work.name}"),
            progress=self._say,
            doing=self._note,
            runs=scheduler.profile.runs,
            transfers=transfers_of(comparisons),
            meter=scheduler.meter,
        )
        self._runner = RoundRunner(
            work(settings),
            work.schedule(scheduler.profile),
            check=[
                arm
                for comparison in comparisons
                if comparison.tolerance is not None
                for arm in comparison.arms
            ],
            seed=scheduler.seed,
            last_phase=work.last_phase(comparisons),
        )
        runner = self._runner
        self._may_pass_early = self._sampling.early and any(
            work.takes_turns(comparison, runner.schedule) for comparison in comparisons
        )
        self._judge = Judge(
            self._rules,
            runner.failures,
            runner.correctness,
            lambda arm: read_weights(runner.weights(arm)),
            scheduler.noise,
            scheduler.record.of_sessions,
        )
        # Outcomes of the earlier parts of a resumed session, and the rounds that they rest on.
        self._earlier = {o.comparison: o for o in scheduler.earlier if o.comparison in self.left}
        known = scheduler.rounds.get(comparisons[0].round_group, {})
        self._next_number = max(known, default=-1) + 1
        of_earlier = {each.number for o in self._earlier.values() for each in o.rounds}
        for number in sorted(of_earlier):
            self._take_over(known[number])
        self._resumed_at = self.done

    def _take_over(self, measured: Round) -> None:
        """Add a round of an earlier part of the session."""
        self._rounds.append(measured)
        self._keep_rows([*self._earlier], measured)
        for launch in measured.launches:
            for block in launch.blocks:
                self._runner.work.steps.setdefault((launch.arm, block.kind), block.steps)

    # Queries of the scheduler ------------------------------------------------------------------

    @property
    def done(self) -> int:
        return len(self._rounds)

    @property
    def undecided(self) -> list[Comparison]:
        """Return the comparisons that need rounds. An A/A pair shares the rounds of other
        comparisons; without these it needs only the first few rounds, unless its sides may
        differ."""
        judged = [c for c in self.comparisons if self._precision or self._rules.judged(c)]
        asking = [c for c in judged if c.judged_as is not JudgedAs.AA_PAIR or c in self._apart]
        if not asking and self.done < EARLY_LOOKS[0]:
            asking = judged
        return [comparison for comparison in asking if comparison in self.left]

    @property
    def has_to_show(self) -> bool:
        """Return whether a case that is not judged has not been measured yet."""
        return any(not self._rules.judged(comparison) for comparison in self.left)

    @property
    def is_disturbed(self) -> bool:
        """Return whether other programs disturbed at least three rounds, and more than half of all.
        In a resumed session only the rounds since the resumption count."""
        since = self._disturbed[self._resumed_at :]
        return sum(since) >= EARLY_LOOKS[0] and 2 * sum(since) > len(since)

    @property
    def is_failing(self) -> bool:
        """Return whether all undecided comparisons with turns would FAIL already, if an early look
        could FAIL them."""
        known = [comparison for comparison in self.undecided if comparison in self.rows]
        return not self._precision and bool(known) and all(map(self._fails_early, known))

    @property
    def ends_in_time(self) -> bool:
        """Return whether another round would end in time. The duration of the first round
        is unknown, and taken as 0."""
        return self._scheduler.budget.allows(self._round_seconds())

    @property
    def seconds_to_look(self) -> float:
        """Return the seconds until the next look, if rounds take as long as the last one."""
        return (self._next_look() - self._count()) * self._round_seconds()

    @property
    def reaches_look(self) -> bool:
        return self._scheduler.budget.allows(self.seconds_to_look)

    def take_round(self) -> None:
        """Measure one more round of the undecided comparisons, or of those that are only shown, and
        judge."""
        wanted, turns = self._wanted(), self._turns()
        self._round_began = time.monotonic()
        arms = list(dict.fromkeys(arm for each in wanted for arm in each.arms))
        pairs = [each.sides for each in wanted]
        failed_before = set(self._runner.failures)
        measured = self._runner.run(
            RoundRequest(self._next_number, arms, self._kinds(wanted), pairs, turns)
        )
        for arm in self._runner.failures.keys() - failed_before:
            failure = self._runner.failures[arm]
            self._runner.failures[arm] = self._scheduler.examined(arm, failure)
        self._seconds = time.monotonic() - self._round_began
        self._turns_taken = turns
        self._starts = starts_of(wanted)
        self._scheduler.timed_seconds += sum(launch.timed_seconds for launch in measured.launches)
        self._rounds.append(measured)
        self._next_number += 1
        if measured.disturbance is not None:
            self._scheduler.disturbances.append(measured.disturbance)
        self._keep_rows(wanted, measured)
        self._look(wanted)

    def finish(self) -> None:
        """Decide the remaining comparisons from the rounds so far."""
        for comparison in list(self.left):
            self._decide(self._outcome(comparison, final=True))

    # The next round ----------------------------------------------------------------------------

    def _wanted(self) -> list[Comparison]:
        """Return the undecided comparisons, with the A/A pair if it costs little. If there are
        none, return those that are only shown."""
        undecided = self.undecided
        if not undecided:
            return [c for c in self.left if not self._rules.judged(c)]
        arms = {arm for comparison in undecided for arm in comparison.arms}
        companions = [
            comparison
            for comparison in self.left
            if comparison.judged_as is JudgedAs.AA_PAIR
            and comparison not in undecided
            and (self.done < EARLY_LOOKS[0] or comparison.reference.arm in arms)
        ]
        return undecided + companions

    def _kinds(self, wanted: Sequence[Comparison]) -> dict[Arm, set[BlockKind]]:
        """Return the kinds of blocks that a round of these comparisons takes. A FAIL of `--against`
        or of a fault case is attributed from the blocks of all its rounds, so the kinds stay the
        same in all of them."""
        attributed = [
            each
            for each in self.comparisons
            if each.judged_as is not JudgedAs.THRESHOLD and each not in wanted
        ]
        unseen = self._scheduler.arm_launcher.unseen
        return kinds_of(
            [*wanted, *attributed],
            lambda each: self._rules.judged(each) and each.workload.model not in unseen,
        )

    def _turns(self) -> int:
        """Return the number of turns of the next round: the profile's fewest in the first rounds,
        then the best number for the undecided comparisons that are not failing
        (hvdperf.scatter.turns_worth).

        If all comparisons are failing or only shown, FEW_TURNS are enough. But a failing comparison
        with another stack or an injected fault gets the profile's fewest, because its turns also
        serve the attribution."""
        sampling, undecided = self._sampling, self.undecided
        if not undecided:
            return min(FEW_TURNS, sampling.turns_min)
        rows = [self.rows[c] for c in undecided if c in self.rows and not self._fails_early(c)]
        turn_seconds = self._runner.work.turn_seconds
        if self.is_failing:
            attributed = any(each.judged_as is not JudgedAs.THRESHOLD for each in undecided)
            return sampling.turns_min if attributed else min(FEW_TURNS, sampling.turns_min)
        if self.done < EARLY_LOOKS[0] or not rows or turn_seconds <= 0:
            return sampling.turns_min
        apart = max(self._seconds - self._turns_taken * turn_seconds, 0.0)
        turn_sd = sqrt(median(map(turn_variance, rows)))
        noise = self._scheduler.noise(undecided[0])
        launch_sd = noise.launch_sd if noise is not None else UNKNOWN_LAUNCH_SD
        worth = turns_worth(turn_sd, launch_sd, apart, turn_seconds, sampling.turns_max)
        return max(sampling.turns_min, worth)

    def _fails_early(self, comparison: Comparison) -> bool:
        rule, noise = self._rules.rule(comparison), self._scheduler.noise(comparison)
        if rule is None or noise is None:
            return False
        return is_failing(self.rows[comparison], rule, noise)

    def _round_seconds(self) -> float:
        """Return the expected seconds of the next round, in proportion to the processes that it
        starts; 0 before the first round."""
        return self._seconds * starts_of(self._wanted()) / self._starts

    def _next_look(self) -> int:
        """Return the number of undisturbed rounds after which a comparison may be decided next. If
        all are failing, only a full look can decide."""
        if self._precision:
            # Before the first look an interval says little of how many rounds are needed.
            if self._count() < self._looks[0]:
                return self._looks[0]
            needed = min((self._needed.get(each, 0.0) for each in self.undecided), default=0.0)
            return max(self._count() + 1, ceil(min(needed, MOST_ROUNDS)))
        early = self._may_pass_early and not self.is_failing
        return next_look(self._count(), self._looks, early)

    def _count(self) -> int:
        """Return the largest number of rounds of an undecided comparison, without those that other
        programs disturbed."""
        return max(map(self._counted, self.undecided), default=self.done)

    def _counted(self, comparison: Comparison) -> int:
        """Return how many rounds the verdict on a comparison can rest on."""
        if comparison in self.rows:
            return len(self.rows[comparison])
        return sum(measures(comparison, each) for each in self._rounds)

    def _is_final(self, comparison: Comparison) -> bool:
        """Return whether the comparison is at its last look, or past it."""
        return not self._precision and self._counted(comparison) >= self._looks[-1]

    @property
    def _looks(self) -> tuple[int, ...]:
        return self._scheduler.profile.sampling.looks

    @property
    def _precision(self) -> float:
        return self._sampling.precision

    # Verdicts ----------------------------------------------------------------------------------

    def _keep_rows(self, wanted: Sequence[Comparison], measured: Round) -> None:
        disturbed = []
        for comparison in wanted:
            if self._work.takes_turns(comparison, measured.schedule):
                # The judge reports a side without a measurement or without a figure.
                with suppress(KeyError, ValueError, ZeroDivisionError):
                    row = observed(comparison, measured)
                    rows = self.rows.setdefault(comparison, [])
                    disturbed.append(not row)
                    rows += [row] if row else []
        self._disturbed.append(2 * sum(disturbed) > len(disturbed))

    def _look(self, wanted: Sequence[Comparison]) -> None:
        """Judge the comparisons of a round, and decide those that need no more rounds."""
        for comparison in wanted:
            outcome = self._outcome(comparison, final=self._ends(comparison))
            self._note_whether_apart(outcome)
            if self._precision:
                figure, rounds = outcome.judgement.figure, outcome.judgement.rounds
                self._needed[comparison] = rounds_until_precise(figure, rounds, self._precision)
            if self._settles(outcome):
                self._decide(outcome)
            else:
                self._scheduler.open_(outcome)
        if not self.undecided:
            for comparison in [c for c in self.left if c.judged_as is JudgedAs.AA_PAIR]:
                self._decide(self._outcome(comparison, final=True))

    def _ends(self, comparison: Comparison) -> bool:
        """Return whether a verdict is tried although it is not the time of a look: at the last one,
        and after every round that may be precise enough."""
        precise = self._precision and self._counted(comparison) >= self._looks[0]
        return bool(precise) or self._is_final(comparison)

    def _note_whether_apart(self, outcome: Outcome) -> None:
        """Let an A/A pair ask for rounds while its estimate lies outside its band, until the last
        look."""
        pair = outcome.comparison
        self._apart.discard(pair)
        if pair.judged_as is JudgedAs.AA_PAIR and not self._is_final(pair):
            self._apart |= {pair} if is_outside(outcome.judgement) else set()

    def _settles(self, outcome: Outcome) -> bool:
        """Return whether a case needs no more rounds.

        An INVALID case stays INVALID, and a fault that must make a launch INVALID has then had its
        effect. A valid A/A pair ends when no comparison asks for rounds."""
        if outcome.failure is not None or outcome.reported is Verdict.INVALID:
            return True
        if outcome.comparison.judged_as is JudgedAs.AA_PAIR:
            return False
        if self._precision:
            return self._ends(outcome.comparison) and not outcome.needs_rounds(self._precision)
        return not outcome.is_undecided or self._is_final(outcome.comparison)

    def _outcome(self, comparison: Comparison, final: bool) -> Outcome:
        if self.done == self._resumed_at and comparison in self._earlier:
            return self._earlier[comparison]
        outcome = self._judge.outcome(comparison, self._rounds, final)
        if outcome.judgement.verdict is not Verdict.INCONCLUSIVE:
            return outcome
        reason = self._reason_by_others(outcome.judgement.reason)
        return replace(outcome, judgement=replace(outcome.judgement, reason=reason))

    def _reason_by_others(self, reason: str) -> str:
        """Return why a case is undecided. reason: the judge's. Name other programs if they
        disturbed rounds."""
        # The disturbance of a round in an earlier part of the session is not known.
        since, disturbed = self._rounds[self._resumed_at :], self._disturbed[self._resumed_at :]
        count = sum(disturbed)
        if 2 * count > len(since):
            whole = together(each.disturbance for each in since)
            return whole.reason() if whole is not None else reason
        of_those = together(each.disturbance for each in compress(since, disturbed))
        if of_those is None:
            return reason
        return f"{reason}; {count} of {len(since)} rounds do not count: {of_those.reason()}"

    def _decide(self, outcome: Outcome) -> None:
        self.left.remove(outcome.comparison)
        self._scheduler.decided(outcome)

    # Progress ----------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        left = self._seconds_left()
        until = f", about {left:.0f} s to the next look" if left is not None else ""
        self._scheduler.progress(f"{self._where()}{until}: {text}")
        self._note(text)

    def _note(self, text: str) -> None:
        """Show an activity on the live line only."""
        left = self._seconds_left()
        next_look_at = None if left is None else self._round_began + left
        ends = time.monotonic() + self._scheduler.budget.left()
        self._scheduler.doing(Doing(self._where(), text, next_look_at, ends))

    def _where(self) -> str:
        if not self.undecided:
            return f"{self._prefix}  shown only"
        return f"{self._prefix}  round {self._count() + 1} of {self._next_look()}"

    def _seconds_left(self) -> float | None:
        """Return the seconds from the beginning of this round to the next look, if rounds take as
        long as the last one. Return None before the first round is over, and if nothing is
        judged."""
        return self.seconds_to_look if self._seconds and self.undecided else None


# Rounds of every workload before any workload gets more: the fewest that can decide a case.
BREADTH = EARLY_LOOKS[0]


@dataclass
class Scheduler:
    """Measures workloads side by side: first three rounds of each, then a round of the workload
    whose next look at an undecided case takes the fewest seconds. Cases that are only shown come
    last.

    progress: called with each line of progress. doing: called with each activity, also between two
    lines. decided: called with every final outcome. open_: called with the outcome so far of a case
    that a round left undecided. record: the noise record of this machine. earlier: outcomes of a
    resumed session's undecided cases. rounds: of a resumed session, by their numbers. examined:
    returns a failure with whose fault it is.
    """

    arm_launcher: ArmLauncher
    profile: Profile
    thresholds: Thresholds
    progress: Progress
    seed: int
    decided: Callable[[Outcome], None]
    record: MachineRecord
    budget: Budget
    open_: Callable[[Outcome], None] = lambda outcome: None
    doing: Callable[[Doing], None] = lambda doing: None
    earlier: Sequence[Outcome] = ()
    rounds: Mapping[RoundGroup, Mapping[int, Round]] = field(default_factory=dict)
    examined: Callable[[Arm, Failure], Failure] = lambda arm, failure: failure
    timed_seconds: float = 0.0
    meter: CpuMeter | None = None
    disturbances: list[Disturbance] = field(default_factory=list)
    _workloads: list[WorkloadRun] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Add further looks to a session that is resumed past its last look."""
        sampling = self.profile.sampling
        taken = max((len(outcome.rounds) for outcome in self.earlier), default=0)
        sampling = replace(sampling, looks=looks_after(taken, sampling.looks))
        self.profile = replace(self.profile, sampling=sampling)

    def measure(self, wanted: Comparison, selected: Iterable[Comparison]) -> None:
        """Take rounds until the comparison `wanted` has been handed to `decided`. Others that are
        decided meanwhile are handed over, too. selected: all comparisons that the budget is for,
        `wanted` included."""
        self._plan(selected)
        while any(wanted in workload.left for workload in self._workloads):
            workload = self._next()
            if workload is None:
                break
            workload.take_round()
        else:
            return
        for workload in self._workloads:
            workload.finish()

    def _plan(self, selected: Iterable[Comparison]) -> None:
        """Group new comparisons by the rounds that they share."""
        known = {c for workload in self._workloads for c in workload.comparisons}
        groups: dict[object, list[Comparison]] = {}
        for comparison in selected:
            if comparison not in known:
                groups.setdefault(comparison.round_group, []).append(comparison)
        self._workloads += [WorkloadRun(self, group) for group in groups.values()]

    def _next(self) -> WorkloadRun | None:
        """Return the workload that takes the next round. Return None if no round is wanted, if none
        would end in time, or if other programs disturb every undecided workload."""
        undecided = [workload for workload in self._workloads if workload.undecided]
        if undecided and all(workload.is_disturbed for workload in undecided):
            return None
        in_time = [workload for workload in undecided if workload.ends_in_time]
        first = [workload for workload in in_time if workload.done < BREADTH]
        if first:
            return first[0]
        if in_time:
            reaching = [workload for workload in in_time if workload.reaches_look]
            # A failing workload comes first, because its look is the surest to decide.
            return min(reaching or in_time, key=lambda w: (not w.is_failing, w.seconds_to_look))
        shown = [workload for workload in self._workloads if workload.has_to_show]
        return next((workload for workload in shown if workload.ends_in_time), None)

    # Queries of the workloads -----------------------------------------------------------------

    @property
    def rules(self) -> Rules:
        """Return the rules: the thresholds of the cases, and which cases are judged."""
        return Rules(self.profile, self.thresholds, self.arm_launcher.slots)

    def load(self, comparison: Comparison) -> Load:
        return load_of(comparison.world_size, self.arm_launcher.slots)

    def noise(self, comparison: Comparison) -> Noise | None:
        """Return the noise that early looks rest on; None if the profile has no early looks."""
        if not self.profile.sampling.early:
            return None
        rows = [found for workload in self._workloads for found in workload.rows.values()]
        return self.record.noise(self.load(comparison), turn_correlation(rows))

    def launch_variances(self) -> dict[Load, float]:
        """Return the variance between launches by load; {} if other programs disturbed the
        session."""
        if any(workload.is_disturbed for workload in self._workloads):
            return {}
        rows = (of_one for workload in self._workloads for of_one in workload.rows.items())
        return launch_variances((self.load(comparison), of_one) for comparison, of_one in rows)

    def round_moments(self) -> RoundMoments:
        """Return the moments of neighbouring rounds, which tell their correlation."""
        of_each = (round_moments([*workload.rows.values()]) for workload in self._workloads)
        return sum(of_each, RoundMoments())


def launch_variances(rows: Iterable[tuple[Load, Sequence[Row]]]) -> dict[Load, float]:
    """Return the variance between launches (of ln ratio) by load, a mean over comparisons. rows:
    the load and the rounds of each comparison; too few rounds do not count."""
    found: dict[Load, list[float]] = {}
    for load, of_one in rows:
        if len(of_one) >= BREADTH and any(len(row) > 1 for row in of_one):
            found.setdefault(load, []).append(launch_variance(of_one))
    return {load: fmean(values) for load, values in found.items()}
