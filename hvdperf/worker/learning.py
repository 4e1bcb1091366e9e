"""Learning rates, and the losses of a run by step. Imports no TensorFlow."""

from collections.abc import Iterable, Sequence
from typing import Any, Callable, NamedTuple, Optional

# Five of ninety epochs in the paper; runs here are shorter.
WARM_UP_EPOCHS = 2
# As keras.callbacks.ReduceLROnPlateau, with less patience: runs here are short.
FACTOR = 0.1
PATIENCE = 3
LEAST_FALL = 1e-4


class Constant:
    """A learning rate that stays at its initial value. rates: the optimizers' variables."""

    def __init__(self, rates: Iterable[Any]) -> None:
        self._rates = list(rates)
        self._initial = [float(rate.numpy()) for rate in self._rates]
        self._scale = 1.0
        self._astray = 1.0

    @property
    def value(self) -> float:
        """The rate of the first optimizer, read from its variable; 0 if there is no optimizer."""
        return float(self._rates[0].numpy()) if self._rates else 0.0

    @property
    def assigned(self) -> float:
        """The rate of the first optimizer as it was last set, without a read from its device."""
        return self._initial[0] * self._scale * self._astray if self._initial else 0.0

    def before_step(self) -> None:
        """Set the rate of the next step. To be called before every step."""

    def after_step(self, loss: Any) -> None:
        """Take the loss that a step returned. To be called after every step."""

    def go_astray(self, factor: float) -> None:
        """From now on, use `factor` times the rate of the other ranks: an injected fault."""
        self._astray = factor
        self._assign(self._scale)

    def _assign(self, scale: float) -> None:
        self._scale = scale
        for rate, initial in zip(self._rates, self._initial):
            rate.assign(initial * scale * self._astray)


class Scheduled(Constant):
    """The learning rate of an optimizer that has a schedule of its own."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__([])
        self._optimizer = optimizer

    @property
    def value(self) -> float:
        rate = self._optimizer.learning_rate
        return float(rate(self._optimizer.iterations) if callable(rate) else rate)

    @property
    def assigned(self) -> float:
        return self.value

    def go_astray(self, factor: float) -> None:
        raise ValueError(
            "the fault `stray` sets the learning rate, and this optimizer has a schedule of its own"
        )


class Adaptive(Constant):
    """A learning rate that rises linearly through WARM_UP_EPOCHS (arXiv:1706.02677, section 2.2),
    and is multiplied by FACTOR when the mean loss of an epoch has not fallen below the best by
    LEAST_FALL, relatively, for PATIENCE epochs.

    mean_loss: maps this rank's mean loss to that of all ranks. Without it each rank would decide
    for itself, and the replicas would diverge.
    """

    def __init__(
        self, rates: Iterable[Any], epoch_steps: int, mean_loss: Callable[[float], float]
    ) -> None:
        super().__init__(rates)
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
        if scale != self._scale or self._steps == 0:
            self._assign(scale)

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


# Limits of the rows of a run: POINTS if the number of its steps is known beforehand, else MOST.
POINTS = 100
MOST = 2 * POINTS


class Row(NamedTuple):
    """One row of a curve. steps: number of steps done by then. total: sum of the losses since the
    row before, on the device that computed them. learning_rate: of the last step."""

    steps: int
    total: Any
    learning_rate: float


class Curve:
    """The curve of a run, gathered from losses that may not have been computed yet. `rows` reads
    them at the end of the run, because an earlier read would make a GPU finish its step first.

    steps: number of steps of the run, or None if it is not known. In that case rows are merged in
    pairs whenever there are MOST, and are twice as far apart from then on. add: adds up several
    losses, in one operation.
    """

    def __init__(
        self, steps: Optional[int], learning_rate: Constant, add: Callable[[Sequence[Any]], Any]
    ) -> None:
        self._apart = 1 if steps is None else max(1, -(-steps // POINTS))
        self._learning_rate = learning_rate
        self._add = add
        self._steps = 0
        self._rows: list[Row] = []
        # The losses since the last row: never more than rows are apart.
        self._since: list[Any] = []

    def after_step(self, loss: Any) -> None:
        self._since.append(loss)
        if len(self._since) == self._apart:
            self._end_row()

    def rows(self, own: Callable[[float], float]) -> list[list[float]]:
        """Return rows of [steps done, mean loss of the steps since the row before, learning rate].
        own: maps a loss to that of this process's samples (Trainer.own_loss)."""
        if self._since:
            self._end_row()
        begun = [0, *(row.steps for row in self._rows)]
        return [
            [row.steps, own(float(row.total) / (row.steps - before)), row.learning_rate]
            for row, before in zip(self._rows, begun)
        ]

    def _end_row(self) -> None:
        self._steps += len(self._since)
        total = self._since[0] if len(self._since) == 1 else self._add(self._since)
        self._rows.append(Row(self._steps, total, self._learning_rate.assigned))
        self._since = []
        if len(self._rows) == MOST:
            pairs = zip(self._rows[::2], self._rows[1::2])
            self._rows = [
                Row(later.steps, self._add([earlier.total, later.total]), later.learning_rate)
                for earlier, later in pairs
            ]
            self._apart *= 2
