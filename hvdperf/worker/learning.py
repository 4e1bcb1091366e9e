"""Learning rates, and the losses of a run by step. Imports no TensorFlow."""

from collections.abc import Sequence
from statistics import fmean
from typing import Any, Callable

# Five of ninety epochs in the paper; runs here are shorter.
WARM_UP_EPOCHS = 2
# As keras.callbacks.ReduceLROnPlateau, with less patience: runs here are short.
FACTOR = 0.1
PATIENCE = 3
LEAST_FALL = 1e-4


class Constant:
    """The learning rate that optimizers have, which may be a schedule of their own."""

    def __init__(self, optimizers: Sequence[Any]) -> None:
        self._optimizers = optimizers

    @property
    def value(self) -> float:
        """The rate of the first optimizer, read from its device; 0 if there is no optimizer."""
        if not self._optimizers:
            return 0.0
        first = self._optimizers[0]
        rate = first.learning_rate
        rate = rate(first.iterations) if callable(rate) else rate
        return float(rate.numpy() if hasattr(rate, "numpy") else rate)

    def before_step(self) -> None:
        """Set the rate of the next step. To be called before every step."""

    def after_step(self, loss: Any) -> None:
        """Take the loss that a step returned. To be called after every step."""


class Adaptive(Constant):
    """A learning rate that rises linearly through WARM_UP_EPOCHS (arXiv:1706.02677, section 2.2),
    and is multiplied by FACTOR when the mean loss of an epoch has not fallen below the best by
    LEAST_FALL, relatively, for PATIENCE epochs.

    mean_loss: maps this rank's mean loss to that of all ranks. Without it each rank would decide
    for itself, and the replicas would diverge.
    """

    def __init__(
        self, optimizers: Sequence[Any], epoch_steps: int, mean_loss: Callable[[float], float]
    ) -> None:
        super().__init__(optimizers)
        self._rates = [each.learning_rate for each in optimizers]
        self._initial = [float(rate.numpy()) for rate in self._rates]
        self._scale = 0.0
        self._epoch_steps = epoch_steps
        self._mean_loss = mean_loss
        self._steps = 0
        self._reduced = 1.0
        self._best = float("inf")
        self._waited = 0
        self._sum: Any = 0.0

    def before_step(self) -> None:
        warm_up = WARM_UP_EPOCHS * self._epoch_steps
        scale = self._reduced * min(1.0, (self._steps + 1) / warm_up)
        if scale != self._scale:
            self._scale = scale
            for rate, initial in zip(self._rates, self._initial):
                rate.assign(initial * scale)

    def after_step(self, loss: Any) -> None:
        self._steps += 1
        # The sum stays a tensor: reading the loss would make a GPU finish the step first.
        self._sum = self._sum + loss
        if self._steps % self._epoch_steps:
            return
        # Of all ranks and the whole epoch, which ends here.
        loss = self._mean_loss(float(self._sum) / self._epoch_steps)
        self._sum = 0.0
        if loss < self._best * (1 - LEAST_FALL):
            self._best, self._waited = loss, 0
            return
        self._waited += 1
        if self._waited >= PATIENCE:
            self._reduced *= FACTOR
            self._waited = 0


# Rows of a run, at most.
POINTS = 100
# Losses are read so many at a time: reading each one would make a GPU finish its step first.
READ = 100


class Curve:
    """The loss along the steps of a run."""

    def __init__(self) -> None:
        self._losses: list[Any] = []

    def after_step(self, loss: Any) -> None:
        self._losses.append(loss)
        if len(self._losses) % READ == 0:
            self._losses[-READ:] = map(float, self._losses[-READ:])

    def rows(self, own: Callable[[float], float]) -> list[list[float]]:
        """Return rows of [steps done, mean loss of the steps since the row before]. own: maps a
        loss to that of this process's samples (Trainer.own_loss)."""
        losses, count = [*map(float, self._losses)], len(self._losses)
        apart = max(1, -(-count // POINTS))
        ends = [min(begin + apart, count) for begin in range(0, count, apart)]
        return [[end, own(fmean(losses[begin:end]))] for begin, end in zip([0, *ends], ends)]
