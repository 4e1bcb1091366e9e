"""The interface between a rank's loop and a strategy, a class in a file beside this one."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from itertools import islice
from typing import Any, Callable, Optional, Protocol

from hvdperf.models import tasks
from hvdperf.worker import training
from hvdperf.worker.learning import Constant
from hvdperf.worker.protocol import RankConfig
from hvdperf.worker.training import Part

Facts = dict[str, Any]


class Trainer(Protocol):
    """The training of one rank: the phases of start-up, in their order, then blocks of steps. What
    has a body here is the same for most strategies. Those that only return are for strategies that
    have nothing to do there.

    A batch is that of a task (models.tasks.Step), in the form in which the strategy spreads it over
    its replicas. Block kinds are the values of hvdperf.plan.arms.BlockKind.
    """

    config: RankConfig
    learning_rate: Constant
    parts: list[Part]
    rank: int = 0
    world_size: int = 1

    def __init__(self, config: RankConfig) -> None:
        self.config = config
        self.parts = []
        # `build` replaces it, unless the start-up ends before.
        self.learning_rate = Constant([])

    @cached_property
    def task(self) -> tasks.Step:
        return training.find_task(self.config)

    def init(self) -> Facts:
        """Join the group. Return the world size, this process's rank and the transport."""

    def build(self) -> Facts:
        """Build model and optimizer. Return the counts of parameters, of gradient tensors and of
        gradient bytes."""
        with self.scope():
            self.parts = training.build_parts(self.config, self.task, self.config.optimizer)
        self.learning_rate = training.make_learning_rate(self.config, self.parts, self.mean_loss)
        return training.size_of(self.parts)

    def scope(self) -> AbstractContextManager[Any]:
        """Return the context in which variables become those of all replicas."""
        return nullcontext()

    def mean_loss(self, loss: float) -> float:
        """Return the loss of all replicas together. loss: the value that `step` returned."""

    def input(self) -> None: ...

    def trace(self) -> Optional[Facts]:
        """Trace every step function that the launch will need."""

    def first_step(self) -> Optional[Facts]: ...

    def broadcast(self) -> None:
        """Give every rank the state of rank 0."""
        return

    def barrier(self) -> None:
        """Wait until every process has come here."""
        self.total([0.0])

    def enter_block(self, kind: str) -> None: ...

    def leave_block(self, kind: str) -> None:
        return

    def next_batch(self, kind: str) -> Any: ...

    def ablation(self) -> Facts:
        """Trace the steps of kinds `local` and `compute` unless that has been done. After this,
        blocks of these kinds can be timed."""

    def step(self, kind: str, batch: Any) -> Any:
        """Train on one batch. Return the loss, a scalar tensor that may not be computed yet."""

    def own_loss(self, loss: float) -> float:
        """Return the mean loss of this process's samples. loss: the value that `step` returned."""
        return loss

    def count(self, batch: Any) -> int:
        """Return how many samples of the batch this process trains on."""
        return sum(training.count(part) for part in self.by_process(batch))

    def by_process(self, batch: Any) -> Sequence[Any]:
        """Return the batches of the replicas of this process."""
        return [batch]

    def by_replica(self, parts: list[Part]) -> list[list[Any]]:
        """Return the trainable weights of every replica of this process."""
        return [training.weights(parts)]

    def samples_of_a_pass(self) -> Optional[int]:
        """Return how many samples of the user's own data this process reads in a pass; None if that
        is not known, or for other data."""
        return None

    def total(self, values: Sequence[float]) -> list[float]:
        """Return each value added up over all processes."""

    def validate(self) -> Facts:
        """Return loss, accuracy, samples and chance_loss over the whole validation set, the same on
        all processes. Raises ValueError if the strategy does not validate."""

    def leave_group(self) -> None:
        """End the communication as a user's script does at its end."""
        return

    def evidence(self) -> Facts:
        """Return the world size that the framework reports, the learning rate, and a digest of the
        weights of every replica of this process."""
        return {
            "world_size": self.world_size,
            "learning_rate": self.learning_rate.value,
            "digests": [training.digest(weights) for weights in self.by_replica(self.parts)],
        }

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
                return self._train_again(steps, path)
        except training.Irreproducible as error:
            return {"loss": 0.0, "digests": [], "irreproducible": str(error)}

    def _train_again(self, steps: int, path: str) -> Facts:
        with self.scope():
            parts = training.without_randomness(training.build_parts(self.config, self.task, "sgd"))
        batches, step = self.in_file_order(parts)
        begun = [variable.numpy() for variable in self.by_replica(parts)[0]]
        losses, samples = [], []
        for batch in islice(batches, steps):
            samples.append([training.samples_digest(each) for each in self.by_process(batch)])
            losses.append(self.own_loss(float(step(batch))))
        replicas = self.by_replica(parts)
        if self.rank == 0:
            training.save_arrays(path, trained=replicas[0], begun=begun)
        return {
            "loss": losses[0],
            "digests": [training.digest(weights) for weights in replicas],
            "samples": [training.combined(of_replica) for of_replica in zip(*samples)],
        }

    def in_file_order(self, parts: list[Part]) -> tuple[Iterator[Any], Callable[[Any], Any]]:
        """Return batches of this process's own shard as they are in the files, and a step of these
        parts, whose weights are the same on all replicas by then."""
