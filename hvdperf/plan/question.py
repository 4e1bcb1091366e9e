"""The questions of cases, one row per question, with all their differences.

The comparisons that answer a question are in hvdperf/plan/questions.py. Pure data, no I/O.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hvdperf.verdict import Band, Ceiling, Floor, Rule


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
        "weak_scaling",
        "speed of n replicas / n times that of one, a batch for each",
    )
    STRONG_SCALING = QuestionSpec(
        "strong_scaling",
        "speed of n replicas / n times that of one, with the batch divided",
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
        "aa",
        "speed of one group / speed of an identical one",
        rule=Band,
        between=Between.NEITHER,
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
    RECIPE = QuestionSpec(
        "recipe",
        "speed with another recipe / speed with the workload's own",
        has_variants=True,
        own_rounds=True,
    )
    CONVERGENCE_LOSS = _convergence("loss")
    CONVERGENCE_ACCURACY = _convergence("accuracy")
    FIXED_TIME = QuestionSpec(
        "fixed_time",
        "samples of n replicas in a given time / n times those of one",
        "time",
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
