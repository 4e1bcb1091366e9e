"""The terms of a plan: workloads, arms, sides, comparisons and profiles. Pure data, no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from hvdperf.plan.collectives import Collective
from hvdperf.plan.exchanges import EXCHANGES
from hvdperf.plan.recipes import RECIPES


class Strategy(Enum):
    """A way to spread the replicas of a training run over devices. BARE trains nothing: it is the
    transport without a framework."""

    HOROVOD = "horovod"
    MIRRORED = "mirrored"
    MULTIWORKER = "multiworker"
    SINGLE = "single"
    BARE = "bare"


class BlockKind(Enum):
    """The work of one timed block.

    FULL: every replica takes the workload's batch (weak scaling).
    SPLIT: the workload's batch is divided among the replicas (strong scaling).
    LOCAL: as FULL, but without allreduce: the step's cost without communication.
    COMPUTE: as LOCAL, but without applying the gradients: the forward and the backward pass.
    """

    FULL = "full"
    SPLIT = "split"
    LOCAL = "local"
    COMPUTE = "compute"


class Schedule(Enum):
    """The order in which the arms of a round run.

    ALTERNATE: all arms live side by side and take turns block by block; idle arms are stopped.
    FRESH: the arms are started one after the other, each alone on the machine.
    """

    ALTERNATE = "alternate"
    FRESH = "fresh"


class LaunchMode(Enum):
    """The work of a round's launches, which comparisons of one workload and kind of work share.

    BLOCKS: run timed blocks, in turns. STARTUP: start, and nothing else. EPOCHS: train from new
    weights for a number of epochs, then validate. TIME: train for a number of seconds. ENDURANCE:
    train for a number of steps. LEDGER: train for a number of steps and mark the time of every
    part, then measure the parts of a step. COLLECTIVES: exchange tensors through Horovod and
    without it, between blocks if a comparison needs blocks, too.
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
    """The question of a case. The value is the key of its threshold in ci/thresholds/*.toml."""

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
        """The Phase of a start-up (worker/protocol.py) that the question is about, or ""."""
        return self.value.removeprefix(_STARTUP).replace("_", " ") if self.is_startup else ""

    @property
    def is_startup(self) -> bool:
        return self.value.startswith(_STARTUP)

    @property
    def is_convergence(self) -> bool:
        return self.value.startswith(_CONVERGENCE)

    @property
    def is_wall(self) -> bool:
        """True if the question is about the wall time of a training."""
        return self.value.startswith(_WALL)

    @property
    def metric(self) -> str:
        """The figure of a validation that the question is about, or ""."""
        return self.value.removeprefix(_CONVERGENCE) if self.is_convergence else ""

    @property
    def has_variants(self) -> bool:
        """True if the question has several variants, each with a threshold of its own."""
        return self.is_convergence or self in (
            Question.EXCHANGE,
            Question.RECIPE,
            Question.FRAMEWORK_TAX,
        )

    @property
    def is_speed(self) -> bool:
        """True if the figure depends on the speed of the machine."""
        return not self.is_convergence and self is not Question.MEMORY

    @property
    def work(self) -> LaunchMode:
        """The work of the launches that answer the question."""
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
    """A training task, without the way in which it is spread over devices.

    batch: samples per replica and step. input_size: pixels a side, or words a sequence. precision:
    the policy of Keras under which the network is built. learning_rate: "constant", or "adaptive"
    (hvdperf/worker/learning_rate.py).
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
        """The names of the recipes that the workload follows (hvdperf.plan.recipes)."""
        return tuple(
            name
            for name, changes in RECIPES.items()
            if all(getattr(self, key) == value for key, value in changes.items())
        )


# A workload that trains nothing: its launches only exchange tensors of given sizes, and start up
# only as far as that takes.
SWEEP = Workload("sweep", "none", input_size=0, batch=0)


# The stack that --against names.
AGAINST = "against"
# The value of `planted` for an arm without a fault that is compared with its equal (an A/A pair).
TWIN = "twin"


@dataclass(frozen=True)
class Arm:
    """A workload run one way. One launch of an arm is one group of processes.

    exchange: a key of EXCHANGES. passes: number of batches, one a step, whose gradients are added
    up before they are exchanged and applied (Horovod's `backward_passes_per_step`). stack: the
    installed stack that runs the arm: "" for the session's own, or AGAINST. planted: the injected
    fault: "", or a key of hvdperf.plan.fault_cases.TRIALS, of which TWIN is one.
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
        """Short names of the settings that differ from the default."""
        several = "passes" if self.passes > 1 else ""
        return tuple(filter(None, (self.exchange, several, *self.workload.recipes)))

    @property
    def label(self) -> str:
        otherwise = filter(None, (self.planted, self.stack))
        return "+".join((f"{self.strategy.value}@{self.world_size}", *self.variants, *otherwise))

    @property
    def processes(self) -> int:
        """The number of processes that a launch starts."""
        return 1 if self.strategy is Strategy.MIRRORED else self.world_size


@dataclass(frozen=True)
class Side:
    """One side of a comparison: the blocks of one kind of one arm."""

    arm: Arm
    kind: BlockKind = BlockKind.FULL


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
    wall time: the efficiency by the wall time of the training (hvdperf.judge.speedup).
    framework tax: the time of a collective operation through Horovod over that through the bare
        transport.
    bound: the time of a step over that of a step that hides nothing of its exchange
        (hvdperf.plan.collectives).
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
    def round_group(self) -> tuple[Workload, LaunchMode, str]:
        """The key that comparisons judged from the same rounds share: workload, work, and topic.

        The topic is "" except for exchanges, recipes and fault cases. These have rounds of their
        own, because they have many arms, and all arms of a round live side by side in memory.
        """
        apart = self.is_trial or self.question in (Question.EXCHANGE, Question.RECIPE)
        return self.workload, self.question.work, self.topic if apart else ""

    @property
    def is_trial(self) -> bool:
        """True if the candidate has an injected fault, to see whether the suite reports it
        (hvdperf.plan.fault_cases)."""
        return bool(self.candidate.arm.planted) and self.question is not Question.SAME

    @property
    def variant(self) -> str:
        """A short name that distinguishes the comparison from others of its question, or ""."""
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
        """True if the reference is the same arm under another stack, or without the injected
        fault."""
        ours, theirs = self.candidate.arm, self.reference.arm
        return (ours.stack, ours.planted) != (theirs.stack, theirs.planted)

    @property
    def case(self) -> str:
        """A name that is unique within the topic, such as fp16-resnet_50_s-np2."""
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
        """The tolerated difference of both sides' weights, besides rounding, as a part of their
        change by training. None if no limit is known, or if both sides are the same arm."""
        if self.is_against:
            return None  # another version may compute differently
        if self.question in (Question.PARITY, Question.TAX, Question.MULTIWORKER):
            meant: float | None = 1e-5
        elif self.question is Question.EXCHANGE and self.candidate.arm.passes == 1:
            meant = EXCHANGES[self.candidate.arm.exchange].tolerance
        else:
            meant = None
        # If the order of a sum differs, half precision may round to another neighbour.
        half = self.workload.precision != "float32"
        return max(meant, 0.05) if meant is not None and half else meant


@dataclass(frozen=True)
class Sampling:
    """The amount of evidence to take, and the longest waits for it.

    looks: numbers of rounds after which a case may PASS or FAIL, ascending; a round is one launch
    of every arm. early: whether a case may PASS before, after three rounds or more
    (hvdperf.interim). turns_min, turns_max: limits of the number of turns of a round, within which
    hvdperf.scatter.turns_worth chooses; rounds in which turns help no comparison may take fewer.
    min_block_seconds, min_block_steps: the shortest block, in seconds at the pace of the warm-up
    and in steps. startup_deadline_s, block_deadline_s: the longest wait for one order, in seconds;
    a block of a launch that is known to be slow gets longer (hvdperf.measure.round_runner).
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
    """The lengths of runs that train to an end.

    epochs: passes over the training data. steps_max: the most updates that these epochs take,
    whatever the size of the data. seconds: length of a run of fixed wall time. endurance_steps:
    steps of a run whose memory is watched. ledger_steps: steps of a run with a time breakdown.
    ablation_turns: how often each kind of step is timed after that run. deadline_s: the longest
    wait for one run with its validation, in seconds.
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

    batch: samples per replica and step. world_sizes: empty for powers of two up to the number of
    slots, plus that number. parity_from: the smallest world size at which parity is asked.
    oversubscribed: the networks whose communication is judged if replicas share cores; empty for
    all. questions: empty for all. representatives: for each question that is not asked of every
    network, the networks that it is asked of. trials: for each fault case
    (hvdperf.plan.fault_cases.TRIALS), the networks that get it. sentinels: networks of which only
    the trace is measured. budget_s: the session begins no round that would end after this many
    seconds, except the first round of each workload and kind of work.
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
    """Return powers of two below the number of slots, and that number: 6 -> (1, 2, 4, 6)."""
    sizes = []
    size = 1
    while size < slots:
        sizes.append(size)
        size *= 2
    return (*sizes, slots)
