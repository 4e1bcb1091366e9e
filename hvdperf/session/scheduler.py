"""Chooses the workload of each round, until every comparison has its verdict or time is up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from hvdperf.interim import EARLY_LOOKS, looks_after
from hvdperf.judge.rules import Rules
from hvdperf.launch.arm_launcher import ArmLauncher
from hvdperf.machine.cpu_usage import CpuMeter
from hvdperf.machine.disturbance import Disturbance
from hvdperf.machine.noise_record import Load, MachineRecord, load_of
from hvdperf.plan.arms import Arm
from hvdperf.plan.comparisons import Comparison, RoundGroup
from hvdperf.plan.profile import Profile
from hvdperf.plan.thresholds import Thresholds
from hvdperf.records.outcome import Failure, Outcome
from hvdperf.records.rounds import Round
from hvdperf.scatter import RoundMoments, Row, launch_variance, round_moments, turn_correlation
from hvdperf.session.budget import Budget
from hvdperf.session.workload_run import Doing, WorkloadRun
from hvdperf.verdict import Noise
from hvdperf.work.live_groups import Progress

# Rounds of every workload before any workload gets more: the fewest that can decide a case.
BREADTH = EARLY_LOOKS[0]


@dataclass
class Session:
    """Measures workloads side by side: first three rounds of each, then a round of the workload
    whose next look at an undecided case takes the fewest seconds. Cases that are only shown come
    last.

    progress: called with each line of progress. doing: called with each activity, also between two
    lines. decided: called with every final outcome. open_: called with the outcome so far of a case
    that a look left undecided. record: the noise record of this machine. earlier: outcomes of a
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
