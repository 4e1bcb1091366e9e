"""Turns a comparison's rounds into an outcome: checks the evidence, computes the figure, and judges
it by the rules of the session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import msgspec

from hvdperf import verdict
from hvdperf.explain.steps import WORTH_A_WORD, long_steps
from hvdperf.interim import judge_pair, judge_rounds
from hvdperf.judge.trust import detect, of_fault_case, of_identical_groups
from hvdperf.machine.placement import Slot, is_oversubscribed, nodes, place_group
from hvdperf.plan.arms import Arm
from hvdperf.plan.comparisons import Comparison, JudgedAs
from hvdperf.plan.profile import Profile
from hvdperf.plan.questions import fault_case_of
from hvdperf.plan.thresholds import Case, Thresholds, case_of
from hvdperf.records.outcome import Failure, Outcome
from hvdperf.records.rounds import Launch, Round
from hvdperf.stats import NotMeasurable, Row, hodges_lehmann
from hvdperf.verdict import Judgement, Noise, Rule, Verdict
from hvdperf.work.evidence import parted, weights_differ
from hvdperf.work.table import cause_of, work_of
from hvdperf.worker.strategies import Strategy


@dataclass(frozen=True)
class Rules:
    """The rules of a session with this profile on these slots."""

    profile: Profile
    thresholds: Thresholds
    slots: Sequence[Slot]

    def judged(self, comparison: Comparison) -> bool:
        """Return whether the comparison is compared with a threshold. If replicas share a core,
        only speeds within one launch are compared."""
        return not self.unjudged(comparison)

    def unjudged(self, comparison: Comparison) -> str:
        """Return why the comparison is not compared with a threshold; return "" if it is."""
        if not comparison.question.spec.is_speed:
            return ""
        on_device = any(slot.device is not None for slot in self.slots)
        if on_device and any(arm.strategy is Strategy.BARE for arm in comparison.arms):
            return "Horovod exchanges tensors on GPUs, bare MPI exchanges host memory"
        if not is_oversubscribed(self.slots, comparison.world_size):
            return ""
        models = self.profile.oversubscribed or self.profile.models
        if comparison.within_a_launch and comparison.workload.model in models:
            return ""
        return "more ranks than cores or devices"

    def hosts(self, comparison: Comparison) -> tuple[str, ...]:
        """Return the host of each of the candidate's ranks; () if its ranks are not replicas, or if
        the session has fewer slots than it has."""
        arm = comparison.candidate.arm
        if arm.processes != arm.world_size or arm.world_size > len(self.slots):
            return ()
        return tuple(slot.host for slot in place_group(self.slots, arm.world_size))

    def rule(self, comparison: Comparison) -> Rule | None:
        """Return the rule of the comparison; return None if nobody has set a threshold."""
        slower = comparison.judged_as in (JudgedAs.REGRESSION, JudgedAs.DETECTION)
        two_groups = not comparison.is_of_one_arm
        if slower and two_groups and comparison.question.spec.is_speed:
            return verdict.REGRESSION
        rule = self.thresholds.rule(self._case(comparison))
        is_precise = self.profile.sampling.precision and comparison.question.spec.is_speed
        if isinstance(rule, verdict.Band) and is_precise:
            # Who asks for precision publishes the interval, beside those of efficiencies.
            return msgspec.structs.replace(rule, alpha=verdict.ALPHA)
        return rule

    def pasteable_line(self, comparison: Comparison, observations: Sequence[float]) -> str:
        """Return a line for the file of thresholds, for a comparison that has none there."""
        return self.thresholds.pasteable_line(self._case(comparison), observations)

    def _case(self, comparison: Comparison) -> Case:
        return case_of(comparison, nodes(self.slots, comparison.world_size))


@dataclass
class Judge:
    """A judge of comparisons of one workload and one kind of work, as rounds come in. A RoundRunner
    updates failures, correctness and weights.

    failures: of launches so far. correctness: by arm, the launch in which it trained reproducibly.
    weights: returns the weights after that training, by tensor. noise: returns the noise that early
    looks assume; None for no early looks.
    """

    rules: Rules
    failures: Mapping[Arm, Failure]
    correctness: Mapping[Arm, Launch]
    weights: Callable[[Arm], Mapping[str, Any]]
    noise: Callable[[Comparison], Noise | None]
    _compared: dict[Comparison, list[str]] = field(default_factory=dict)

    def outcome(
        self, comparison: Comparison, measured: Sequence[Round], final: bool = False
    ) -> Outcome:
        """Return the outcome of a comparison. measured: all rounds so far; those without the
        comparison's blocks are left out. final: whether no further round will come. Between full
        looks only the evidence of launches makes a comparison INVALID, and no figure does, because
        a test that is repeated errs more often."""
        work = work_of(comparison.question)
        rounds = tuple(each for each in measured if work.measures(comparison, each))
        rule = self.rules.rule(comparison)
        nothing = Judgement(Verdict.NOT_RUN, None, rule, 0, "no round was completed in time")
        outcome = Outcome(comparison, nothing, rounds=rounds)
        failure = next(filter(None, map(self.failures.get, comparison.arms)), None)
        if failure is not None:
            judgement = replace(nothing, verdict=_of_failure(failure), reason=str(failure))
            return replace(outcome, judgement=judgement, failure=failure)
        if rounds:
            return self._judged(outcome, final)
        # A case that is only shown is INFO.
        reason = self.rules.unjudged(comparison)
        if comparison.judged_as is JudgedAs.AA_PAIR:
            reason = reason or "no time was left for the A/A test"
        return _with(outcome, Verdict.INFO, None, reason) if reason else outcome

    def _judged(self, outcome: Outcome, final: bool) -> Outcome:
        """Return the outcome of a comparison with rounds. A fault case is judged like any other
        first, and then by whether that verdict is the expected one."""
        outcome = self._reported(outcome, final)
        comparison = outcome.comparison
        case = fault_case_of(comparison)
        judgement = outcome.judgement
        if case is not None:
            rounds = _undisturbed(outcome, judgement)
            found = detect(comparison, judgement, rounds, self.rules.hosts(comparison))
            outcome = replace(outcome, detection=found)
            launches = [measured.of(comparison.candidate.arm) for measured in outcome.rounds]
            judgement = of_fault_case(case, judgement, found, launches)
        elif comparison.judged_as is JudgedAs.AA_PAIR:
            judgement = of_identical_groups(judgement, outcome.comparison.workload.model)
        elif judgement.verdict is Verdict.FAIL:
            outcome = self._with_cause(outcome)
            judgement = outcome.judgement
        reason = "; ".join(filter(None, (judgement.reason, _paused_reference(outcome))))
        return replace(outcome, judgement=replace(judgement, reason=reason))

    def _with_cause(self, outcome: Outcome) -> Outcome:
        """Return the outcome of a FAIL with its cause, also in words, if its work can tell one."""
        comparison, judgement = outcome.comparison, outcome.judgement
        rounds = _undisturbed(outcome, judgement)
        above = _is_above(judgement)
        asked = _turned(comparison) if above else comparison
        found = cause_of(asked, rounds, () if above else self.rules.hosts(comparison))
        if found is None:
            return outcome
        text = str(found)
        if above:
            found = replace(found, of_reference=True)
            text = f"{_reference(comparison)} is the slower side: {text}"
        rare = long_steps([measured.of(comparison.candidate.arm) for measured in rounds])
        text = f"{text}; {rare}" if rare is not None else text
        return replace(outcome, cause=found, judgement=replace(judgement, reason=text))

    def _reported(self, outcome: Outcome, final: bool) -> Outcome:
        comparison = outcome.comparison
        work = work_of(comparison.question)
        unjudged = self.rules.unjudged(comparison) or _exchanges_elsewhere(outcome)
        rows: list[Row] = []
        problems = []
        try:
            found = [work.observe(comparison, measured) for measured in outcome.rounds]
            rows = [row for row in found if row]
        except (KeyError, ValueError, ZeroDivisionError) as error:
            if not unjudged:
                problems.append(f"no figure: {error}")
        outcome = replace(outcome, observations=tuple(map(median, rows)))
        rule = self.rules.rule(comparison)
        count = len(rows)
        looks = self.rules.profile.sampling.looks
        problems = self._problems(outcome, final or count in looks) + problems
        if problems:
            text = problems[0] + (f" (and {len(problems) - 1} more)" if problems[1:] else "")
            return _with(outcome, Verdict.INVALID, rule, text)
        outcome = replace(outcome, breakdown=work.breakdown(comparison, outcome.rounds))
        if unjudged:
            return _with(outcome, Verdict.INFO, None, unjudged)
        if not rows:
            return _disturbed(outcome, rule)
        if rule is None and comparison.is_fault_case:
            return _with(
                outcome, Verdict.INFO, None, "there is no threshold to detect the fault by"
            )
        if rule is None:
            line = self.rules.pasteable_line(comparison, outcome.observations)
            outcome = replace(outcome, threshold_line=line)
            reason = f"no threshold; add to {self.rules.thresholds.path.name}: {line}"
            if comparison.question.spec.asked_by_line:
                return _with(outcome, Verdict.INFO, None, reason)
            word = Verdict.INVALID if count >= looks[0] else Verdict.INCONCLUSIVE
            return _with(outcome, word, None, reason)
        too_short = work.too_short(comparison, outcome.rounds, rule)
        if too_short:
            refused = _with(outcome, Verdict.INCONCLUSIVE, rule, too_short)
            return replace(refused, judgement=replace(refused.judgement, needs_longer_runs=True))
        noise = self.noise(comparison)
        by = judge_pair if comparison.judged_as is JudgedAs.AA_PAIR else judge_rounds
        judgement = by(rows, rule, looks, noise, final)
        return replace(outcome, judgement=work.explained(judgement, comparison, outcome.rounds))

    def _problems(self, outcome: Outcome, at_look: bool) -> list[str]:
        comparison, rounds = outcome.comparison, outcome.rounds
        work = work_of(comparison.question)
        launches = [measured.of(arm) for measured in rounds for arm in comparison.arms]
        found = [problem for launch in launches for problem in work.problems(launch)]
        if not found:
            judged = self.rules.judged(comparison)
            found = work.problems_of_rounds(comparison, rounds, judged, at_look)
        if comparison.tolerance is not None:
            found += self._weight_problems(comparison, comparison.tolerance)
        return found

    def _weight_problems(self, comparison: Comparison, tolerance: float) -> list[str]:
        """Return why the arms cannot be compared: they did not train the same weights. tolerance:
        as in `Comparison.tolerance`."""
        for arm in comparison.arms:
            if arm not in self.correctness:
                return [f"{arm.name}: its training was not checked"]
        if comparison not in self._compared:
            self._compared[comparison] = self._trained_differently(comparison, tolerance)
        return self._compared[comparison]

    def _trained_differently(self, comparison: Comparison, tolerance: float) -> list[str]:
        reports = [self.correctness[arm].correctness for arm in comparison.arms]
        for arm, ranks in zip(comparison.arms, reports, strict=True):
            for rank in ranks:
                if rank.irreproducible:
                    return [
                        f"{arm.name}: this GPU cannot repeat a training exactly, so nothing shows "
                        f"that all strategies train the same: {rank.irreproducible}"
                    ]
            if len({digest for rank in ranks for digest in rank.digests}) != 1:
                return [f"{arm.name}: replicas differ after reproducible training"]
        ours, theirs = map(self.weights, comparison.arms)
        difference = weights_differ(ours, theirs, of_update=tolerance)
        if not difference:
            return []
        names = " and ".join(arm.label for arm in comparison.arms)
        where = parted(reports[0], reports[1], ours, theirs)
        return [f"{names} trained different weights: {difference}; {where.value}"]


def _with(outcome: Outcome, word: Verdict, rule: Rule | None, reason: str) -> Outcome:
    """Return the outcome with a verdict that the figure did not decide, and the figure if there is
    one."""
    try:
        figure = verdict.as_ratio(hodges_lehmann(outcome.observations, verdict.ALPHA))
    except NotMeasurable:
        figure = None
    count = len(outcome.observations)
    return replace(outcome, judgement=Judgement(word, figure, rule, count, reason))


def _disturbed(outcome: Outcome, rule: Rule | None) -> Outcome:
    """Return INCONCLUSIVE with the figure of the disturbed rounds, but without observations."""
    work = work_of(outcome.comparison.question)
    values = [median(work.observe_all(outcome.comparison, each)) for each in outcome.rounds]
    reason = "other programs disturbed every round"
    shown = replace(outcome, observations=tuple(values))
    shown = _with(shown, Verdict.INCONCLUSIVE, rule, reason)
    return replace(shown, observations=(), judgement=replace(shown.judgement, rounds=0))


def _of_failure(failure: Failure) -> Verdict:
    """Return the verdict on a case of which a launch failed. A mistake in the user's own network or
    data says nothing of the stack, nor does a machine that cannot start anything."""
    if not failure.started or failure.of_node:
        return Verdict.NOT_RUN
    return Verdict.INVALID if failure.of_user else Verdict.FAIL


def _is_above(judgement: Judgement) -> bool:
    """Return whether a figure lies above its band: then the reference is the slower side."""
    rule, figure = judgement.rule, judgement.figure
    return isinstance(rule, verdict.Band) and figure is not None and figure.estimate > rule.high


def _turned(comparison: Comparison) -> Comparison:
    """Return the comparison with its sides exchanged."""
    ours, theirs = comparison.sides
    return replace(
        comparison, candidate=theirs, reference=ours, ideal_ratio=1 / comparison.ideal_ratio
    )


def _reference(comparison: Comparison) -> str:
    """Return the name of the side that a figure compares with."""
    ours, theirs = comparison.sides
    if ours.arm == theirs.arm:
        return "without exchange"
    if ours.arm.world_size != theirs.arm.world_size:
        return f"{theirs.arm.world_size} rank{'s' * (theirs.arm.world_size > 1)}"
    return theirs.arm.label


def _paused_reference(outcome: Outcome) -> str:
    """Return that rare long steps take more of the reference's time than of the candidate's, which
    makes the figure too good; "" if they do not."""
    ours, theirs = (
        long_steps([measured.of(side.arm) for measured in outcome.rounds])
        for side in outcome.comparison.sides
    )
    if theirs is None or theirs.share - (ours.share if ours else 0.0) < WORTH_A_WORD:
        return ""
    return f"the reference, {_reference(outcome.comparison)}, was slowed down: {theirs}"


def _exchanges_elsewhere(outcome: Outcome) -> str:
    """Return why a step without the exchange of its gradients still exchanges something, so that
    its time is no measure of computing alone; return "" if it does not, or if the question does not
    take such a step."""
    comparison = outcome.comparison
    takes = comparison.question.spec.without_exchange
    if not takes or comparison.judged_as is not JudgedAs.THRESHOLD:
        return ""
    launches = [measured.of(comparison.candidate.arm) for measured in outcome.rounds]
    if not any(rank.other_exchanges for each in launches for rank in each.metadata):
        return ""
    return (
        "Horovod does more in a step than reduce gradients, as in a synchronised normalisation, so "
        "there is no step without communication to compare with"
    )


def _undisturbed(outcome: Outcome, judgement: Judgement) -> tuple[Round, ...]:
    """Return the rounds without those that other programs disturbed; () if the verdict is no FAIL,
    since only a FAIL is attributed."""
    if judgement.verdict is not Verdict.FAIL:
        return ()
    comparison = outcome.comparison
    observe = work_of(comparison.question).observe
    return tuple(each for each in outcome.rounds if observe(comparison, each))
