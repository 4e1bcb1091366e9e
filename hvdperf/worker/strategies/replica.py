"""Training with one replica per process in plain TensorFlow: the strategy `single`, and what others
add an exchange of gradients to."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Callable, Optional

import tensorflow as tf

from hvdperf.worker import training
from hvdperf.worker.protocol import RankConfig
from hvdperf.worker.strategies.base import Facts, Trainer
from hvdperf.worker.training import Part


class Accumulator:
    """Sums of the gradients of some weights, over passes that have not been exchanged yet
    (`backward_passes_per_step`). Horovod 0.28's own optimizers have them for Keras 2 only."""

    def __init__(self, sources: Sequence[tf.Variable], passes: int) -> None:
        self._passes = passes
        self._sums = {
            source.ref(): tf.Variable(tf.zeros_like(source), trainable=False) for source in sources
        }

    def add(self, gradients: Sequence[Any], sources: Sequence[tf.Variable]) -> None:
        """Add the gradients of a pass. A gradient of rows of a table becomes one of the table."""
        for gradient, source in zip(gradients, sources):
            self._sums[source.ref()].assign_add(tf.convert_to_tensor(gradient))

    def take(self, gradients: Sequence[Any], sources: Sequence[tf.Variable]) -> list[tf.Tensor]:
        """Return the mean over all passes, including the given gradients of the last one; then set
        the sums to 0."""
        means = []
        for gradient, source in zip(gradients, sources):
            held = self._sums[source.ref()]
            means.append((held + tf.convert_to_tensor(gradient)) / self._passes)
            held.assign(tf.zeros_like(held))
        return means


StepFunction = Callable[..., tf.Tensor]
# The gradients of this replica alone.
OWN_GRADIENTS = tf.GradientTape.gradient
# Kinds of blocks (hvdperf.plan.arms.BlockKind) on the same batches as `full`.
WITHOUT_EXCHANGE = ("local", "compute")
Cycle = Iterator[StepFunction]


class ReplicaTrainer(Trainer):
    """The common part of hvdperf.worker.strategies.base.Trainer.

    A strategy of more than one replica overrides `rank`, `world_size`, `gradients`, `exchanged`,
    `total` and `agree`.
    """

    def __init__(self, config: RankConfig) -> None:
        super().__init__(config)
        self._passes: int = config.passes
        self._steps: dict[str, Cycle] = {}
        self._batches: dict[str, Iterator[Any]] = {}
        self._saved: list[tf.Tensor] = []
        # Number of sparse gradients of a step.
        self._sparse = 0

    def gradients(self, tape: tf.GradientTape, loss: tf.Tensor, sources: Any) -> Any:
        """Return the gradients of a loss, reduced over all replicas."""
        return tape.gradient(loss, sources)

    def exchanged(self, gradients: Sequence[Any]) -> Sequence[Any]:
        """Return the gradients averaged over all replicas."""
        return gradients

    def total(self, values: Sequence[float]) -> list[float]:
        """Return each value added up over all replicas."""
        return list(values)

    def agree(self, variables: list[tf.Variable]) -> None:
        """Give every replica the values of replica 0."""

    def init(self) -> Facts:
        training.set_up_devices(self.config)
        return {"rank": self.rank, "world_size": self.world_size, "transport": "none"}

    def mean_loss(self, loss: float) -> float:
        return self.total([loss])[0] / self.world_size

    def input(self) -> None:
        batch = self.config.batch
        # A batch that is divided among all ranks: the first ones take the rest.
        share = batch // self.world_size + (self.rank < batch % self.world_size)
        sizes = {"full": batch, "split": share}
        for kind in self.config.kinds:
            if kind in sizes:
                self._batches[kind] = iter(self._open(sizes[kind]))
        for kind in WITHOUT_EXCHANGE:
            self._batches[kind] = self._batches["full"]

    def _open(self, batch: int) -> tf.data.Dataset:
        """Return the dataset of this rank's batches, of `batch` samples each."""
        if self.config.common_order:
            common = training.open_common(self.config, self.task, batch)
            return common.shard(self.world_size, self.rank)
        return self._own_samples(batch)

    def _own_samples(self, batch: int, augment: bool = True) -> tf.data.Dataset:
        """Return batches of this rank's shard. augment: as in training.open_dataset."""
        shard = (self.rank, self.world_size)
        return training.open_dataset(self.config, self.task, batch, shard, augment)

    def samples_of_a_pass(self) -> Optional[int]:
        return training.own_samples(self.config, (self.rank, self.world_size))

    def trace(self) -> Facts:
        self._steps["full"] = self.cycle(self.parts)
        self._steps["split"] = self._steps["full"]
        self._trace_without_exchange(self.config.kinds)
        return {"sparse_tensors": self._sparse}

    def ablation(self) -> Facts:
        self._trace_without_exchange(WITHOUT_EXCHANGE)
        return {}

    def _trace_without_exchange(self, kinds: Sequence[str]) -> None:
        """Trace the steps of the kinds WITHOUT_EXCHANGE that are in `kinds` and not traced yet."""
        if "local" in kinds and "local" not in self._steps:
            self._steps["local"] = itertools.cycle([self.traced(self.parts, OWN_GRADIENTS)])
        if "compute" in kinds and "compute" not in self._steps:
            self._steps["compute"] = itertools.cycle([self._computing()])

    def _computing(self) -> StepFunction:
        """Return a step that computes gradients and applies none.

        Its graph returns one number of each gradient, because TensorFlow's graph optimizer removes
        a computation that only a control dependency needs.
        """

        @training.graph(input_signature=self.task.signature())
        def step(*batch: tf.Tensor) -> tuple[tf.Tensor, list[tf.Tensor]]:
            needed: list[tf.Tensor] = []

            def need(part: Part, gradients: Sequence[Any]) -> None:
                for gradient in gradients:
                    dense = getattr(gradient, "values", gradient)  # an embedding's rows
                    needed.append(tf.reshape(dense, [-1])[0])

            loss = training.update(self.task, self.parts, batch, tf.reduce_mean, use=need)
            return loss, needed

        traced = step.get_concrete_function()
        self.look_at(traced.graph)
        return lambda *batch: traced(*batch)[0]

    def cycle(self, parts: list[Part]) -> Cycle:
        """Return an endless iterator over the step functions, in the order of their calls: one
        function, or, if several backward passes share an exchange, one that only accumulates
        (`passes` - 1 times) and then one that exchanges."""
        if self._passes == 1:
            return itertools.cycle([self.traced(parts, self.gradients)])
        accumulator = Accumulator(training.weights(parts), self._passes)

        def exchanged_mean(tape: tf.GradientTape, loss: tf.Tensor, sources: Any) -> Any:
            return self.exchanged(accumulator.take(tape.gradient(loss, sources), sources))

        def add(part: Part, gradients: Sequence[Any]) -> None:
            accumulator.add(gradients, part.sources)

        adding = self.traced(parts, OWN_GRADIENTS, add)
        return itertools.cycle([*[adding] * (self._passes - 1), self.traced(parts, exchanged_mean)])

    def traced(
        self,
        parts: list[Part],
        take: Callable[..., Any],
        use: Callable[[Part, Sequence[Any]], None] = training.apply,
    ) -> StepFunction:
        """Return one training step as a function."""
        sparse: list[bool] = []

        def noted(part: Part, gradients: Sequence[Any]) -> None:
            sparse.extend(isinstance(each, tf.IndexedSlices) for each in gradients)
            use(part, gradients)

        @training.graph(input_signature=self.task.signature())
        def step(*batch: Any) -> tf.Tensor:
            return training.update(self.task, parts, batch, tf.reduce_mean, take, noted)

        traced = step.get_concrete_function()
        self._sparse = max(self._sparse, sum(sparse))
        if take is OWN_GRADIENTS:
            self.look_at(traced.graph)
        return traced  # type: ignore[no-any-return]

    def look_at(self, graph: Any) -> None:
        """Take the graph of a step that does not exchange its gradients."""

    def first_step(self) -> Facts:
        # A whole update takes all passes.
        for _ in range(self._passes):
            float(self.step("full", self.next_batch("full")))
        return {"device_peak_bytes": training.device_peak_bytes()}

    def broadcast(self) -> None:
        # After the first step, as in Horovod's examples: by then the optimizer has its state.
        self.agree(self._state())

    def _state(self) -> list[tf.Variable]:
        return [variable for part in self.parts for variable in part.state]

    def enter_block(self, kind: str) -> None:
        if kind in WITHOUT_EXCHANGE:
            self._saved = [tf.identity(variable) for variable in self._state()]

    def leave_block(self, kind: str) -> None:
        # Without exchange the replicas drift apart, so go on from the state they agreed on.
        if kind in WITHOUT_EXCHANGE:
            for variable, value in zip(self._state(), self._saved):
                variable.assign(value)
            self._saved = []

    def next_batch(self, kind: str) -> Any:
        return next(self._batches[kind])

    def step(self, kind: str, batch: Any) -> Any:
        return next(self._steps[kind])(*batch)

    def in_file_order(self, parts: list[Part]) -> tuple[Iterator[Any], Callable[[Any], Any]]:
        steps = self.cycle(parts)
        self.agree([variable for part in parts for variable in part.state])
        dataset = self._own_samples(self.config.batch, augment=False)
        return iter(dataset), lambda batch: next(steps)(*batch)

    def validate(self) -> Facts:
        # Average the statistics, because every replica has seen other samples.
        for variable in training.statistics(self.parts):
            (mean,) = self.exchanged([variable])
            variable.assign(mean)
        shard = (self.rank, self.world_size)
        return training.validate(self.config, self.task, self.parts, shard, self.total)


class SingleTrainer(ReplicaTrainer):
    """The Trainer (base.py) of a single replica. Several passes stand in for as many replicas. The
    moving averages of replicas move once per update, so `build` slows down those of the passes."""

    def build(self) -> Facts:
        facts = super().build()
        training.slow_averages(self.parts, self._passes)
        return facts
