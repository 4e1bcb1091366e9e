"""Comparisons: a question about one workload at one world size. Pure data, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from hvdperf.plan.arms import Arm, Collective, Side, Workload
from hvdperf.plan.question import OF_STRATEGIES, Question
from hvdperf.plan.variants import EXCHANGES

# Tolerated difference of the weights of two strategies, besides rounding, as a part of their change
# by training.
TOLERANCE = 1e-5


class JudgedAs(Enum):
    """The way in which the figure of a comparison becomes a verdict.

    THRESHOLD: it must keep the machine's threshold. REGRESSION: the sides are the same arm under
    two stacks, and the session's own must not be slower. DETECTION: the candidate has an injected
    fault, which must be reported. AA_PAIR: the sides are identical and must not differ.
    """

    THRESHOLD = "threshold"
    REGRESSION = "regression"
    DETECTION = "detection"
    AA_PAIR = "A/A pair"


class RoundGroup(NamedTuple):
    """What comparisons that are judged from the same rounds share.

    topic: "" except for exchanges, recipes and fault cases. These have rounds of their own, because
    they have many arms, and all arms of a round live side by side in memory.
    """

    workload: Workload
    work: str
    topic: str = ""

    @property
    def name(self) -> str:
        """A name that is unique within a session, such as resnet_50_s-blocks. Cases, too, are named
        by the network of their workload."""
        work = self.work.replace(" ", "_")
        return "-".join(filter(None, (self.workload.model, work, self.topic)))


@dataclass(frozen=True)
class Comparison:
    """A question about one workload at one world size.

    The figure is speed(candidate) / speed(reference) / ideal_ratio, with speeds in samples per
    second over all replicas: 1.0 is an ideal efficiency, or equality. Other questions have other
    figures:

    start-up: a time in seconds, per gradient tensor for the trace, with the same arm on both sides;
        if the sides differ in stack or fault, the reference's time over the candidate's.
    memory: the factor by which a process grows in 1,000 steps, with the same arm on both sides.
    convergence: the ratio of the validation's losses or accuracies.
    fixed time: the ratio of the numbers of samples, over ideal_ratio.
    wall time: the efficiency by the wall time of the training (hvdperf.explain.speedup).
    collective overhead: the time of a collective operation through Horovod over that through bare
        MPI.
    overlap: the time of a step over that of a step that hides nothing of its exchange
        (hvdperf.explain.collectives).
    """

    question: Question
    candidate: Side
    reference: Side
    ideal_ratio: float = 1.0
    collective: Collective | None = None

    @property
    def workload(self) -> Workload:
        """The workload that the question is about; for a recipe, the one that it would change."""
        side = self.reference if self.question is Question.RECIPE else self.candidate
        return side.arm.workload

    @property
    def world_size(self) -> int:
        return self.candidate.arm.world_size

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.candidate, self.reference

    @property
    def arms(self) -> tuple[Arm, ...]:
        return tuple(dict.fromkeys(side.arm for side in self.sides))

    @property
    def is_of_one_arm(self) -> bool:
        """True if both sides are of the same arm."""
        return self.candidate.arm == self.reference.arm

    @property
    def within_a_launch(self) -> bool:
        """True if both sides are blocks of the same launches."""
        return self.is_of_one_arm and self.candidate != self.reference

    @property
    def compares_strategies(self) -> bool:
        """True if blocks of two strategies are compared."""
        ours, theirs = (side.arm.strategy for side in self.sides)
        return self.question in OF_STRATEGIES and ours is not theirs

    @property
    def round_group(self) -> RoundGroup:
        """The rounds that the comparison is judged from."""
        apart = self.is_trial or self.question.spec.own_rounds
        return RoundGroup(self.workload, self.question.spec.work, self.topic if apart else "")

    @property
    def is_trial(self) -> bool:
        """True if the candidate has an injected fault, to see whether the suite reports it
        (hvdperf.plan.faults)."""
        return self.judged_as is JudgedAs.DETECTION

    @property
    def variant(self) -> str:
        """A short name that distinguishes the comparison from others of its question, or ""."""
        if self.is_trial:
            return self.candidate.arm.injected
        spec = self.question.spec
        if spec.variant:
            other = self.reference.arm.strategy.value if spec.has_variants else ""
            return "-".join(filter(None, (spec.variant, other)))
        if self.collective is not None:
            return self.collective.value
        ours, theirs = self.candidate.arm.variants, self.reference.arm.variants
        if self.judged_as is not JudgedAs.THRESHOLD:
            theirs = ()
        return "+".join(name for name in ours if name not in theirs)

    @property
    def judged_as(self) -> JudgedAs:
        """The way in which the figure becomes a verdict."""
        if self.candidate.arm.injected:
            pair = self.question is Question.AA
            return JudgedAs.AA_PAIR if pair else JudgedAs.DETECTION
        return JudgedAs.REGRESSION if self.reference.arm.stack else JudgedAs.THRESHOLD

    @property
    def case(self) -> str:
        """A name that is unique within the topic, such as fp16-resnet_50_s-np2."""
        return "-".join(filter(None, (self.variant, self.workload.model, f"np{self.world_size}")))

    @property
    def topic(self) -> str:
        if self.is_trial:
            return "trust"
        return self.question.spec.topic or self.question.value

    @property
    def name(self) -> str:
        return f"{self.topic}[{self.case}]"

    @property
    def tolerance(self) -> float | None:
        """The tolerated difference of both sides' weights, besides rounding, as a part of their
        change by training. None if no limit is known, or if both sides are the same arm."""
        if self.judged_as is not JudgedAs.THRESHOLD:
            return None  # another version may compute differently
        meant = TOLERANCE if self.question in OF_STRATEGIES else None
        if self.question is Question.GRADIENT_REDUCTION and self.candidate.arm.passes == 1:
            meant = EXCHANGES[self.candidate.arm.exchange].tolerance
        # If the order of a sum differs, half precision may round to another neighbour.
        half = self.workload.precision != "float32"
        return max(meant, 0.05) if meant is not None and half else meant
