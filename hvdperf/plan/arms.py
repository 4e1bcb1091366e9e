"""What is to be measured: workloads, arms, sides, comparisons and profiles. Pure data, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from hvdperf.plan.collectives import Collective
from hvdperf.plan.exchanges import EXCHANGES
from hvdperf.plan.recipes import RECIPES


class Strategy(Enum):
    """How the replicas of a training run are spread over devices. BARE trains nothing: it is the
    transport without a framework."""

    HOROVOD = "horovod"
    MIRRORED = "mirrored"
    MULTIWORKER = "multiworker"
    SINGLE = "single"
    BARE = "bare"


class BlockKind(Enum):
    """What one timed block trains.

    FULL: every replica takes the workload's batch (weak scaling).
    SPLIT: the workload's batch is divided among the replicas (strong scaling).
    LOCAL: as FULL, but the gradients are not allreduced: the step's cost without communication.
    COMPUTE: as LOCAL, but they are not applied either: the forward and the backward pass.
    """

    FULL = "full"
    SPLIT = "split"
    LOCAL = "local"
    COMPUTE = "compute"


class Schedule(Enum):
    """How the arms of a round take turns.

    ALTERNATE: all arms live side by side and take turns block by block, the idle ones stopped.
    FRESH: the arms are started one after the other, each alone on the machine.
    """

    ALTERNATE = "alternate"
    FRESH = "fresh"


class LaunchMode(Enum):
    """What the launches of a round do. Comparisons of one workload and one kind of work share them.

    BLOCKS: timed blocks, in turns. STARTUP: nothing but start. EPOCHS: train from new weights for
    so many epochs, then validate. TIME, ENDURANCE: train for so many seconds, or so many steps.
    LEDGER: train for so many steps with a mark at everything, then find out what a step is made of.
    COLLECTIVES: exchange tensors through Horovod and without it, between blocks if those are asked
    for.
    """

    BLOCKS = "blocks"
    STARTUP = "startup"
    EPOCHS = "epochs"
    TIME = "time"
    ENDURANCE = "endurance"
    LEDGER = "ledger"
    COLLECTIVES = "collectives"

    @property
    def is_run(self) -> bool:
        return self in (LaunchMode.EPOCHS, LaunchMode.TIME, LaunchMode.ENDURANCE, LaunchMode.LEDGER)


_STARTUP = "startup_"
_CONVERGENCE = "convergence_"
_WALL = "wall_"


class Question(Enum):
    """What a case asks. The value is the key of its threshold in ci/thresholds/*.toml."""

    WEAK_SCALING = "weak_scaling"
    STRONG_SCALING = "strong_scaling"
    COMMUNICATION = "communication"
    PARITY = "parity"
    SAME = "same"
    TAX = "tax"
    MULTIWORKER = "multiworker"
    EXCHANGE = "exchange"
    RECIPE = "recipe"
    CONVERGENCE_LOSS = "convergence_loss"
    CONVERGENCE_ACCURACY = "convergence_accuracy"
    FIXED_TIME = "fixed_time"
    MEMORY = "memory"
    WALL_WEAK = "wall_weak"
    WALL_STRONG = "wall_strong"
    FRAMEWORK_TAX = "framework_tax"
    BOUND = "bound"
    STARTUP_INIT = "startup_init"
    STARTUP_TRACE = "startup_trace"
    STARTUP_FIRST_STEP = "startup_first_step"
    STARTUP_BROADCAST = "startup_broadcast"

    @property
    def phase(self) -> str:
        """The Phase of a start-up that the question is about (worker/protocol.py); else empty."""
        return self.value.removeprefix(_STARTUP).replace("_", " ") if self.is_startup else ""

    @property
    def is_startup(self) -> bool:
        return self.value.startswith(_STARTUP)

    @property
    def is_convergence(self) -> bool:
        return self.value.startswith(_CONVERGENCE)

    @property
    def is_wall(self) -> bool:
        """Whether it is about the wall time of a training."""
        return self.value.startswith(_WALL)

    @property
    def metric(self) -> str:
        """Of a validation, the part that the question is about; else empty."""
        return self.value.removeprefix(_CONVERGENCE) if self.is_convergence else ""

    @property
    def has_variants(self) -> bool:
        """Whether it is asked of several things at once, each with a threshold of its own."""
        return self.is_convergence or self in (
            Question.EXCHANGE,
            Question.RECIPE,
            Question.FRAMEWORK_TAX,
        )

    @property
    def is_speed(self) -> bool:
        """Whether its figure depends on how fast the machine is."""
        return not self.is_convergence and self is not Question.MEMORY

    @property
    def work(self) -> LaunchMode:
        """What is to be done to answer it."""
        if self.is_startup:
            return LaunchMode.STARTUP
        if self.is_convergence:
            return LaunchMode.EPOCHS
        if self.is_wall:
            return LaunchMode.LEDGER
        return {
            Question.FIXED_TIME: LaunchMode.TIME,
            Question.MEMORY: LaunchMode.ENDURANCE,
            Question.FRAMEWORK_TAX: LaunchMode.COLLECTIVES,
            Question.BOUND: LaunchMode.COLLECTIVES,
        }.get(self, LaunchMode.BLOCKS)


@dataclass(frozen=True)
class Workload:
    """A training task, apart from how it is spread.

    batch is the number of samples a replica takes per step; input_size is in pixels a side, or
    words a sequence. precision: the policy of Keras that the network is built under.
    learning_rate: "constant", or "adaptive" (hvdperf/worker/learning_rate.py).
    """

    model: str
    dataset: str
    input_size: int
    batch: int
    optimizer: str = "adam"
    precision: str = "float32"
    learning_rate: str = "constant"

    @property
    def name(self) -> str:
        return f"{self.model}/{self.dataset}/{self.input_size}/batch{self.batch}"

    @property
    def recipes(self) -> tuple[str, ...]:
        """The recipes that it is trained by (hvdperf.plan.recipes)."""
        return tuple(
            name
            for name, changes in RECIPES.items()
            if all(getattr(self, key) == value for key, value in changes.items())
        )


# Trains nothing: its launches exchange tensors of given sizes, and start no further than for that.
SWEEP = Workload("sweep", "none", input_size=0, batch=0)


# The stack that --against names.
AGAINST = "against"
# Planted into an arm that is compared with itself: nothing.
TWIN = "twin"


@dataclass(frozen=True)
class Arm:
    """A workload run one way. One launch of an arm is one group of processes.

    exchange: a key of EXCHANGES. passes: how many batches' gradients are added up, each in a step,
    before they are exchanged and applied (Horovod's `backward_passes_per_step`). stack: which of a
    session's installed stacks runs it: empty for its own, or AGAINST. planted: what is wrong with
    it on purpose: empty, or a key of hvdperf.plan.fault_cases.TRIALS, of which TWIN is one.
    """

    workload: Workload
    strategy: Strategy
    world_size: int
    exchange: str = ""
    passes: int = 1
    stack: str = ""
    planted: str = ""

    @property
    def name(self) -> str:
        return f"{self.workload.model} {self.label}"

    @property
    def variants(self) -> tuple[str, ...]:
        """In what it is not the default, in short names."""
        several = "passes" if self.passes > 1 else ""
        return tuple(filter(None, (self.exchange, several, *self.workload.recipes)))

    @property
    def label(self) -> str:
        otherwise = filter(None, (self.planted, self.stack))
        return "+".join((f"{self.strategy.value}@{self.world_size}", *self.variants, *otherwise))

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
    start-up is a time in seconds, per gradient tensor for the trace, and that of memory by what
    factor a process grows in 1,000 steps; both sides are then the same. That of convergence is the
    ratio of the validation's losses or accuracies, and that of a fixed time of the samples. That of
    a framework's tax is the time of a collective operation through Horovod over the bare
    transport's, and that of a bound the time of a step over that of one which hides nothing of its
    exchange (hvdperf.plan.collectives).
    """

    question: Question
    candidate: Side
    reference: Side
    ideal_ratio: float = 1.0
    collective: Collective | None = None

    @property
    def workload(self) -> Workload:
        """What is asked about: of a recipe, what it would change."""
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
    def round_group(self) -> tuple[Workload, LaunchMode, str]:
        """What it shares with the comparisons that are judged from the same rounds: a workload,
        what its launches do, and a topic that has them for itself, since it has many arms and all
        of a round's live side by side, in memory."""
        apart = self.is_trial or self.question in (Question.EXCHANGE, Question.RECIPE)
        return self.workload, self.question.work, self.topic if apart else ""

    @property
    def is_trial(self) -> bool:
        """Whether something is planted into its candidate to see what the suite says of it
        (hvdperf.plan.fault_cases)."""
        return bool(self.candidate.arm.planted) and self.question is not Question.SAME

    @property
    def variant(self) -> str:
        """What tells it from others of its question, in a short name; empty if nothing has to."""
        if self.is_trial:
            return self.candidate.arm.planted
        if self.question.is_startup:
            return self.question.phase.replace(" ", "_")
        if self.question.is_wall:
            return self.question.value.removeprefix(_WALL)
        if self.question.is_convergence:
            return f"{self.question.metric}-{self.reference.arm.strategy.value}"
        if self.collective is not None:
            return self.collective.value
        ours, theirs = self.candidate.arm.variants, self.reference.arm.variants
        if self.is_against:
            theirs = ()
        return "+".join(name for name in ours if name not in theirs)

    @property
    def is_against(self) -> bool:
        """Whether it holds an arm against the same one under another stack, or with nothing planted
        into it."""
        ours, theirs = self.candidate.arm, self.reference.arm
        return (ours.stack, ours.planted) != (theirs.stack, theirs.planted)

    @property
    def case(self) -> str:
        """What tells it from others of its topic: fp16-resnet_50_s-np2."""
        return "-".join(filter(None, (self.variant, self.workload.model, f"np{self.world_size}")))

    @property
    def topic(self) -> str:
        if self.is_trial:
            return "trust"
        if self.question.is_startup:
            return "startup"
        if self.question.is_wall:
            return "wall_time"
        return "convergence" if self.question.is_convergence else self.question.value

    @property
    def name(self) -> str:
        return f"{self.topic}[{self.case}]"

    @property
    def tolerance(self) -> float | None:
        """By what part of their change by training, besides rounding, the weights of both sides may
        differ; None where nothing is known of that, or both sides are the same arm."""
        if self.is_against:
            return None  # another version may compute otherwise
        if self.question in (Question.PARITY, Question.TAX, Question.MULTIWORKER):
            meant: float | None = 1e-5
        elif self.question is Question.EXCHANGE and self.candidate.arm.passes == 1:
            meant = EXCHANGES[self.candidate.arm.exchange].tolerance
        else:
            meant = None
        # Where the order of a sum differs, half precision is rounded to another neighbour.
        half = self.workload.precision != "float32"
        return max(meant, 0.05) if meant is not None and half else meant


@dataclass(frozen=True)
class Sampling:
    """How much evidence is taken, and how long one may wait for it.

    looks: numbers of rounds after which a case may PASS or FAIL, ascending; a round is one launch
    of every arm. early: whether a case may PASS before, after three rounds or more
    (hvdperf.interim). turns_min, turns_max: how often the arms take turns within a launch: as often
    as is worth it, within these (hvdperf.scatter.turns_worth).
    min_block_seconds, at the pace of the warm-up, and min_block_steps bound a block from below.
    Deadlines are in seconds, an order each; a block of a launch that is known to be slow gets
    longer (hvdperf.measure.round_runner).
    """

    looks: tuple[int, ...] = (8, 12, 24)
    early: bool = True
    turns_min: int = 4
    turns_max: int = 8
    min_block_seconds: float = 0.3
    min_block_steps: int = 10
    startup_deadline_s: float = 240.0
    block_deadline_s: float = 60.0


@dataclass(frozen=True)
class Runs:
    """How long launches train that train to an end.

    epochs: over the training data, and steps_max: no more steps than these of whatever data there
    is. seconds: of a fixed wall time. endurance_steps: while memory is watched. ledger_steps: of a
    run that is accounted for, and ablation_turns: how often each kind of step is then timed.
    deadline_s: of one run with its validation.
    """

    epochs: int = 20
    steps_max: int = 5000
    seconds: float = 10.0
    endurance_steps: int = 1500
    ledger_steps: int = 400
    ablation_turns: int = 6
    deadline_s: float = 600.0


@dataclass(frozen=True)
class Profile:
    """A named amount of work: which workloads, at which sizes, for how long.

    batch: samples per replica and step. world_sizes: empty for powers of two up to the slots,
    plus all of them. parity_from: the smallest world size that parity is asked at. oversubscribed:
    the networks whose communication is judged where replicas share cores; empty for all.
    questions: empty for all. representatives: of what is not asked of every network, of which.
    trials: what is planted (hvdperf.plan.fault_cases.TRIALS), into which networks.
    sentinels: networks that are traced and no more. budget_s: the session begins no round that
    would end past this, save the first of each workload and kind of work.
    """

    name: str
    models: tuple[str, ...]
    dataset: str
    batch: int
    budget_s: float
    sampling: Sampling = Sampling()
    runs: Runs = Runs()
    schedule: Schedule = Schedule.ALTERNATE
    world_sizes: tuple[int, ...] = ()
    parity_from: int = 1
    oversubscribed: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()
    representatives: Mapping[Question, tuple[str, ...]] = field(default_factory=dict)
    trials: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sentinels: tuple[str, ...] = ()


def default_world_sizes(slots: int) -> tuple[int, ...]:
    """Powers of two up to the number of slots, plus all of them: 6 -> (1, 2, 4, 6)."""
    sizes = []
    size = 1
    while size < slots:
        sizes.append(size)
        size *= 2
    return (*sizes, slots)
