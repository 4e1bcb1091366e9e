"""Comparisons: a question about one workload at one world size.

The questions have one row each, with all their differences. The comparisons that answer them are in
hvdperf/plan/questions.py. Pure data, no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from hvdperf.plan.arms import EXCHANGES, Arm, Collective, Side, Workload
from hvdperf.verdict import Band, Ceiling, Floor, Rule, SpeedFloor


class Between(Enum):
    """The side of a comparison that --against measures under both stacks. NEITHER: this question
    does not compare stacks."""

    CANDIDATE = "candidate"
    REFERENCE = "reference"
    NEITHER = "neither"


@dataclass(frozen=True)
class QuestionSpec:
    """One question.

    name: key of its thresholds, heading on the terminal, and beginning of the case's name unless
    there is a `topic`. meaning: what the figure is. work: name of the work of the launches that
    answer it (hvdperf/work/table.py). rule: kind of rule that judges its figure; unit: of a figure
    that is not a ratio. topic, variant: the two parts of a case's name, if one test asks several
    questions. has_variants: whether each variant has a threshold of its own. own_rounds: whether
    its arms, which are many, have rounds of their own. is_speed: whether the figure depends on the
    speed of the machine. between: side that two stacks are compared by.
    """

    name: str
    meaning: str
    work: str = "blocks"
    rule: type[Rule] = Floor
    unit: str = ""
    topic: str = ""
    variant: str = ""
    has_variants: bool = False
    own_rounds: bool = False
    is_speed: bool = True
    between: Between = Between.CANDIDATE


def _startup(phase: str, per: str = "") -> QuestionSpec:
    variant = phase.replace(" ", "_")
    return QuestionSpec(
        f"startup_{variant}",
        f"seconds of the slowest rank's {phase}{per}",
        "startup",
        Ceiling,
        unit="s",
        topic="startup",
        variant=variant,
    )


def _convergence(metric: str) -> QuestionSpec:
    return QuestionSpec(
        f"convergence_{metric}",
        f"validation {metric} of Horovod / that of the other strategy",
        "epochs",
        Band,
        topic="convergence",
        variant=metric,
        has_variants=True,
        is_speed=False,
    )


def _wall(way: str, meaning: str) -> QuestionSpec:
    return QuestionSpec(
        f"wall_time_{way}",
        meaning,
        "wall time",
        topic="wall_time",
        variant=way,
        between=Between.NEITHER,
    )


class Question(Enum):
    """The questions. The value is QuestionSpec.name."""

    spec: QuestionSpec

    def __new__(cls, spec: QuestionSpec) -> Question:
        question = object.__new__(cls)
        question._value_ = spec.name
        question.spec = spec
        return question

    WEAK_SCALING = QuestionSpec(
        "weak_scaling", "speed of n replicas / n times that of one, a batch for each"
    )
    STRONG_SCALING = QuestionSpec(
        "strong_scaling", "speed of n replicas / n times that of one, with the batch divided"
    )
    COMMUNICATION = QuestionSpec(
        "communication",
        "speed with the exchange of gradients / speed without it",
        between=Between.REFERENCE,
    )
    PARITY = QuestionSpec(
        "parity",
        "speed of Horovod / speed of MirroredStrategy",
        rule=Band,
        between=Between.REFERENCE,
    )
    AA = QuestionSpec(
        "aa", "speed of one group / speed of an identical one", rule=Band, between=Between.NEITHER
    )
    HOROVOD_OVERHEAD = QuestionSpec(
        "horovod_overhead",
        "speed of Horovod on one replica / speed of plain TensorFlow",
        between=Between.REFERENCE,
    )
    MULTIWORKER = QuestionSpec(
        "multiworker",
        "speed of Horovod / speed of MultiWorkerMirroredStrategy",
        between=Between.REFERENCE,
    )
    GRADIENT_REDUCTION = QuestionSpec(
        "gradient_reduction",
        "speed with another way of exchange / speed with the default",
        has_variants=True,
        own_rounds=True,
    )
    LAUNCH = QuestionSpec(
        "launch",
        "speed as launched by default / speed as the suite launches",
        has_variants=True,
        own_rounds=True,
        between=Between.NEITHER,
    )
    RECIPE = QuestionSpec(
        "recipe",
        "speed with another recipe / speed with the workload's own",
        has_variants=True,
        own_rounds=True,
    )
    CONVERGENCE_LOSS = _convergence("loss")
    CONVERGENCE_ACCURACY = _convergence("accuracy")
    FIXED_TIME = QuestionSpec(
        "fixed_time", "samples of n replicas in a given time / n times those of one", "time"
    )
    MEMORY = QuestionSpec(
        "memory",
        "factor by which the resident set grows in 1,000 steps",
        "endurance",
        Ceiling,
        is_speed=False,
        between=Between.NEITHER,
    )
    WALL_TIME_WEAK = _wall("weak", "wall time of one replica / that of n, as many steps")
    WALL_TIME_STRONG = _wall(
        "strong", "wall time of one replica / n times that of n, steps divided"
    )
    COLLECTIVE_OVERHEAD = QuestionSpec(
        "collective_overhead",
        "time of a collective operation through Horovod / through bare MPI",
        work="collectives",
        rule=Ceiling,
        has_variants=True,
        between=Between.NEITHER,
    )
    OVERLAP = QuestionSpec(
        "overlap",
        "time of a step / time of one that hides nothing of its exchange",
        "collectives",
        Ceiling,
        between=Between.NEITHER,
    )
    THROUGHPUT = QuestionSpec(
        "throughput",
        "samples per second of all replicas under Horovod",
        rule=SpeedFloor,
        between=Between.NEITHER,
    )
    BASELINE = QuestionSpec(
        "baseline",
        "throughput / throughput of the session of --baseline",
        between=Between.NEITHER,
    )
    STARTUP_INIT = _startup("init")
    STARTUP_TRACE = _startup("trace", " per gradient tensor")
    STARTUP_FIRST_STEP = _startup("first step")
    STARTUP_BROADCAST = _startup("broadcast")

    @property
    def label(self) -> str:
        """The name with blanks, for people."""
        return "A/A" if self is Question.AA else self.spec.name.replace("_", " ")


# Steps of Horovod and of another strategy, which train the same weights.
OF_STRATEGIES = (Question.PARITY, Question.HOROVOD_OVERHEAD, Question.MULTIWORKER)
# Speeds by themselves, which a line of the thresholds or --baseline asks, and no profile.
SPEEDS = (Question.THROUGHPUT, Question.BASELINE)


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
    throughput, baseline: the samples per second of all replicas over ideal_ratio, which is 1 or the
        throughput of the baseline, with the same arm on both sides.
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
    def is_of_one_side(self) -> bool:
        """True if the figure is a speed, a time or a growth, and no ratio of two sides."""
        return self.candidate == self.reference

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
        apart = self.is_fault_case or self.question.spec.own_rounds
        return RoundGroup(self.workload, self.question.spec.work, self.topic if apart else "")

    @property
    def is_fault_case(self) -> bool:
        """True if the candidate has an injected fault, to see whether the suite reports it
        (hvdperf.plan.questions)."""
        return self.judged_as is JudgedAs.DETECTION

    @property
    def variant(self) -> str:
        """A short name that distinguishes the comparison from others of its question, or ""."""
        if self.is_fault_case:
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
        if self.is_fault_case:
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
