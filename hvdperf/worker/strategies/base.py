"""What the rank's loop asks of a strategy. One file beside this one implements it per strategy."""

from collections.abc import Sequence
from typing import Any, Protocol

from hvdperf.worker.learning_rate import Constant
from hvdperf.worker.training import Config

Facts = dict[str, Any]


class Trainer(Protocol):
    """The phases of start-up, in their order, then blocks of steps.

    A batch is a task's (models.tasks.Step), in whatever form the strategy spreads it over its
    replicas. Block kinds are the values of hvdperf.plan.arms.BlockKind.
    """

    config: Config
    learning_rate: Constant

    def __init__(self, config: Config) -> None: ...

    def init(self) -> Facts:
        """Join the group: world size, this process's rank, the transport."""

    def build(self) -> Facts:
        """Model and optimizer: parameters, gradient tensors, gradient bytes."""

    def open_input(self) -> None: ...

    def trace(self) -> None:
        """Trace every step function that the launch will need."""

    def first_step(self) -> None: ...

    def broadcast(self) -> None:
        """Give every rank the state of rank 0."""

    def barrier(self) -> None: ...

    def enter_block(self, kind: str) -> None: ...

    def leave_block(self, kind: str) -> None: ...

    def next_batch(self, kind: str) -> Any: ...

    def ablation(self) -> Facts:
        """Trace the steps of kinds `local` and `compute` where that has not been done: after this,
        blocks of them can be timed."""

    def step(self, kind: str, batch: Any) -> Any:
        """Train on one batch; the loss, a scalar tensor that may not have been computed yet."""

    def own_loss(self, loss: float) -> float:
        """From what `step` returned to the mean loss of the samples that this process trains on."""

    def count(self, batch: Any) -> int:
        """How many samples this process trains on with that batch."""

    def total(self, values: Sequence[float]) -> list[float]:
        """Each value added up over all processes."""

    def validate(self) -> Facts:
        """Loss, accuracy and samples over the whole validation set, on all processes alike."""

    def leave_group(self) -> None:
        """End the communication as a user's script does at its end."""

    def evidence(self) -> Facts:
        """World size as the framework sees it, the learning rate, and a digest of every replica's
        weights."""

    def correctness(self, steps: int, path: str) -> Facts:
        """Train a second model by SGD from the same seed, reproducibly: this process's replicas
        take contiguous slices of each global batch, in rank order. Rank 0 writes the trainable
        weights to path (.npz)."""

    def gradients(self, path: str) -> Facts:
        """Write this rank's own gradients of one batch, and the reduced ones, to path (.npz, with
        {rank} in its name)."""

    def timeline(self, steps: int, path: str) -> Facts:
        """Train so many steps while Horovod records its timeline to path, on rank 0's host.

        Returns seconds (of the steps, on this rank, until the last loss is there) and, on rank 0,
        activities (name -> seconds of the union of its intervals) and wire_seconds (of the union of
        all that are on the wire), as worker/horovod_timeline.py says. The file also has the barrier
        that the steps begin with; it is not counted. Raises ValueError for a strategy other than
        Horovod, or if the launch was not started to be recorded."""
