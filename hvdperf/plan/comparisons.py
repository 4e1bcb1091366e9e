"""Comparisons: a question about one workload at one world size.

The questions have one row each, with all their differences. The comparisons that answer them are in
hvdperf/plan/questions.py. Pure data, no I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from hvdperf.models.registry import network
from hvdperf.plan.arms import EXCHANGES, Arm, Collective, Side, Workload
from hvdperf.verdict import Band, Ceiling, Floor, Rule, SpeedFloor
from hvdperf.worker.protocol import Phase


class Between(Enum):
    """The side of a comparison that --against measures under both stacks. NEITHER: this question
    does not compare stacks."""

    CANDIDATE = "candidate"
    REFERENCE = "reference"
    NEITHER = "neither"


class Scaling(Enum):
    """The work of n replicas. WEAK: each does as much as one alone. STRONG: they divide it."""

    WEAK = "weak"
    STRONG = "strong"


class Facts(NamedTuple):
    """The facts of a session by which it is known whether a comparison can be made.

    is_over_mpi: whether Horovod communicates over MPI, which mpi4py can use without Horovod.
    compares_stacks: whether two stacks are compared. parity_from: the smallest world size at which
    parity is asked. held_out: number of samples to validate the network on; 0 if its quality cannot
    be measured.
    """

    is_over_mpi: bool
    compares_stacks: bool
    parity_from: int
    held_out: int


class Need(NamedTuple):
    """A condition of a question, besides that the session can run both sides. text: for the
    reference; "" if that says it elsewhere. is_met: for a comparison, in a session."""

    text: str
    is_met: Callable[[Comparison, Facts], bool]


_MPI = Need("`--launcher mpirun`", lambda _, facts: facts.is_over_mpi)
_HELD_OUT = Need(
    "held-out data, at least one sample per rank",
    lambda asked, facts: facts.held_out >= asked.world_size,
)
# If only the rows of a table are exchanged that were looked up, bare MPI would exchange more. Of a
# network of the user's own this is not known before it is tried.
_WHOLE_GRADIENTS = Need(
    "not a language model", lambda asked, _: not network(asked.workload.model).looks_up_rows
)
_LARGE_ENOUGH = Need("", lambda asked, facts: asked.world_size >= facts.parity_from)
# No ceiling fits every script's trace, whose fixed part does not grow with tensors.
_NO_SCRIPT_ALONE = Need(
    "", lambda asked, facts: facts.compares_stacks or not asked.workload.is_script
)


@dataclass(frozen=True)
class QuestionSpec:
    """One question.

    name: key of its thresholds, heading on the terminal, and beginning of the case's name unless
    there is a `topic`. meaning: what the figure is. work: name of the work of the launches that
    answer it (hvdperf/work/table.py). rule: kind of rule that judges its figure; unit: of a figure
    that is not a ratio. topic, part: the two parts of a case's name, if one test asks several
    questions; the part is a phase of a start, or a field of a validation. scaling: of the
    efficiency that is asked for. has_variants: whether each variant has a threshold of its own.
    own_rounds: whether its arms, which are many, have rounds of their own. is_speed: whether the
    figure depends on the speed of the machine. same_weights: whether both sides have to train the
    same weights; of_strategies: whether they are Horovod and another strategy, too.
    without_exchange: whether steps are taken that exchange nothing. between: side that two stacks
    are compared by. asked_by_line: whether a line of the thresholds asks it, not a profile.
    of_sentinels: whether it is asked of networks of which only the trace is measured; of_scripts:
    whether of training scripts. needs: of a session.
    """

    name: str
    meaning: str
    work: str = "blocks"
    rule: type[Rule] = Floor
    unit: str = ""
    topic: str = ""
    part: str = ""
    scaling: Scaling | None = None
    has_variants: bool = False
    own_rounds: bool = False
    is_speed: bool = True
    same_weights: bool = False
    of_strategies: bool = False
    without_exchange: bool = False
    between: Between = Between.CANDIDATE
    asked_by_line: bool = False
    of_sentinels: bool = False
    of_scripts: bool = False
    needs: tuple[Need, ...] = ()


def _startup(phase: Phase, per: str = "", *needs: Need) -> QuestionSpec:
    return QuestionSpec(
        f"startup_{phase.value.replace(' ', '_')}",
        f"seconds of the slowest rank's {phase.value}{per}",
        "startup",
        Ceiling,
        unit="s",
        topic="startup",
        part=phase.value,
        of_sentinels=phase is Phase.TRACE,
        of_scripts=phase is not Phase.BROADCAST,  # which may be anywhere in a script
        needs=needs,
    )


def _convergence(metric: str) -> QuestionSpec:
    return QuestionSpec(
        f"convergence_{metric}",
        f"validation {metric} of Horovod / that of the other strategy",
        "epochs",
        Band,
        topic="convergence",
        part=metric,
        has_variants=True,
        is_speed=False,
        needs=(_HELD_OUT,),
    )


def _wall(scaling: Scaling, meaning: str) -> QuestionSpec:
    return QuestionSpec(
        f"wall_time_{scaling.value}",
        meaning,
        "wall time",
        topic="wall_time",
        part=scaling.value,
        scaling=scaling,
        between=Between.NEITHER,
    )


def _strategies(name: str, meaning: str, rule: type[Rule], *needs: Need) -> QuestionSpec:
    return QuestionSpec(
        name,
        f"speed of Horovod{meaning}",
        rule=rule,
        same_weights=True,
        of_strategies=True,
        between=Between.REFERENCE,
        needs=needs,
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
        "weak_scaling",
        "speed of n replicas / n times that of one, a batch for each",
        scaling=Scaling.WEAK,
        of_scripts=True,
    )
    STRONG_SCALING = QuestionSpec(
        "strong_scaling",
        "speed of n replicas / n times that of one, with the batch divided",
        scaling=Scaling.STRONG,
    )
    COMMUNICATION = QuestionSpec(
        "communication",
        "speed with the exchange of gradients / speed without it",
        without_exchange=True,
        between=Between.REFERENCE,
        of_scripts=True,
    )
    PARITY = _strategies("parity", " / speed of MirroredStrategy", Band, _LARGE_ENOUGH)
    AA = QuestionSpec(
        "aa",
        "speed of one group / speed of an identical one",
        rule=Band,
        between=Between.NEITHER,
        of_scripts=True,
    )
    HOROVOD_OVERHEAD = _strategies(
        "horovod_overhead", " on one replica / speed of plain TensorFlow", Floor
    )
    MULTIWORKER = _strategies("multiworker", " / speed of MultiWorkerMirroredStrategy", Floor)
    GRADIENT_REDUCTION = QuestionSpec(
        "gradient_reduction",
        "speed with another way of exchange / speed with the default",
        has_variants=True,
        own_rounds=True,
        same_weights=True,
    )
    LAUNCH = QuestionSpec(
        "launch",
        "speed as launched by default / speed as the suite launches",
        has_variants=True,
        own_rounds=True,
        between=Between.NEITHER,
        of_scripts=True,
        needs=(_MPI,),
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
        of_scripts=True,
    )
    WALL_TIME_WEAK = _wall(Scaling.WEAK, "wall time of one replica / that of n, as many steps")
    WALL_TIME_STRONG = _wall(
        Scaling.STRONG, "wall time of one replica / n times that of n, steps divided"
    )
    COLLECTIVE_OVERHEAD = QuestionSpec(
        "collective_overhead",
        "time of a collective operation through Horovod / through bare MPI",
        "collectives",
        Ceiling,
        has_variants=True,
        between=Between.NEITHER,
        needs=(_MPI,),
    )
    OVERLAP = QuestionSpec(
        "overlap",
        "time of a step / time of one that hides nothing of its exchange",
        "collectives",
        Ceiling,
        without_exchange=True,
        between=Between.NEITHER,
        needs=(_MPI, _WHOLE_GRADIENTS),
    )
    THROUGHPUT = QuestionSpec(
        "throughput",
        "samples per second of all replicas under Horovod",
        rule=SpeedFloor,
        between=Between.NEITHER,
        asked_by_line=True,
        of_scripts=True,
    )
    STARTUP_INIT = _startup(Phase.INIT)
    STARTUP_TRACE = _startup(Phase.TRACE, " per gradient tensor", _NO_SCRIPT_ALONE)
    STARTUP_FIRST_STEP = _startup(Phase.FIRST_STEP)
    STARTUP_BROADCAST = _startup(Phase.BROADCAST)

    @property
    def label(self) -> str:
        """The name with blanks, for people."""
        return "A/A" if self is Question.AA else self.spec.name.replace("_", " ")

    @property
    def place(self) -> int:
        """The place among all questions, in the order of the rows."""
        return list(Question).index(self)


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
    second over all replicas: 1.0 is an ideal efficiency, or equality. Works of other kinds have
    other figures (Work.observe). A figure of a single side, such as a start, a growth of memory
    or a throughput, has the same arm on both.
    """

    question: Question
    candidate: Side
    reference: Side
    ideal_ratio: float = 1.0
    collective: Collective | None = None

    @property
    def workload(self) -> Workload:
        """The workload that the question is about; for a recipe, the one that it would change."""
        return self.reference.arm.workload

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
        if spec.part:
            other = self.reference.arm.strategy.value if spec.has_variants else ""
            return "-".join(filter(None, (spec.part.replace(" ", "_"), other)))
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
        arm = self.candidate.arm
        alike = self.question.spec.same_weights and arm.passes == 1
        meant = EXCHANGES[arm.exchange].tolerance if alike else None
        # If the order of a sum differs, half precision may round to another neighbour.
        half = self.workload.precision != "float32"
        return max(meant, 0.05) if meant is not None and half else meant
