"""Rounds of arms until every comparison of a workload has its verdict, or time is up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from harness import evidence
from harness.account import Account, account
from harness.attribution import TOLD_APART
from harness.collectives import SWEEP_BYTES, Collective, Transfer, other_library
from harness.launch.group import GroupFailed
from harness.measurement import Round, observation, step_times, training
from harness.placement import is_oversubscribed
from harness.plan import (
    SWEEP,
    Arm,
    BlockKind,
    Comparison,
    Profile,
    Question,
    Sampling,
    Schedule,
    Work,
)
from harness.rounds import Progress, Runner
from harness.speedup import refusal
from harness.starter import Starter
from harness.stats import NotMeasurable, hodges_lehmann
from harness.thresholds import Thresholds, case_of
from harness.transport_tools.figures import ToolRun
from harness.trials import trial_of
from harness.trust import Noticed, noticed, on_trial
from harness.verdict import Floor, Judgement, Rule, Verdict, as_ratio, judge
from harness.wire import Phase

# Of one stack against another: FAIL if surely 2 % slower, PASS if surely not 5 % slower.
REGRESSION = Floor(fail_below=0.98, pass_from=0.95)
NOT_THE_SAME = (
    "two groups of the same arm differ: whatever else this session compares is as doubtful; look "
    "for what favours one of them, and measure again"
)
# About as many starts of a process as a training run is long.
STARTS_OF_A_RUN = 3
SWEEP_TURNS = 3


@dataclass(frozen=True)
class Outcome:
    """A comparison with its judgement and everything that it rests on.

    observations: ln of the figure, one a round. failure: the launch that failed, if one did.
    account: of a case on wall time, where that went. noticed: of what is planted on purpose. tools:
    of a sweep, what other tools found. taken_over: measured before the session was resumed.
    """

    comparison: Comparison
    judgement: Judgement
    observations: tuple[float, ...] = ()
    rounds: tuple[Round, ...] = ()
    failure: GroupFailed | None = None
    threshold_line: str = ""
    account: Account | None = None
    noticed: Noticed | None = None
    tools: tuple[ToolRun, ...] = ()
    taken_over: bool = False

    @property
    def passed(self) -> bool:
        return self.judgement.verdict is Verdict.PASS


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

    def measure(self, comparisons: Sequence[Comparison], later: Sequence[Comparison] = ()) -> None:
        """Judge all comparisons of one workload and one kind of work from common rounds, and hand
        each outcome to `decided`.

        later: those of other workloads, to be measured from the same budget after these.
        """
        tools = {comparison: self._other_tools(comparison) for comparison in comparisons}
        _Work(self, comparisons, tools, self._deadline(comparisons, later)).run()

    def _other_tools(self, comparison: Comparison) -> tuple[ToolRun, ...]:
        """What they find of a sweep's operation, before its rounds, which take what is left of the
        budget. Shown, and never judged."""
        in_time = time.monotonic() < self.began + self.profile.budget_s
        if self.tools is None or comparison.workload != SWEEP or not in_time:
            return ()
        collective = comparison.collective or Collective.ALLREDUCE
        return tuple(self.tools(collective, comparison.world_size))

    def _deadline(self, comparisons: Sequence[Comparison], later: Sequence[Comparison]) -> float:
        """What is left of the budget is shared by how long a round of each workload takes."""
        now = time.monotonic()
        left = self.began + self.profile.budget_s - now
        own = self._starts_of_a_round(comparisons)
        return now + max(left, 0.0) * own / (own + self._starts_of_a_round(later))

    def _starts_of_a_round(self, comparisons: Sequence[Comparison]) -> int:
        """How long a round takes, in starts of a process. Past the first round, in which also what
        is only shown is launched."""
        judged = [comparison for comparison in comparisons if self.judged(comparison)]
        launches = {
            (arm, comparison.rounds)
            for comparison in judged or comparisons
            for arm in comparison.arms
        }
        return sum(arm.processes + STARTS_OF_A_RUN * work.is_run for arm, (_, work, _) in launches)

    def judged(self, comparison: Comparison) -> bool:
        """Whether it is held against a threshold: where replicas share a core no speed is, save
        for what communication costs, which is measured within one launch."""
        return not self.unjudged(comparison)

    def unjudged(self, comparison: Comparison) -> str:
        """Why it is not held against a threshold; empty if it is."""
        if not comparison.question.is_speed:
            return ""
        on_device = any(slot.device is not None for slot in self.starter.slots)
        if comparison.is_trial and on_device:
            return "what is planted into a step is measured where the processor waits for the step"
        if comparison.question.work is Work.COLLECTIVES and on_device:
            return "Horovod exchanges what is on GPUs, the bare transport what is in host memory"
        if not is_oversubscribed(self.starter.slots, comparison.world_size):
            return ""
        within_a_launch = comparison.question is Question.COMMUNICATION
        models = self.profile.oversubscribed or self.profile.models
        if within_a_launch and comparison.workload.model in models:
            return ""
        return "more replicas than cores or devices"

    def rule(self, comparison: Comparison) -> Rule | None:
        shown = comparison.question.is_convergence or comparison.question is Question.SAME
        if comparison.is_against and not shown:
            return REGRESSION
        return self.thresholds.rule(case_of(comparison, self.starter.slots))


class _Work:
    """The rounds of one workload, and what has been decided so far."""

    def __init__(
        self,
        session: Session,
        comparisons: Sequence[Comparison],
        tools: Mapping[Comparison, tuple[ToolRun, ...]],
        deadline: float,
    ) -> None:
        self._session = session
        self._comparisons = comparisons
        self._tools = tools
        self._deadline = deadline
        self._sampling = sampling_of(comparisons, session.profile.sampling)
        self._rounds: list[Round] = []
        self._decided: set[Comparison] = set()
        self._seconds_of_round: list[float] = []
        self._round_began = time.monotonic()
        self._compared: dict[Comparison, list[str]] = {}
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
            kinds=kinds_of(comparisons, session.judged),
            transfers=transfers_of(comparisons),
            check=[
                arm
                for comparison in comparisons
                if comparison.tolerance is not None
                for arm in comparison.arms
            ],
            weights_directory=session.starter.scratch,
            progress=self._say,
            doing=self._note,
            order=random.Random(f"{session.seed} {workload.name} {work.value}"),
        )

    def run(self) -> None:
        looks = self._session.profile.sampling.looks
        for number in range(looks[-1]):
            arms = self._arms_wanted(number)
            if not arms or (number > 0 and not self._time_for_another()):
                break
            self._runner.turns = self._turns(number)
            self._round_began = time.monotonic()
            measured = self._runner.run(number, arms)
            self._seconds_of_round.append(time.monotonic() - self._round_began)
            self._session.timed_seconds += sum(
                launch.timed_seconds for launch in measured.launches.values()
            )
            self._rounds.append(measured)
            self._look(final=False, at_look=number + 1 in looks)
        self._look(final=True, at_look=True)

    # Which arms, and whether there is time -------------------------------------------------

    def _arms_wanted(self, number: int) -> list[Arm]:
        """Those of comparisons without a verdict. What is only shown is launched once."""
        wanted: dict[Arm, None] = {}
        for comparison in self._comparisons:
            if comparison in self._decided:
                continue
            if number == 0 or self._session.judged(comparison):
                wanted.update(dict.fromkeys(comparison.arms))
        return list(wanted)

    def _turns(self, number: int) -> int:
        """As many turns as leave time for the rounds up to the first look."""
        sampling = self._sampling
        if number == 0:
            return sampling.turns_min
        rounds_left = max(1, sampling.looks[0] - number)
        per_round = (self._deadline - time.monotonic()) / rounds_left
        turn_seconds = max(self._runner.turn_seconds, 1e-3)
        apart_from_turns = self._seconds_of_round[-1] - self._runner.turns * turn_seconds
        affordable = int((per_round - apart_from_turns) / turn_seconds)
        return min(max(affordable, sampling.turns_min), sampling.turns_max)

    def _time_for_another(self) -> bool:
        """Whether a round as short as may be would end within the budget."""
        fewest = self._sampling.turns_min
        saved = (self._runner.turns - fewest) * self._runner.turn_seconds
        return time.monotonic() + self._seconds_of_round[-1] - saved <= self._deadline

    def _say(self, text: str) -> None:
        left = self._seconds_to_look()
        told = f", about {left:.0f} s to the next look" if left is not None else ""
        self._session.progress(f"{self._where()}{told}: {text}")
        self._note(text)

    def _note(self, text: str) -> None:
        """What is of no interest any more once it is over."""
        left = self._seconds_to_look()
        next_look = None if left is None else self._round_began + left
        budget_ends = self._session.began + self._session.profile.budget_s
        self._session.doing(Doing(self._where(), text, next_look, budget_ends))

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
        average = sum(self._seconds_of_round) / len(self._seconds_of_round)
        return (self._next_look() - len(self._rounds)) * average

    # Verdicts ------------------------------------------------------------------------------

    def _look(self, final: bool, at_look: bool) -> None:
        for comparison in self._comparisons:
            if comparison in self._decided:
                continue
            outcome = self._outcome(comparison)
            settled = outcome.judgement.verdict is not Verdict.INCONCLUSIVE
            hopeless = outcome.failure is not None or outcome.judgement.verdict is Verdict.INVALID
            # No more rounds make an invalid one sound, which is what such a trial waits for.
            trial = trial_of(comparison)
            caught = settled and trial is not None and trial.verdict is Verdict.INVALID
            if final or hopeless or caught or (at_look and settled):
                self._decided.add(comparison)
                self._session.decided(outcome)

    def _outcome(self, comparison: Comparison) -> Outcome:
        rounds = tuple(
            measured
            for measured in self._rounds
            if all(arm in measured.launches for arm in comparison.arms)
        )
        outcome = Outcome(
            comparison, self._nothing(comparison), rounds=rounds, tools=self._tools[comparison]
        )
        for arm in comparison.arms:
            failure = self._runner.failures.get(arm)
            if failure is not None:
                judgement = replace(outcome.judgement, verdict=Verdict.FAIL, reason=str(failure))
                return replace(outcome, judgement=judgement, failure=failure)
        if not rounds:
            return outcome
        return self._judged(outcome)

    def _nothing(self, comparison: Comparison) -> Judgement:
        rule = self._session.rule(comparison)
        return Judgement(Verdict.INCONCLUSIVE, None, rule, 0, "no round was completed in time")

    def _judged(self, outcome: Outcome) -> Outcome:
        """What is planted on purpose is judged as anything else is, and then whether it should."""
        called = self._called(outcome)
        trial, question = trial_of(outcome.comparison), outcome.comparison.question
        judgement = called.judgement
        if trial is not None:
            found = noticed(outcome.comparison, judgement, outcome.rounds)
            called = replace(called, noticed=found)
            judgement = on_trial(trial, judgement, found)
        elif question is Question.SAME and judgement.verdict is Verdict.FAIL:
            judgement = replace(judgement, verdict=Verdict.INVALID, reason=NOT_THE_SAME)
        return replace(called, judgement=judgement)

    def _called(self, outcome: Outcome) -> Outcome:
        comparison = outcome.comparison
        unjudged = self._session.unjudged(comparison)
        problems = self._problems(outcome)
        observations = []
        try:
            observations = [observation(comparison, measured) for measured in outcome.rounds]
        except (KeyError, ValueError, ZeroDivisionError) as error:
            if not unjudged:
                problems.append(f"no figure: {error}")
        outcome = replace(outcome, observations=tuple(observations))
        rule = self._session.rule(comparison)
        count = len(observations)
        if problems:
            text = problems[0] + (f" (and {len(problems) - 1} more)" if problems[1:] else "")
            return self._with(outcome, Verdict.INVALID, rule, text)
        if comparison.question.is_wall:
            outcome = replace(outcome, account=account(comparison, outcome.rounds))
        if unjudged:
            return self._with(outcome, Verdict.NOT_JUDGED, None, unjudged)
        if rule is None and comparison.is_trial:
            return self._with(
                outcome, Verdict.NOT_JUDGED, None, "there is no threshold to notice by"
            )
        if rule is None:
            case = case_of(comparison, self._session.starter.slots)
            line = self._session.thresholds.pasteable_line(case, observations)
            outcome = replace(outcome, threshold_line=line)
            reason = f"no threshold; add to {self._session.thresholds.path.name}: {line}"
            verdict = Verdict.INVALID if count >= self._first_look else Verdict.INCONCLUSIVE
            return self._with(outcome, verdict, None, reason)
        refusal = self._refusal(outcome, rule)
        if refusal:
            return self._with(outcome, Verdict.INCONCLUSIVE, rule, refusal)
        return replace(outcome, judgement=judge(observations, rule))

    def _refusal(self, outcome: Outcome, rule: Rule) -> str:
        """Why runs of that length say nothing on the rule, in words; empty if they do."""
        comparison = outcome.comparison
        if comparison.question is not Question.WALL_STRONG or not isinstance(rule, Floor):
            return ""
        reasons = [
            refusal(
                rule.pass_from,
                training(measured.launches[comparison.candidate.arm]),
                training(measured.launches[comparison.reference.arm]),
                comparison.world_size,
            )
            for measured in outcome.rounds
        ]
        refused = [reason for reason in reasons if reason]
        return refused[0] if 2 * len(refused) > len(reasons) else ""

    @property
    def _first_look(self) -> int:
        return self._session.profile.sampling.looks[0]

    def _with(self, outcome: Outcome, verdict: Verdict, rule: Rule | None, reason: str) -> Outcome:
        """A verdict that does not rest on the figure, with the figure where there is one."""
        try:
            figure = as_ratio(hodges_lehmann(outcome.observations, alpha=0.025))
        except NotMeasurable:
            figure = None
        count = len(outcome.observations)
        return replace(outcome, judgement=Judgement(verdict, figure, rule, count, reason))

    def _problems(self, outcome: Outcome) -> list[str]:
        launches = [
            measured.launches[arm] for measured in outcome.rounds for arm in outcome.comparison.arms
        ]
        found = [problem for launch in launches for problem in evidence.problems(launch)]
        if outcome.comparison.question.work is Work.COLLECTIVES:
            found += self._transport_problems(outcome)
        if outcome.comparison.tolerance is not None:
            found += self._weight_problems(outcome.comparison)
        return found

    def _transport_problems(self, outcome: Outcome) -> list[str]:
        """Horovod and what it is compared with must use the same transport, and a step must not be
        faster than that allows; which says nothing where replicas share cores."""
        comparison, arms = outcome.comparison, outcome.comparison.arms
        pairs = [[measured.launches[arm] for arm in arms] for measured in outcome.rounds]
        found = [other_library(horovod.series, bare.series) for horovod, bare in pairs]
        if comparison.question is Question.BOUND and self._session.judged(comparison):
            times = [step_times(horovod, bare) for horovod, bare in pairs]
            found.append(evidence.too_fast(arms[0].name, times))
        return [problem for problem in found if problem]

    def _weight_problems(self, comparison: Comparison) -> list[str]:
        """Two arms are compared only if they train the same thing."""
        for arm in comparison.arms:
            if arm not in self._runner.correctness:
                return [f"{arm.name}: its training was not checked"]
        if comparison not in self._compared:
            self._compared[comparison] = self._trained_differently(comparison)
        return self._compared[comparison]

    def _trained_differently(self, comparison: Comparison) -> list[str]:
        trained = []
        for arm in comparison.arms:
            digests = [
                digest
                for rank in self._runner.correctness[arm].correctness
                for digest in rank["digests"]
            ]
            if len(set(digests)) != 1:
                return [f"{arm.name}: replicas differ after reproducible training"]
            with np.load(self._runner.weights(arm)) as arrays:
                trained.append(dict(arrays))
        difference = evidence.weights_differ(
            trained[0], trained[1], of_update=comparison.tolerance or 0.0
        )
        names = " and ".join(arm.label for arm in comparison.arms)
        return [f"{names} trained different weights: {difference}"] if difference else []


def sampling_of(comparisons: Sequence[Comparison], sampling: Sampling) -> Sampling:
    """As the profile says, save for a sweep: its turns take seconds, and hold several repeats."""
    if comparisons[0].workload != SWEEP:
        return sampling
    fewest, most = (min(n, SWEEP_TURNS) for n in (sampling.turns_min, sampling.turns_max))
    return replace(sampling, turns_min=fewest, turns_max=most)


def schedule_of(work: Work, profile: Profile) -> Schedule:
    """Arms that start side by side slow each other down, and to runs, which do not take turns, it
    is of no use that others live. What a collective operation takes is compared back to back."""
    if work is Work.COLLECTIVES:
        return Schedule.ALTERNATE
    return profile.schedule if work is Work.BLOCKS else Schedule.FRESH


def last_phase(comparisons: Sequence[Comparison]) -> Phase:
    """How far a start-up has to go: where none but its trace is asked about, so far; to exchange
    tensors, until there is a group, and for those of a model until that is built."""
    asked = {comparison.question for comparison in comparisons}
    if asked == {Question.STARTUP_TRACE}:
        return Phase.TRACE
    if asked == {Question.FRAMEWORK_TAX}:
        return Phase.INIT if comparisons[0].workload == SWEEP else Phase.BUILD
    return Phase.BROADCAST


def kinds_of(
    comparisons: Sequence[Comparison], judged: Callable[[Comparison], bool]
) -> dict[Arm, set[BlockKind]]:
    """The kinds of blocks wanted of each arm: full ones wherever steps are asked about, split ones
    only to be judged."""
    kinds: dict[Arm, set[BlockKind]] = {arm: set() for c in comparisons for arm in c.arms}
    for comparison in comparisons:
        if comparison.question is Question.FRAMEWORK_TAX:
            continue
        if comparison.question is Question.BOUND:
            kinds[comparison.candidate.arm] |= {BlockKind.FULL, BlockKind.LOCAL}
            continue
        trial = trial_of(comparison)
        for side in (comparison.candidate, comparison.reference):
            kinds[side.arm].add(BlockKind.FULL)
            if trial is not None and trial.term in TOLD_APART:
                kinds[side.arm].add(BlockKind.LOCAL)
            if side.kind is not BlockKind.SPLIT or judged(comparison):
                kinds[side.arm].add(side.kind)
    return kinds


def transfers_of(comparisons: Sequence[Comparison]) -> dict[Arm, list[Transfer]]:
    """What each arm exchanges in a turn besides its blocks: of the sweep every size of what is
    asked about, of a network its gradients."""
    wanted: dict[Arm, dict[Transfer, None]] = {}
    for comparison in comparisons:
        if comparison.question.work is not Work.COLLECTIVES:
            continue
        collective = comparison.collective or Collective.ALLREDUCE
        sizes = [(size,) for size in SWEEP_BYTES] if comparison.workload == SWEEP else [()]
        for arm in comparison.arms:
            transfers = (Transfer(collective, size) for size in sizes)
            wanted.setdefault(arm, {}).update(dict.fromkeys(transfers))
    return {arm: list(transfers) for arm, transfers in wanted.items()}
