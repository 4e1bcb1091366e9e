"""Rounds of arms until every comparison of a workload has its verdict, or time is up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median_high

from harness.collectives import Collective
from harness.cpu_usage import CpuMeter
from harness.disturbance import Disturbance
from harness.judging import Judging
from harness.measurement import Round, turn_ratios
from harness.needs import kinds_of, last_phase, sampling_of, schedule_of, transfers_of
from harness.outcome import Outcome
from harness.plan import SWEEP, Comparison, Profile, Schedule, Work
from harness.rounds import Progress, Runner
from harness.rules import Rules
from harness.starter import Starter
from harness.thresholds import Thresholds
from harness.transport_tools.figures import ToolRun
from harness.trials import trial_of
from harness.turns import most_turns
from harness.verdict import FEWEST_ROUNDS, Verdict

# About as many starts of a process as a training run is long.
STARTS_OF_A_RUN = 3


@dataclass(frozen=True)
class Doing:
    """What a session is at. where: which network, and which round of how many until verdicts are
    tried. next_look: when that will be, by the monotonic clock, as far as the rounds before tell;
    None where there was none. budget_ends: after which no round is begun."""

    where: str
    what: str
    next_look: float | None
    budget_ends: float


@dataclass
class Session:
    """Measures workloads one after the other and keeps what came out.

    progress is told what is going on, a line at a time; doing, the same and what passes between
    two lines; decided, every outcome the moment that it is known. tools: times an operation on so
    many slots by whatever other tools are installed (harness.tool_runner).
    """

    starter: Starter
    profile: Profile
    thresholds: Thresholds
    progress: Progress
    seed: int
    decided: Callable[[Outcome], None]
    doing: Callable[[Doing], None] = lambda doing: None
    tools: Callable[[Collective, int], Sequence[ToolRun]] | None = None
    began: float = field(default_factory=time.monotonic)
    timed_seconds: float = 0.0
    meter: CpuMeter | None = None
    disturbances: list[Disturbance] = field(default_factory=list)

    def measure(self, comparisons: Sequence[Comparison], later: Sequence[Comparison] = ()) -> None:
        """Judge all comparisons of one workload and one kind of work from common rounds, and hand
        each outcome to `decided`.

        later: those of other workloads, to be measured from the same budget after these.
        """
        tools = {comparison: self._other_tools(comparison) for comparison in comparisons}
        share_s = self._share_s(comparisons, later)
        _Work(self, comparisons, tools, share_s, is_last=not later).run()

    def _other_tools(self, comparison: Comparison) -> tuple[ToolRun, ...]:
        """What they find of a sweep's operation, before its rounds, which take what is left of the
        budget. Shown, and never judged."""
        in_time = time.monotonic() < self.budget_ends
        if self.tools is None or comparison.workload != SWEEP or not in_time:
            return ()
        collective = comparison.collective or Collective.ALLREDUCE
        return tuple(self.tools(collective, comparison.world_size))

    def _share_s(self, comparisons: Sequence[Comparison], later: Sequence[Comparison]) -> float:
        """What is left of the budget is shared by how long a round of each workload takes."""
        left = self.budget_ends - time.monotonic()
        own = self._starts_of_a_round(comparisons)
        return max(left, 0.0) * own / (own + self._starts_of_a_round(later))

    def _starts_of_a_round(self, comparisons: Sequence[Comparison]) -> int:
        """Past the first round, in which also what is only shown is launched."""
        rules = self.rules
        judged = [comparison for comparison in comparisons if rules.judged(comparison)]
        return starts_of(judged or comparisons)

    @property
    def budget_ends(self) -> float:
        """By the monotonic clock."""
        return self.began + self.profile.budget_s

    @property
    def rules(self) -> Rules:
        """What the cases are held against."""
        return Rules(self.profile, self.thresholds, self.starter.slots)


def starts_of(comparisons: Iterable[Comparison]) -> int:
    """How long a round of these takes, in starts of a process."""
    launches = {(arm, comparison.rounds) for comparison in comparisons for arm in comparison.arms}
    return sum(arm.processes + STARTS_OF_A_RUN * work.is_run for arm, (_, work, _) in launches)


class _Work:
    """The rounds of one workload, and what has been decided so far."""

    def __init__(
        self,
        session: Session,
        comparisons: Sequence[Comparison],
        tools: Mapping[Comparison, tuple[ToolRun, ...]],
        share_s: float,
        is_last: bool,
    ) -> None:
        self._session = session
        self._comparisons = comparisons
        self._tools = tools
        self._is_last = is_last
        self._deadline = time.monotonic() + share_s
        # A workload whose starts take longer than others' may have as much again of what is theirs.
        self._overtime_ends = min(self._deadline + share_s, session.budget_ends)
        self._sampling = sampling_of(comparisons, session.profile.sampling)
        self._rounds: list[Round] = []
        self._decided: set[Comparison] = set()
        self._seconds_of_round: list[float] = []
        self._starts_of_round: list[int] = []
        self._round_began = time.monotonic()
        self._rules = session.rules
        workload, work = comparisons[0].workload, comparisons[0].question.work
        self._prefix = workload.model + ("" if work is Work.BLOCKS else f" {work.value}")
        self._runner = Runner(
            starter=session.starter,
            sampling=session.profile.sampling,
            schedule=schedule_of(work, session.profile),
            work=work,
            seed=session.seed,
            last_phase=last_phase(comparisons),
            runs=session.profile.runs,
            kinds=kinds_of(comparisons, self._rules.judged),
            transfers=transfers_of(comparisons),
            check=[
                arm
                for comparison in comparisons
                if comparison.tolerance is not None
                for arm in comparison.arms
            ],
            weights_directory=session.starter.scratch,
            meter=session.meter,
            progress=self._say,
            doing=self._note,
            order=random.Random(f"{session.seed} {workload.name} {work.value}"),
        )
        runner = self._runner
        self._judging = Judging(self._rules, runner.failures, runner.correctness, runner.weights)

    def run(self) -> None:
        looks = self._session.profile.sampling.looks
        for number in range(looks[-1]):
            wanted = self._wanted(number)
            if not wanted or (number > 0 and not self._time_for_another(wanted)):
                break
            arms = list(dict.fromkeys(arm for each in wanted for arm in each.arms))
            self._runner.pairs = [each.sides for each in wanted]
            self._runner.turns = self._turns(number, wanted)
            self._round_began = time.monotonic()
            measured = self._runner.run(number, arms)
            self._seconds_of_round.append(time.monotonic() - self._round_began)
            self._starts_of_round.append(starts_of(wanted))
            self._session.timed_seconds += sum(
                launch.timed_seconds for launch in measured.launches.values()
            )
            self._rounds.append(measured)
            if measured.disturbance is not None:
                self._session.disturbances.append(measured.disturbance)
            self._look(final=False, at_look=number + 1 in looks)
        self._look(final=True, at_look=True)

    # What is measured, and whether there is time --------------------------------------------

    def _wanted(self, number: int) -> list[Comparison]:
        """Those without a verdict. What is only shown is launched once."""
        return [
            comparison
            for comparison in self._comparisons
            if comparison not in self._decided and (number == 0 or self._rules.judged(comparison))
        ]

    def _turns(self, number: int, wanted: Sequence[Comparison]) -> int:
        """As many turns as leave time for the rounds up to the next look, and as are worth it."""
        sampling = self._sampling
        if number == 0:
            return sampling.turns_min
        rounds_left = self._next_look() - number
        per_round = (self._deadline - time.monotonic()) / rounds_left
        turn_seconds = max(self._turn_seconds(wanted), 1e-3)
        apart_from_turns = self._round_seconds(wanted) - self._runner.turns * turn_seconds
        affordable = int((per_round - apart_from_turns) / turn_seconds)
        return min(max(affordable, sampling.turns_min), self._most_turns(wanted))

    def _most_turns(self, wanted: Sequence[Comparison]) -> int:
        """More than the profile says where pairs of blocks differ by more than on a quiet machine:
        those of the typical case, since an arm may be restless by itself."""
        usual, spread = self._sampling.turns_max, self._sampling.turn_spread
        if self._runner.schedule is not Schedule.ALTERNATE:
            return usual
        return median_high(most_turns(usual, spread, self._turn_ratios(each)) for each in wanted)

    def _turn_ratios(self, comparison: Comparison) -> list[list[float]]:
        """Of the rounds in which both sides have blocks."""
        ratios = []
        for measured in self._rounds:
            with suppress(KeyError):
                ratios.append(turn_ratios(comparison, measured))
        return ratios

    def _round_seconds(self, wanted: Sequence[Comparison]) -> float:
        """Of one with these, and as many turns as the last one had."""
        return self._seconds_of_round[-1] * self._part_of_last(wanted)

    def _turn_seconds(self, wanted: Sequence[Comparison]) -> float:
        return self._runner.turn_seconds * self._part_of_last(wanted)

    def _part_of_last(self, wanted: Sequence[Comparison]) -> float:
        """The first round also has what is only shown, and a look decides some."""
        return starts_of(wanted) / self._starts_of_round[-1]

    def _time_for_another(self, wanted: Sequence[Comparison]) -> bool:
        """Whether a round as short as may be would end within the share of the budget.

        FEWEST_ROUNDS are begun even if they end in overtime: fewer bound nothing, and all would
        have been measured for nothing. What is between them and a first look that is out of reach
        is left to those that come after, which may lack it for either.
        """
        fewest = self._sampling.turns_min
        saved = (self._runner.turns - fewest) * self._turn_seconds(wanted)
        round_seconds = self._round_seconds(wanted) - saved
        now, done = time.monotonic(), len(self._rounds)
        in_time = now + round_seconds <= self._deadline
        if done < FEWEST_ROUNDS:
            missing_s = (FEWEST_ROUNDS - done) * round_seconds
            return in_time or now + missing_s <= self._overtime_ends
        to_first_look = self._session.profile.sampling.looks[0] - done
        if to_first_look > 0 and not self._is_last:
            return now + to_first_look * round_seconds <= self._deadline
        return in_time

    def _say(self, text: str) -> None:
        left = self._seconds_to_look()
        told = f", about {left:.0f} s to the next look" if left is not None else ""
        self._session.progress(f"{self._where()}{told}: {text}")
        self._note(text)

    def _note(self, text: str) -> None:
        """What is of no interest any more once it is over."""
        left = self._seconds_to_look()
        next_look = None if left is None else self._round_began + left
        self._session.doing(Doing(self._where(), text, next_look, self._session.budget_ends))

    def _where(self) -> str:
        return f"{self._prefix}  round {len(self._rounds) + 1} of {self._next_look()}"

    def _next_look(self) -> int:
        """The number of rounds after which verdicts are tried next."""
        looks = self._session.profile.sampling.looks
        return next((look for look in looks if look > len(self._rounds)), looks[-1])

    def _seconds_to_look(self) -> float | None:
        """From the beginning of this round on, if rounds take as long as so far; None before the
        first is over."""
        if not self._seconds_of_round:
            return None
        of_a_start = sum(self._seconds_of_round) / sum(self._starts_of_round)
        next_round = starts_of(self._wanted(len(self._rounds)))
        return (self._next_look() - len(self._rounds)) * of_a_start * next_round

    # Verdicts ------------------------------------------------------------------------------

    def _look(self, final: bool, at_look: bool) -> None:
        for comparison in self._comparisons:
            if comparison in self._decided:
                continue
            tools = self._tools[comparison]
            outcome = self._judging.outcome(comparison, self._rounds, tools, at_look)
            settled = outcome.judgement.verdict is not Verdict.INCONCLUSIVE
            # No more rounds make an invalid one sound, which is what such a trial waits for.
            hopeless = outcome.failure is not None or outcome.called is Verdict.INVALID
            trial = trial_of(comparison)
            caught = settled and trial is not None and trial.verdict is Verdict.INVALID
            if final or hopeless or caught or (at_look and settled):
                self._decided.add(comparison)
                self._session.decided(outcome)
