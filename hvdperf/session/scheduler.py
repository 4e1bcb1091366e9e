"""Chooses the workload of each round, until every comparison has its verdict or time is up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import compress
from statistics import fmean

from hvdperf.interim import looks_after
from hvdperf.judge.judge import Judge, Rules
from hvdperf.judge.trust import is_outside
from hvdperf.launch.arm_launcher import ArmLauncher
from hvdperf.machine.disturbance import CpuMeter, Disturbance, together
from hvdperf.machine.noise_record import Load, MachineRecord, load_of
from hvdperf.plan.arms import Arm, BlockKind
from hvdperf.plan.comparisons import Comparison, JudgedAs, RoundGroup
from hvdperf.plan.profile import Profile
from hvdperf.plan.thresholds import Thresholds
from hvdperf.records.outcome import Failure, Outcome
from hvdperf.records.rounds import Round
from hvdperf.stats import RoundMoments, Row, launch_variance, round_moments, turn_correlation
from hvdperf.verdict import Noise, Rule, Verdict, rounds_until_precise
from hvdperf.work.base import Progress, RoundRequest, RoundSettings
from hvdperf.work.blocks import Blocks
from hvdperf.work.in_turn import BREADTH, Budget, Group, in_turn
from hvdperf.work.round_runner import RoundRunner, read_weights
from hvdperf.work.table import WORKS, kinds_of, transfers_of, work_of


def starts_of(comparisons: Iterable[Comparison]) -> int:
    """Return how long a round of these comparisons takes, in starts of a process."""
    launches = {
        (arm, comparison.round_group) for comparison in comparisons for arm in comparison.arms
    }
    return sum(arm.processes + WORKS[work].starts for arm, (_, work, _) in launches)


class WorkloadRun(Group[Comparison]):
    """The comparisons of one workload and one kind of work, judged from common rounds.

    left: those that have not been handed to the scheduler's `decided`.
    """

    def __init__(self, scheduler: Scheduler, comparisons: Sequence[Comparison]) -> None:
        work = work_of(comparisons[0].question)
        sampling = work.sampling(comparisons, scheduler.profile.sampling)
        super().__init__(comparisons, sampling, scheduler.budget)
        # A/A pairs that may differ, which only more rounds can tell.
        self._apart: set[Comparison] = set()
        self._scheduler, self._rules = scheduler, scheduler.rules
        self._work, workload = work, comparisons[0].workload
        self._prefix = workload.model + ("" if work is Blocks else f" {work.name}")
        self._rounds: list[Round] = []
        # For every round, whether other programs disturbed most of its comparisons.
        self._disturbed: list[bool] = []
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
        self._judge = Judge(
            self._rules,
            runner.failures,
            runner.correctness,
            lambda arm: read_weights(runner.weights(arm)),
            scheduler.noise,
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
        self.done += 1
        self.keep(self._rows([*self._earlier], measured))
        for launch in measured.launches:
            for block in launch.blocks:
                self._runner.work.steps.setdefault((launch.arm, block.kind), block.steps)

    # What in_turn asks --------------------------------------------------------------------------

    @property
    def undecided(self) -> list[Comparison]:
        """Return the comparisons that need rounds. An A/A pair shares the rounds of other
        comparisons; without these it needs only the first few rounds, unless its sides may
        differ."""
        judged = [c for c in self.cases if self.sampling.precision or self._rules.judged(c)]
        asking = [c for c in judged if c.judged_as is not JudgedAs.AA_PAIR or c in self._apart]
        if not asking and self.done < BREADTH:
            asking = judged
        return [comparison for comparison in asking if comparison in self.left]

    @property
    def shown(self) -> list[Comparison]:
        return [comparison for comparison in self.left if not self._rules.judged(comparison)]

    @property
    def is_disturbed(self) -> bool:
        """Return whether other programs disturbed at least three rounds, and more than half of all.
        In a resumed session only the rounds since the resumption count."""
        since = self._disturbed[self._resumed_at :]
        return sum(since) >= BREADTH and 2 * sum(since) > len(since)

    @property
    def may_pass_early(self) -> bool:
        schedule = self._runner.schedule
        return self.sampling.early and any(
            self._work.takes_turns(comparison, schedule) for comparison in self.cases
        )

    def companions(self, undecided: Sequence[Comparison]) -> list[Comparison]:
        """Return the A/A pair, if it costs little."""
        arms = {arm for comparison in undecided for arm in comparison.arms}
        return [
            comparison
            for comparison in self.left
            if comparison.judged_as is JudgedAs.AA_PAIR
            and comparison not in undecided
            and (self.done < BREADTH or comparison.reference.arm in arms)
        ]

    def rule(self, case: Comparison) -> Rule | None:
        return self._rules.rule(case)

    def noise(self, case: Comparison) -> Noise | None:
        return self._scheduler.noise(case)

    def cost(self, wanted: Sequence[Comparison]) -> float:
        return starts_of(wanted)

    def is_attributed(self, case: Comparison) -> bool:
        return case.judged_as is not JudgedAs.THRESHOLD

    def counted(self, case: Comparison) -> int:
        if case in self.rows:
            return len(self.rows[case])
        return sum(self._work.measures(case, each) for each in self._rounds)

    def measure(self, wanted: Sequence[Comparison], turns: int) -> dict[Comparison, Row]:
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
        self.turn_seconds = self._runner.work.turn_seconds
        self._scheduler.timed_seconds += sum(launch.timed_seconds for launch in measured.launches)
        self._rounds.append(measured)
        self._next_number += 1
        if measured.disturbance is not None:
            self._scheduler.disturbances.append(measured.disturbance)
        return self._rows(wanted, measured)

    def finish(self) -> None:
        """Decide the remaining comparisons from the rounds so far."""
        for comparison in list(self.left):
            self._decide(self._outcome(comparison, final=True))

    def _kinds(self, wanted: Sequence[Comparison]) -> dict[Arm, set[BlockKind]]:
        """Return the kinds of blocks that a round of these comparisons takes. A FAIL of `--against`
        or of a fault case is attributed from the blocks of all its rounds, so the kinds stay the
        same in all of them."""
        attributed = [
            each
            for each in self.cases
            if each.judged_as is not JudgedAs.THRESHOLD and each not in wanted
        ]
        unseen = self._scheduler.arm_launcher.unseen
        return kinds_of(
            [*wanted, *attributed],
            lambda each: self._rules.judged(each) and each.workload.model not in unseen,
        )

    # Verdicts ----------------------------------------------------------------------------------

    def _rows(self, wanted: Sequence[Comparison], measured: Round) -> dict[Comparison, Row]:
        rows: dict[Comparison, Row] = {}
        for comparison in wanted:
            if self._work.takes_turns(comparison, measured.schedule):
                # The judge reports a side without a measurement or without a figure.
                with suppress(KeyError, ValueError, ZeroDivisionError):
                    rows[comparison] = self._work.observe(comparison, measured)
        self._disturbed.append(2 * sum(not row for row in rows.values()) > len(rows))
        return rows

    def judge(self, wanted: Sequence[Comparison]) -> None:
        """Judge the comparisons of a round, and decide those that need no more rounds."""
        for comparison in wanted:
            outcome = self._outcome(comparison, final=self._ends(comparison))
            self._note_whether_apart(outcome)
            if self.sampling.precision:
                figure, rounds = outcome.judgement.figure, outcome.judgement.rounds
                precision = self.sampling.precision
                self.needed[comparison] = rounds_until_precise(figure, rounds, precision)
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
        sampling = self.sampling
        precise = sampling.precision and self.counted(comparison) >= sampling.looks[0]
        return bool(precise) or self.is_final(comparison)

    def _note_whether_apart(self, outcome: Outcome) -> None:
        """Let an A/A pair ask for rounds while its estimate lies outside its band, until the last
        look."""
        pair = outcome.comparison
        self._apart.discard(pair)
        if pair.judged_as is JudgedAs.AA_PAIR and not self.is_final(pair):
            self._apart |= {pair} if is_outside(outcome.judgement) else set()

    def _settles(self, outcome: Outcome) -> bool:
        """Return whether a case needs no more rounds.

        An INVALID case stays INVALID, and a fault that must make a launch INVALID has then had its
        effect. A valid A/A pair ends when no comparison asks for rounds."""
        if outcome.failure is not None or outcome.reported is Verdict.INVALID:
            return True
        if outcome.comparison.judged_as is JudgedAs.AA_PAIR:
            return False
        precision = self.sampling.precision
        if precision:
            return self._ends(outcome.comparison) and not outcome.needs_rounds(precision)
        return not outcome.is_undecided or self.is_final(outcome.comparison)

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
        self._scheduler.progress(self._told(text))

    def _note(self, text: str) -> None:
        self._scheduler.doing(self._told(text))

    def _told(self, text: str) -> str:
        """Return what goes on, with the network, its round, the round of the next look, and the
        seconds until then, if rounds take as long as the last one."""
        if not self.undecided:
            return f"{self._prefix}  shown only: {text}"
        where = f"{self._prefix}  round {self.count() + 1} of {self.next_look()}"
        until = f", about {self.seconds_to_look:.0f} s to the next look" if self.seconds else ""
        return f"{where}{until}: {text}"


@dataclass
class Scheduler:
    """Measures the workloads of a session in turn.

    progress: called with each line of progress. doing: called with each activity between two lines,
    as such a line. decided: called with every final outcome. open_: called with the outcome so far
    of a case that a round left undecided. record: the noise record of this machine. earlier:
    outcomes of a resumed session's undecided cases. rounds: of a resumed session, by their numbers.
    examined: returns a failure with whose fault it is.
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
    doing: Progress = lambda text: None
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
        in_turn(self._workloads, lambda: any(wanted in each.left for each in self._workloads))

    def _plan(self, selected: Iterable[Comparison]) -> None:
        """Group new comparisons by the rounds that they share."""
        known = {c for workload in self._workloads for c in workload.cases}
        groups: dict[object, list[Comparison]] = {}
        for comparison in selected:
            if comparison not in known:
                groups.setdefault(comparison.round_group, []).append(comparison)
        self._workloads += [WorkloadRun(self, group) for group in groups.values()]

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
