"""The part of training that all strategies share: models, losses, optimizers and input."""

import functools
import hashlib
import inspect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Callable, Optional

import numpy as np
import tensorflow as tf

from hvdperf.models import contract, inputs, own_networks, registry, tasks
from hvdperf.worker.learning import Adaptive, Constant
from hvdperf.worker.protocol import RankConfig


def set_up_devices(config: RankConfig, logical_cpus: int = 1) -> None:
    """Configure threads, GPU memory and logical CPUs, before TensorFlow's runtime starts."""
    tf.config.threading.set_intra_op_parallelism_threads(config.intra_op)
    tf.config.threading.set_inter_op_parallelism_threads(config.inter_op)
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if not gpus and logical_cpus > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * logical_cpus
        )


def device_peak_bytes() -> int:
    """Return the most memory of this process's GPU that tensors have taken, in bytes; 0 without a
    GPU."""
    if not tf.config.list_physical_devices("GPU"):
        return 0
    return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])


class Irreproducible(Exception):
    """TensorFlow cannot compute something twice with the same result; the message says what."""


@contextmanager
def reproducible() -> Iterator[None]:
    """Have TensorFlow compute so that it gives the same result each time, to the last bit. Raises
    Irreproducible for an operation that cannot.

    A GPU rounds float32 to TF32 and adds up in any order: on an H100 the first updates of two equal
    trainings of resnet_50 differed by 18 % of their size.
    """
    if not tf.config.list_physical_devices("GPU"):
        yield
        return
    # There is no public way to switch it off again.
    from tensorflow.python.framework import config

    rounds = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    tf.config.experimental.enable_op_determinism()
    try:
        yield
    except tf.errors.UnimplementedError as error:
        raise Irreproducible(error.message.splitlines()[0]) from None
    finally:
        config.disable_op_determinism()
        tf.config.experimental.enable_tensor_float_32_execution(rounds)


def of_another_batch(config: RankConfig) -> RankConfig:
    """Return the configuration for a reproducible training in a process that has already trained.
    On a GPU the batch has another size, because TensorFlow keeps by size the algorithms of
    convolutions that it chose by their speed, and these differ from process to process."""
    if not tf.config.list_physical_devices("GPU"):
        return config
    return config._replace(batch=config.batch - 1 if config.batch > 1 else 2)


@dataclass
class Part:
    """A model of the step with the optimizer that trains it."""

    model: Any
    optimizer: Any

    @property
    def sources(self) -> list[tf.Variable]:
        """The variables that gradients are taken of."""
        return tf_variables(self.model.trainable_variables)

    @property
    def state(self) -> list[tf.Variable]:
        """All variables that must be equal on all replicas: those of model and optimizer."""
        return tf_variables([*self.model.variables, *self.optimizer.variables])


def find_task(config: RankConfig) -> tasks.Step:
    network = registry.network(config.model)
    return tasks.find(network, config.input_size, config.classes)


def build_parts(config: RankConfig, task: tasks.Step, optimizer: str) -> list[Part]:
    """Build the workload's models, whose initial weights are the same if the seed is the same.
    Raises own_networks.BadNetwork if a network of one's own is not what the suite can train."""
    tf.keras.mixed_precision.set_global_policy(config.precision)
    tf.keras.utils.set_random_seed(config.seed)
    models = contract.built(task.build(config.model), task)
    own_optimizer = registry.network(config.model).optimizer
    return [
        Part(model, prepare(make_optimizer(own_optimizer or optimizer, config.precision), model))
        for model in models
    ]


def make_learning_rate(
    config: RankConfig, parts: Sequence[Part], mean_loss: Callable[[float], float]
) -> Constant:
    """Return the workload's learning rate. mean_loss: as in Adaptive. Raises
    own_networks.BadNetwork if the rate is to be adapted, and an optimizer has a schedule of its
    own."""
    optimizers = [part.optimizer for part in parts]
    if config.learning_rate != "adaptive":
        return Constant(optimizers)
    # The rate of a schedule is not a variable.
    if not all(hasattr(optimizer.learning_rate, "assign") for optimizer in optimizers):
        raise own_networks.BadNetwork(
            "its optimizer has a schedule of the learning rate, which this recipe would replace"
        )
    return Adaptive(optimizers, config.epoch_steps, mean_loss)


def without_randomness(parts: Iterable[Part]) -> list[Part]:
    """Have each layer that draws random numbers, such as a dropout, work as it does in inference,
    for runs that must be reproducible. Return the parts. This holds for steps that are traced
    afterwards."""
    listed = list(parts)
    for part in listed:
        for layer in layers_of(part.model):
            if _draws(layer) and "training" in inspect.signature(layer.call).parameters:
                layer.call = _in_inference(layer.call)
    return listed


def layers_of(model: Any) -> list[Any]:
    """Return all layers of a model, also those within other layers and models."""
    return list(model._flatten_layers(include_self=False, recursive=True))


def _draws(layer: Any) -> bool:
    """Return whether a layer holds a generator of random numbers of Keras."""
    # Keras 3 lists the generators of a layer. A layer of Keras 2 that draws has one by this name.
    return bool(getattr(layer, "_seed_generators", None)) or hasattr(layer, "_random_generator")


def _in_inference(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def called(*arguments: Any, **keywords: Any) -> Any:
        return call(*arguments, **{**keywords, "training": False})

    return called


def slow_averages(parts: Iterable[Part], passes: int) -> None:
    """Slow down the moving averages of batch normalization, which move with every pass, so that
    `passes` passes move them as far as one pass does by default. This holds for steps that are
    traced afterwards."""
    for part in parts:
        for layer in layers_of(part.model):
            if isinstance(layer, tf.keras.layers.BatchNormalization):
                layer.momentum **= 1 / passes


def make_optimizer(name: str, precision: str) -> Any:
    makers = {
        "adam": lambda: tf.keras.optimizers.Adam(learning_rate=1e-3),
        "sgd": lambda: tf.keras.optimizers.SGD(learning_rate=1e-2),
    }
    maker = registry.function(name) if ":" in name else makers[name]
    # Some gradients are too small for half precision. So the loss is scaled up, within the finite
    # range, and the gradients are scaled down again.
    if precision == "mixed_float16":
        return tf.keras.mixed_precision.LossScaleOptimizer(maker())
    return maker()


def prepare(optimizer: Any, model: Any) -> Any:
    """Create the optimizer's variables outside of the traced step; return the optimizer."""
    contract.check_optimizer(optimizer)
    optimizer.build(model.trainable_variables)
    return optimizer


def open_common(config: RankConfig, task: tasks.Step, batch: int) -> tf.data.Dataset:
    """Return batches of `batch` samples, cut one after the other from global batches that are the
    same for every strategy."""
    whole = config.batch * config.world_size * config.passes
    pieces = whole // batch

    def cut(*parts: tf.Tensor) -> tf.data.Dataset:
        shapes = [[pieces, batch, *part.shape[1:]] for part in parts]
        cut_up = [tf.reshape(part, shape) for part, shape in zip(parts, shapes)]
        return tf.data.Dataset.from_tensor_slices(tuple(cut_up))

    return open_dataset(config, task, whole).flat_map(cut)


def open_global(config: RankConfig, task: tasks.Step, augment: bool) -> tf.data.Dataset:
    """Return global batches for a process that divides each of them among all replicas, in equal
    parts. Not augmented, or of a network's own data, a global batch consists of a batch of each
    replica's shard, which is what the ranks of other strategies read."""
    batch, replicas = config.batch, config.world_size
    if augment and not has_own_data(config):
        return open_dataset(config, task, batch * replicas)
    shards = tuple(
        open_dataset(config, task, batch, shard=(index, replicas), augment=augment)
        for index in range(replicas)
    )
    if replicas == 1:
        return shards[0]

    def joined(*batches: Any) -> Any:
        return tf.nest.map_structure(lambda *parts: tf.concat(parts, 0), *batches)

    return tf.data.Dataset.zip(shards).map(joined).prefetch(1)


def open_dataset(
    config: RankConfig,
    task: tasks.Step,
    batch: int,
    shard: tuple[int, int] = (0, 1),
    augment: bool = True,
) -> tf.data.Dataset:
    """Return an endless dataset of the task's batches. They are in file order and as in the files
    unless `augment`, which augments and shuffles them. Those of a network's own data are always as
    its function yields them."""
    request = replace(_request(config, batch, shard), augment=augment, shuffle=augment)
    return task.prepare(inputs.open_split(request), config.data_seed, shard[0])


def has_own_data(config: RankConfig) -> bool:
    """Return whether the network brings its own data."""
    return bool(config.dataset == config.model)


def own_samples(config: RankConfig, shard: tuple[int, int]) -> Optional[int]:
    """Return how many samples a shard of the network's own data has; None if TensorFlow does not
    know, as of a generator, or for other data."""
    if not has_own_data(config):
        return None
    data = contract.samples(
        config.model, config.input_size, registry.Shard(*shard), config.data_seed
    )
    count = int(data.cardinality())
    return count if count > 0 else None


def _request(config: RankConfig, batch: int, shard: tuple[int, int]) -> inputs.Request:
    """Return what is the same for training and validation."""
    network = registry.network(config.model)
    return inputs.Request(
        config.dataset,
        batch,
        config.input_size,
        directory=config.data_dir,
        shard=shard,
        seed=config.data_seed,
        classes=config.classes,
        form=network.task.form,
        symmetric=network.task is registry.Task.ADVERSARIAL,
        threads=config.input_threads,
    )


def validate(
    config: RankConfig,
    task: tasks.Step,
    parts: Sequence[Part],
    shard: tuple[int, int],
    total: Callable[[Sequence[float]], Sequence[float]],
) -> dict[str, float]:
    """Return loss, accuracy and samples over the whole validation set, and chance_loss, the loss of
    a uniform guess.

    shard: the part of the set that this process reads. total: adds up values over all processes.
    """
    dataset = inputs.open_split(_request(config, config.batch, shard), inputs.VALIDATION)
    dataset = task.prepare(dataset, config.data_seed, shard[0])

    @graph(input_signature=task.signature())
    def score(*batch: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        losses, hits = task.scores([part.model for part in parts], batch)
        return tf.reduce_sum(losses), tf.reduce_sum(hits)

    sums = [0.0, 0.0, 0.0]
    for batch in dataset:
        loss, hits = score(*batch)
        for i, value in enumerate((float(loss), float(hits), int(batch[1].shape[0]))):
            sums[i] += value
    loss, hits, samples = total(sums)
    return {
        "loss": loss / samples,
        "accuracy": hits / samples,
        "samples": int(samples),
        "chance_loss": float(np.log(config.classes)),
    }


def statistics(parts: Iterable[Part]) -> list[tf.Variable]:
    """Return the variables that a model updates while it trains, such as the moments of batch
    normalization."""
    variables = tf_variables(v for part in parts for v in part.model.non_trainable_variables)
    return [variable for variable in variables if variable.dtype.is_floating]


def graph(**arguments: Any) -> Any:
    """Return tf.function without AutoGraph, because the steps hold no Python control flow over
    tensors, and converting Horovod's and Keras's code takes 1.0-1.4 of 1.6-2.2 s of tracing at
    32-54 tensors.
    """
    return tf.function(autograph=False, **arguments)


def apply(part: Part, gradients: Sequence[Any]) -> None:
    """Update the part's weights. gradients: of its loss as `scale_up` returned it."""
    # Keras 2 leaves this to its user; Keras 3 does it in apply_gradients.
    unscale = getattr(part.optimizer, "get_unscaled_gradients", lambda scaled: scaled)
    part.optimizer.apply_gradients(zip(unscale(gradients), part.model.trainable_variables))


def update(
    task: tasks.Step,
    parts: Sequence[Part],
    batch: Sequence[tf.Tensor],
    total: Callable[[tf.Tensor], tf.Tensor],
    take: Callable[..., Any] = tf.GradientTape.gradient,
    use: Callable[[Part, Sequence[Any]], None] = apply,
    summed: int = 1,
) -> tf.Tensor:
    """Train one step: take the gradients of every part's loss from one forward pass, and use them.

    total: maps losses [samples] to the scalar that is differentiated. take: returns the gradients
    of (tape, loss, variables), and may exchange them among replicas. use: takes a part and its
    gradients; by default it updates the weights. summed: number of replicas whose gradients are
    added up. Returns the sum of the parts' losses, with what their layers add to it
    (regularization).
    """
    with ExitStack() as recording:
        tapes = [recording.enter_context(tf.GradientTape()) for _ in parts]
        losses = [total(loss) for loss in task.losses([part.model for part in parts], batch)]
        losses = [
            loss + sum(tf.cast(added, loss.dtype) / summed for added in part.model.losses)
            for part, loss in zip(parts, losses)
        ]
        scaled = [scale_up(part.optimizer, loss) for part, loss in zip(parts, losses)]
    for part, tape, loss in zip(parts, tapes, scaled):
        use(part, take(tape, loss, part.sources))
    return losses[0] if len(losses) == 1 else tf.add_n(losses)


def scale_up(optimizer: Any, loss: tf.Tensor) -> tf.Tensor:
    """Return the loss to be differentiated: scaled if the optimizer scales it."""
    if not isinstance(optimizer, tf.keras.mixed_precision.LossScaleOptimizer):
        return loss
    keras_3 = hasattr(optimizer, "scale_loss")
    return optimizer.scale_loss(loss) if keras_3 else optimizer.get_scaled_loss(loss)


def weights(parts: Iterable[Part]) -> list[tf.Variable]:
    """Return the trainable variables of all parts."""
    return [variable for part in parts for variable in part.sources]


def tf_variables(variables: Iterable[Any]) -> list[tf.Variable]:
    """Return the TensorFlow variables, as Horovod needs them. Keras 3 wraps them."""
    return [v if isinstance(v, tf.Variable) else v.value for v in variables]


def digest(variables: Iterable[tf.Variable]) -> str:
    """Return a SHA-256 hash of the values, equal only if every bit is equal."""
    result = hashlib.sha256()
    for variable in variables:
        result.update(variable.numpy().tobytes())
    return result.hexdigest()


def combined(digests: Iterable[str]) -> str:
    """Return one digest of several."""
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()


def save_arrays(path: str, **sets: Iterable[Any]) -> None:
    """Write sets of tensors or variables to an .npz file, in order: set `a` as a0, a1, ..."""
    values: dict[str, Any] = {
        f"{name}{i}": np.asarray(array)
        for name, arrays in sets.items()
        for i, array in enumerate(arrays)
    }
    np.savez(path, **values)


def count(batch: Any) -> int:
    """Return the number of samples of a batch."""
    return int(tf.nest.flatten(batch)[0].shape[0])


def samples_digest(batch: Any) -> str:
    """Return a SHA-256 hash of the values of a batch."""
    result = hashlib.sha256()
    for part in tf.nest.flatten(batch):
        values = part.numpy()
        result.update(
            repr(values.tolist()).encode() if values.dtype == object else values.tobytes()
        )
    return result.hexdigest()


def size_of(parts: Iterable[Part]) -> dict[str, int]:
    """Return how many parameters the optimizers train, and the count and bytes of the gradient
    tensors that the replicas exchange."""
    trained = weights(parts)
    return {
        "parameters": sum(int(np.prod(v.shape)) for v in trained),
        "gradient_tensors": len(trained),
        "gradient_bytes": sum(int(np.prod(v.shape)) * v.dtype.size for v in trained),
    }
