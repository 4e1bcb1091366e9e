"""Workloads, arms and the sides that are compared, exchanged tensors, and the terms of a time
breakdown. Pure data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum

from hvdperf.json_records import Positive
from hvdperf.models.registry import SCRIPT
from hvdperf.worker.strategies import Strategy


@dataclass(frozen=True)
class Exchange:
    """One way in which Horovod exchanges gradients. The values here are Horovod's defaults.

    compression: "none", or "fp16" for half the bytes. reduction: "average", or "adasum"
    (arXiv:2006.02924). groups: number of groups whose tensors are reduced together, 0 for none.
    sparse_as_dense: reduce an embedding's gradient rather than gather its rows. fusion_bytes: size
    of the fusion buffer. cycle_ms: time for which tensors are collected for that buffer. Both are
    None for Horovod's own. tolerance: the largest difference of the weights from those of the
    default, besides rounding, as a part of their change by training; None if they are meant to
    differ.
    """

    compression: str = "none"
    reduction: str = "average"
    groups: int = 0
    sparse_as_dense: bool = False
    fusion_bytes: int | None = None
    cycle_ms: float | None = None
    tolerance: float | None = 1e-5


# By the short name that a case shows. "" is Horovod's default.
EXCHANGES = {
    "": Exchange(),
    # The weights of resnet_50_s differ by 1.3 % after two steps.
    "fp16": Exchange(compression="fp16", tolerance=0.05),
    "group": Exchange(groups=1),
    # Adasum does not support sparse gradients.
    "adasum": Exchange(reduction="adasum", sparse_as_dense=True, tolerance=None),
    "dense": Exchange(sparse_as_dense=True),
    "nofuse": Exchange(fusion_bytes=0),
    "cycle": Exchange(cycle_ms=25.0),
}

# What a launch leaves as Open MPI and TensorFlow have it by default, by the short name that a case
# shows. The suite's own launches change all of it: a rank that waits yields its core, ranks are not
# bound by mpirun, and TensorFlow has as many threads as a rank has cores.
POLLING, BINDING, THREADS = "polling", "binding", "threads"
LAUNCHES = {
    "": (),
    "default": (POLLING, BINDING, THREADS),
    **{name: (name,) for name in (POLLING, BINDING, THREADS)},
}

# Each recipe maps to the fields of a workload that it changes.
# On CPUs oneDNN supports bfloat16, while float16 takes 30 to 60 times as long as float32.
RECIPES: dict[str, dict[str, str]] = {
    "bf16": {"precision": "mixed_bfloat16"},
    "f16": {"precision": "mixed_float16"},
    # Warmed up, then reduced when training stalls (hvdperf/worker/learning.py).
    "rate": {"learning_rate": "adaptive"},
}
PRECISIONS = (
    "float32",
    *(changes["precision"] for changes in RECIPES.values() if "precision" in changes),
)


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


class Collective(Enum):
    """The operations by which Horovod exchanges gradients and weights."""

    ALLREDUCE = "allreduce"
    ALLGATHER = "allgather"
    BROADCAST = "broadcast"
    REDUCESCATTER = "reducescatter"

    def bus_factor(self, world_size: int) -> float:
        """Return busbw / algbw: 2 (n - 1) / n for allreduce, 1 for broadcast, else (n - 1) / n.

        A rank's link has to carry at least this multiple of the size in one direction.
        """
        others = (world_size - 1) / world_size
        return {Collective.ALLREDUCE: 2 * others, Collective.BROADCAST: 1.0}.get(self, others)


@dataclass(frozen=True)
class Transfer:
    """Tensors that are exchanged at once. tensor_bytes: the size of each tensor in bytes; empty for
    the gradients of the model."""

    collective: Collective
    tensor_bytes: tuple[int, ...] = ()


class Schedule(Enum):
    """The order in which the arms of a round run.

    ALTERNATE: all arms live side by side and take turns block by block; idle arms are stopped.
    FRESH: the arms are started one after the other, each alone on the machine.
    """

    ALTERNATE = "alternate"
    FRESH = "fresh"


@dataclass(frozen=True)
class Workload:
    """A training task, without the way in which it is spread over devices.

    batch: samples per replica and step; 1 for a script, whose batch is its own. input_size: pixels
    a side, or words a sequence. precision: the policy of Keras under which the network is built.
    learning_rate: "constant", or "adaptive" (hvdperf/worker/learning.py).
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
        if self.is_script:
            return self.model
        return f"{self.model}/{self.dataset}/{self.input_size}/batch{self.batch}"

    @property
    def is_script(self) -> bool:
        """Whether it is a training script of the user's, which has its own data and batch."""
        return self.dataset == SCRIPT

    @property
    def recipes(self) -> tuple[str, ...]:
        """The names of the recipes that the workload follows, as RECIPES has them."""
        return tuple(
            name
            for name, changes in RECIPES.items()
            if all(getattr(self, key) == value for key, value in changes.items())
        )


# A workload that trains nothing: its launches exchange tensors of given sizes, and skip the later
# phases of the start-up.
SWEEP = Workload("sweep", "none", input_size=0, batch=0)


# The stack that --against names.
AGAINST = "against"
# The value of `injected` for an arm without a fault that is compared with its equal (an A/A pair).
AA = "aa"


@dataclass(frozen=True)
class Arm:
    """A workload run one way. One launch of an arm is one group of processes.

    exchange: a key of EXCHANGES. launched: a key of LAUNCHES. passes: number of batches, one a
    step, whose gradients are added up before they are exchanged and applied (Horovod's
    `backward_passes_per_step`). stack: the installed stack that runs the arm: "" for the session's
    own, or AGAINST. injected: the injected fault: "", or a key of
    hvdperf.plan.questions.FAULT_CASES, of which AA is one.
    """

    workload: Workload
    strategy: Strategy
    world_size: Positive
    exchange: str = ""
    passes: Positive = 1
    stack: str = ""
    injected: str = ""
    launched: str = ""

    @property
    def name(self) -> str:
        return f"{self.workload.model} {self.label}"

    @property
    def variants(self) -> tuple[str, ...]:
        """Short names of the settings that differ from the default."""
        several = "passes" if self.passes > 1 else ""
        return tuple(filter(None, (self.exchange, several, self.launched, *self.workload.recipes)))

    @property
    def label(self) -> str:
        suffixes = filter(None, (*self.variants, self.injected, self.stack))
        return "+".join((f"{self.strategy.value}@{self.world_size}", *suffixes))

    @property
    def processes(self) -> int:
        """The number of processes that a launch starts."""
        return 1 if self.strategy.spec.one_process else self.world_size


@dataclass(frozen=True)
class Side:
    """One side of a comparison: the blocks of one kind of one arm."""

    arm: Arm
    kind: BlockKind = BlockKind.FULL


KIB, MIB = 1024, 1024 * 1024
SWEEP_BYTES = (64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 128 * MIB)


def algbw(size_bytes: int, seconds: float) -> float:
    """Return the algorithm bandwidth in GB/s (10^9 bytes per second)."""
    return size_bytes / seconds / 1e9


def busbw(collective: Collective, world_size: int, size_bytes: int, seconds: float) -> float:
    """Return the bus bandwidth in GB/s (10^9 bytes per second): algbw times a factor that makes it
    comparable with the bandwidth of the links, whatever the number of ranks.

    Both are defined as in nccl-tests (doc/PERFORMANCE.md there). The size is that of the whole
    buffer: the one with which every rank ends an allgather, or begins a reducescatter."""
    return algbw(size_bytes, seconds) * collective.bus_factor(world_size)


class Term(StrEnum):
    """A part of the wall time of a training (hvdperf/explain/time_breakdown.py defines each), or
    another cause that an attribution can name.

    INSIDE: COMPUTE or EXCHANGE, if the measured blocks cannot tell which. MEMORY takes no time.
    COLLECTING, OTHERS and OTHER_EXCHANGE are known of a script only (hvdperf/script/terms.py).
    """

    LAUNCH = "launch"
    IMPORT = "import"
    INIT = "init"
    BUILD = "build"
    INPUT_OPENED = "input"
    TRACE = "trace"
    FIRST_STEP = "first step"
    BROADCAST = "broadcast"
    READY = "ready"
    BETWEEN = "between steps"
    INPUT = "input wait"
    STRAGGLER = "straggler wait"
    COMPUTE = "compute"
    APPLY = "apply"
    LONG_STEPS = "rare long steps"
    EXCHANGE = "exposed communication"
    END = "end"
    COLLECTING = "garbage collector"
    OTHERS = "other functions"
    OTHER_EXCHANGE = "other exchanges"
    INSIDE = "compute or communication"
    MEMORY = "memory"


# All parts of the wall time, and of these the phases of a start after the launch and the parts of a
# step, in their order.
TERMS = tuple(Term)[: list(Term).index(Term.END) + 1]
_STEPS_BEGIN = TERMS.index(Term.BETWEEN)
START, OF_STEPS = TERMS[1:_STEPS_BEGIN], TERMS[_STEPS_BEGIN:-1]
# Terms that only blocks without exchange can separate.
NEED_LOCAL_BLOCKS = (Term.COMPUTE, Term.EXCHANGE)
