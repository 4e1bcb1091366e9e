"""The interface between a rank's loop and a strategy, a class in a file beside this one."""

from collections.abc import Sequence
from typing import Any, Optional, Protocol

from hvdperf.worker import training
from hvdperf.worker.learning import Constant
from hvdperf.worker.training import Config

Facts = dict[str, Any]


class Trainer(Protocol):
    """The training of one rank: the phases of start-up, in their order, then blocks of steps. What
    has a body here is the same for most strategies.

    A batch is that of a task (models.tasks.Step), in the form in which the strategy spreads it over
    its replicas. Block kinds are the values of hvdperf.plan.arms.BlockKind.
    """

    config: Config
    learning_rate: Constant
    # Samples of this process in a pass over the user's own data; None until a pass is over.
    samples_of_a_pass: Optional[int] = None

    def __init__(self, config: Config) -> None: ...

    def init(self) -> Facts:
        """Join the group. Return the world size, this process's rank and the transport."""

    def build(self) -> Facts:
        """Build model and optimizer. Return the counts of parameters, of gradient tensors and of
        gradient bytes."""

    def open_input(self) -> None: ...

    def trace(self) -> Optional[Facts]:
        """Trace every step function that the launch will need."""

    def first_step(self) -> Optional[Facts]: ...

    def broadcast(self) -> None:
        """Give every rank the state of rank 0."""

    def barrier(self) -> None: ...

    def enter_block(self, kind: str) -> None: ...

    def leave_block(self, kind: str) -> None: ...

    def next_batch(self, kind: str) -> Any: ...

    def ablation(self) -> Facts:
        """Trace the steps of kinds `local` and `compute` unless that has been done. After this,
        blocks of these kinds can be timed."""

    def step(self, kind: str, batch: Any) -> Any:
        """Train on one batch. Return the loss, a scalar tensor that may not be computed yet."""

    def own_loss(self, loss: float) -> float:
        """Return the mean loss of this process's samples. loss: the value that `step` returned."""

    def count(self, batch: Any) -> int:
        """Return how many samples of the batch this process trains on."""

    def total(self, values: Sequence[float]) -> list[float]:
        """Return each value added up over all processes."""

    def validate(self) -> Facts:
        """Return loss, accuracy, samples and chance_loss over the whole validation set, the same on
        all processes. Raises ValueError if the strategy does not validate."""

    def leave_group(self) -> None:
        """End the communication as a user's script does at its end."""

    def evidence(self) -> Facts:
        """Return the world size that the framework reports, the learning rate, and a digest of the
        weights of every replica of this process."""

    def correctness(self, steps: int, path: str) -> Facts:
        """Train a second model by SGD from the same seed, reproducibly. Every replica trains on the
        first batches of its own shard. Rank 0 writes the trainable weights to path (.npz): begun0,
        begun1, ... before the steps, trained0, ... after them.

        Returns loss (of the first step, before its update, a mean over this process's samples), and
        digests and samples (hashes of the weights, and of the batches, of each replica of this
        process); or, of a device that cannot repeat a training exactly, irreproducible (why)."""
        self.config = training.of_another_batch(self.config)
        try:
            with training.reproducible():
                return self.train_again(steps, path)
        except training.Irreproducible as error:
            return {"loss": 0.0, "digests": [], "irreproducible": str(error)}

    def train_again(self, steps: int, path: str) -> Facts:
        """Train the second model of `correctness`, and return what that returns."""
