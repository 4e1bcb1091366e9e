"""What is to be measured: workloads, arms, sides, comparisons and profiles. Pure data, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from harness.exchanges import EXCHANGES


class Strategy(Enum):
    """How the replicas of a training run are spread over devices."""

    HOROVOD = "horovod"
    MIRRORED = "mirrored"
    MULTIWORKER = "multiworker"
    SINGLE = "single"


class BlockKind(Enum):
    """What one timed block trains.

    FULL: every replica takes the workload's batch (weak scaling).
    SPLIT: the workload's batch is divided among the replicas (strong scaling).
    LOCAL: as FULL, but the gradients are not allreduced: the step's cost without communication.
    """

    FULL = "full"
    SPLIT = "split"
    LOCAL = "local"


class Schedule(Enum):
    """How the arms of a round take turns.

    ALTERNATE: all arms live side by side and take turns block by block, the idle ones stopped.
    FRESH: the arms are started one after the other, each alone on the machine.
    """

    ALTERNATE = "alternate"
    FRESH = "fresh"


_STARTUP = "startup_"


class Question(Enum):
    """What a case asks. The value is the key of its threshold in ci/thresholds/*.toml."""

    WEAK_SCALING = "weak_scaling"
    STRONG_SCALING = "strong_scaling"
    COMMUNICATION = "communication"
    PARITY = "parity"
    TAX = "tax"
    MULTIWORKER = "multiworker"
    EXCHANGE = "exchange"
    STARTUP_INIT = "startup_init"
    STARTUP_TRACE = "startup_trace"
    STARTUP_FIRST_STEP = "startup_first_step"
    STARTUP_BROADCAST = "startup_broadcast"

    @property
    def phase(self) -> str:
        """The phase of a start-up that the question is about (harness.wire.Phase); else empty."""
        return self.value.removeprefix(_STARTUP).replace("_", " ") if self.is_startup else ""

    @property
    def is_startup(self) -> bool:
        return self.value.startswith(_STARTUP)


@dataclass(frozen=True)
class Workload:
    """A training task, apart from how it is spread.

    batch is the number of samples a replica takes per step; input_size is in
    pixels a side, or words a sequence.
    """

    model: str
    dataset: str
    input_size: int
    batch: int
    optimizer: str = "adam"
    precision: str = "float32"

    @property
    def name(self) -> str:
        return f"{self.model}/{self.dataset}/{self.input_size}/batch{self.batch}"


@dataclass(frozen=True)
class Arm:
    """A workload run one way. One launch of an arm is one group of fresh processes.

    exchange: a key of EXCHANGES.
    """

    workload: Workload
    strategy: Strategy
    world_size: int
    exchange: str = ""

    @property
    def name(self) -> str:
        return f"{self.workload.model} {self.label}"

    @property
    def label(self) -> str:
        variant = f"+{self.exchange}" if self.exchange else ""
        return f"{self.strategy.value}@{self.world_size}{variant}"

    @property
    def processes(self) -> int:
        """How many a launch starts."""
        return 1 if self.strategy is Strategy.MIRRORED else self.world_size


@dataclass(frozen=True)
class Side:
    """One side of a comparison: the blocks of one kind of one arm."""

    arm: Arm
    kind: BlockKind = BlockKind.FULL


@dataclass(frozen=True)
class Comparison:
    """A question about one workload at one world size.

    Its figure is speed(candidate) / speed(reference) / ideal_ratio, speeds in samples per second
    over all replicas, so that 1.0 is the ideal of an efficiency and equality of a parity. That of a
    start-up is a time in seconds, per gradient tensor for the trace; both sides are then the same.
    """

    question: Question
    candidate: Side
    reference: Side
    ideal_ratio: float = 1.0

    @property
    def workload(self) -> Workload:
        return self.candidate.arm.workload

    @property
    def world_size(self) -> int:
        return self.candidate.arm.world_size

    @property
    def arms(self) -> tuple[Arm, ...]:
        return tuple(dict.fromkeys((self.candidate.arm, self.reference.arm)))

    @property
    def exchange(self) -> str:
        return self.candidate.arm.exchange

    @property
    def case(self) -> str:
        """What tells it from others of its topic: fp16-resnet_50_s-np2."""
        variant = self.question.phase.replace(" ", "_") or self.exchange
        return f"{variant}{'-' if variant else ''}{self.workload.model}-np{self.world_size}"

    @property
    def topic(self) -> str:
        return "startup" if self.question.is_startup else self.question.value

    @property
    def name(self) -> str:
        return f"{self.topic}[{self.case}]"

    @property
    def tolerance(self) -> float | None:
        """By how much, relatively, the weights that both sides train may differ; None where
        nothing is known of that, or both sides are the same arm."""
        if self.question in (Question.PARITY, Question.TAX, Question.MULTIWORKER):
            return 1e-5
        return EXCHANGES[self.exchange].tolerance if self.question is Question.EXCHANGE else None


@dataclass(frozen=True)
class Sampling:
    """How much evidence is taken, and how long one may wait for it.

    looks: numbers of rounds after which a verdict is tried, ascending; a round is one launch of
    every arm. turns_min, turns_max: how often the arms take turns within a launch: as often as
    the budget allows, within these. min_block_seconds and min_block_steps bound a block from
    below. Deadlines are in seconds, an order each.
    """

    looks: tuple[int, ...] = (6, 12, 24)
    turns_min: int = 3
    turns_max: int = 8
    min_block_seconds: float = 0.3
    min_block_steps: int = 10
    startup_deadline_s: float = 240.0
    block_deadline_s: float = 60.0


@dataclass(frozen=True)
class Profile:
    """A named amount of work: which workloads, at which sizes, for how long.

    batch: samples per replica and step. world_sizes: empty for powers of two up to the slots,
    plus all of them. parity_from: the smallest world size that parity is asked at. oversubscribed:
    the networks whose communication is judged where replicas share cores; empty for all.
    questions: empty for all. budget_s: the session begins no round that would end past this.
    """

    name: str
    models: tuple[str, ...]
    dataset: str
    batch: int
    budget_s: float
    sampling: Sampling = Sampling()
    schedule: Schedule = Schedule.ALTERNATE
    world_sizes: tuple[int, ...] = ()
    parity_from: int = 1
    oversubscribed: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()


def default_world_sizes(slots: int) -> tuple[int, ...]:
    """Powers of two up to the number of slots, plus all of them: 6 -> (1, 2, 4, 6)."""
    sizes = []
    size = 1
    while size < slots:
        sizes.append(size)
        size *= 2
    return (*sizes, slots)
