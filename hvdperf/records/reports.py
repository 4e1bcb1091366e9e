"""Reports of ranks: the answer of a rank to each order, and the times of a launch. Plain data.

Ranks send plain JSON; `Group.reports` decodes it (hvdperf/launch/group.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from msgspec import Meta

from hvdperf.json_records import Count, Figures, Number, Positive


@dataclass(frozen=True)
class Metadata:
    """The group and the model as one process sees them after its start.

    world_size: number of replicas that the framework reports. transport: the way of reducing
    gradients: mpi or gloo under Horovod, the cross-device operation of a TensorFlow strategy, or
    none. nccl: whether Horovod was built with NCCL. parameters: number of trained weights.
    gradient_tensors, gradient_bytes: number and size of the gradients that a step exchanges; of
    sparse gradients, the rows of one replica's batch. These three are 0 if no model was built.
    sparse_tensors: number of gradients of which single rows are gathered, such as an embedding's.
    other_exchanges: number of Horovod's operations in a step that do not reduce its gradients.
    """

    rank: Count
    world_size: Positive
    transport: str
    nccl: bool = False
    parameters: Count = 0
    gradient_tensors: Count = 0
    gradient_bytes: Count = 0
    sparse_tensors: Count = 0
    other_exchanges: Count = 0


@dataclass(frozen=True)
class BlockReport(Figures):
    """One timed block by the clock of one process (hvdperf/worker/steps.py).

    seconds: from the barrier before the first step to the loss of the last step. step_seconds,
    input_seconds: one per step; input_seconds is the wait for its batch. inside_seconds: of all
    steps, from the batch on. samples: consumed by this process. cpu_seconds: CPU time of all its
    threads. loss: of the last step. not_finite_at: the step since the start of the process at which
    the loss was not finite for the first time; None if it was finite throughout. resumed: how often
    a signal let the process go on that had been stopped.
    """

    seconds: Number
    step_seconds: Sequence[Number]
    input_seconds: Sequence[Number]
    inside_seconds: Number
    samples: Count
    cpu_seconds: Number
    loss: Number
    not_finite_at: Count | None = None
    resumed: Count = 0


@dataclass(frozen=True)
class CollectiveReport(Figures):
    """Repeats of a collective operation on one rank (hvdperf/worker/collectives.py).

    bytes: of all tensors together. tensors: number of tensors exchanged at once. seconds: one a
    repeat, from a barrier on. library: version of the MPI library in the process; None without one.
    problem: why the figures must not be used, in words; "" if they are sound.
    """

    bytes: Count
    tensors: Count
    seconds: Sequence[Number]
    library: str | None
    problem: str


@dataclass(frozen=True)
class Validation(Figures):
    """A pass over the validation data, with the same result on all processes. loss: mean of all
    samples. accuracy: share of right labels or words. samples: of all processes. chance_loss: loss
    of a uniform guess."""

    loss: Number
    accuracy: Number
    samples: Positive
    chance_loss: Number


@dataclass(frozen=True)
class RunReport(Figures):
    """A training run of one process (hvdperf/worker/steps.py).

    seconds: of the training, without its validation. steps: done; all ranks stop at the same one.
    epochs: steps over the steps of one pass over the data. samples: of this process. loss: of the
    last step. learning_rate: at the end. memory: rows of [steps, bytes of the resident set].
    timestamps: one row a step of [begun, had its batch, had met the other ranks, ended], in seconds
    since the run began; empty unless asked for. curve: rows of [steps, mean loss since the row
    before, learning rate]; empty in a run with timestamps. validation: None without one.
    samples_of_a_pass: as in Evidence.
    """

    seconds: Number
    steps: Count
    epochs: Number
    samples: Count
    loss: Number
    learning_rate: Number
    memory: Sequence[Annotated[Sequence[int], Meta(min_length=2, max_length=2)]]
    timestamps: Sequence[Annotated[Sequence[float], Meta(min_length=4, max_length=4)]]
    curve: Sequence[Annotated[Sequence[Number], Meta(min_length=3, max_length=3)]]
    validation: Validation | None = None
    samples_of_a_pass: Positive | None = None


@dataclass(frozen=True)
class Evidence(Figures):
    """The report of one process after its last block, which shows whether the replicas trained
    together.

    world_size: number of replicas that the framework reports. learning_rate: at the end. digests:
    SHA-256 of the weights, one a replica of this process. data, data_wanted: id of the training
    data that the process has read, and of the session's (hvdperf/worker/evidence.py); "" if it
    reads none. settings: of Horovod, NCCL, TensorFlow, OpenMP and XLA in the environment
    (hvdperf/worker/evidence.py). samples_of_a_pass: number of samples that this process has in one
    pass over the user's own data; None if the first pass is not over, or for other data.
    """

    world_size: Positive
    learning_rate: Number
    digests: Sequence[str]
    data: str
    data_wanted: str
    settings: Mapping[str, str] = field(default_factory=dict)
    samples_of_a_pass: Positive | None = None


@dataclass(frozen=True)
class Correctness(Figures):
    """The report of one process after a reproducible training of a second model. loss: of its first
    step, before the update. digests, samples: SHA-256 of the weights, and of the batches that they
    were trained on, one a replica of this process; samples is empty in documents of format 4."""

    loss: Number
    digests: Sequence[str]
    samples: Sequence[str] = ()


@dataclass(frozen=True)
class TimelineReport:
    """Steps that Horovod recorded. Only rank 0 has activities.

    steps, seconds: number and time of the recorded steps. activities: union of the intervals of
    each activity over all tensors, in seconds, by name. wire_seconds: union of all activities that
    move data between ranks; None on other ranks.
    """

    steps: Positive
    seconds: float
    activities: Mapping[str, float] | None = None
    wire_seconds: float | None = None


# Times of a launch: of its phases, by the ranks' clocks, and of its orders, by the session's. Ranks
# may run on other hosts, so clocks of two ranks must not be compared, except for the time of day,
# which is the session's: that of another host is corrected by an offset.


class Timestamp(NamedTuple):
    """The beginning of a phase. at: time of day, in epoch seconds. clock: the host's monotonic
    clock, in seconds from an arbitrary origin."""

    phase: str
    at: float
    clock: float


class Asked(NamedTuple):
    """An order. asked, answered: when it was given and when all ranks had answered, by the
    session's monotonic clock, in seconds since the launch."""

    op: str
    asked: float
    answered: float


class ClockOffset(NamedTuple):
    """By how much a host's time of day is ahead of the session's, in seconds. uncertainty: half of
    the shortest round trip by which it was measured; 0 on the session's own host."""

    seconds: float = 0.0
    uncertainty: float = 0.0


@dataclass(frozen=True)
class Timestamps(Figures):
    """The times of one launch, from before its launcher was started until it had ended.

    launched_at, ended_at: time of day, in epoch seconds; ended_at is NaN before the end. ranks: by
    rank, one timestamp per phase, in their order, with the session's time of day. offsets: by rank,
    what was subtracted from it. asked: the orders, in their order; the last one is `close`, which
    is answered when all ranks have left and, if they leave the group, the launcher has ended.
    """

    launched_at: float
    ended_at: Number
    ranks: Sequence[Sequence[Timestamp]]
    asked: Sequence[Asked]
    offsets: Sequence[ClockOffset] = ()
