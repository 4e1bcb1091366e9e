"""The loss of a training run by step, in a limited number of rows, without waiting for a step."""

from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Optional

from hvdperf.worker.learning.learning_rate import Constant

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
        self,
        steps: Optional[int],
        learning_rate: Constant,
        add: Callable[[Sequence[Any]], Any],
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
