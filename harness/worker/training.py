"""What every strategy trains alike: model, loss, optimizer and input of a workload."""

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from models import inputs, registry

Config = dict[str, Any]


def set_up_devices(config: Config, logical_cpus: int = 1) -> None:
    """Threads and memory, before TensorFlow's runtime starts."""
    tf.config.threading.set_intra_op_parallelism_threads(config["intra_op"])
    tf.config.threading.set_inter_op_parallelism_threads(config["inter_op"])
    gpus = tf.config.list_physical_devices("GPU")
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    if not gpus and logical_cpus > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * logical_cpus
        )


def build_model(config: Config) -> Any:
    """The workload's Keras model, with the same initial weights wherever the seed is the same."""
    tf.keras.utils.set_random_seed(config["seed"])
    return registry.build(config["model"], config["image_size"], config["classes"])


def without_dropout(model: Any) -> Any:
    """The same model with its dropout switched off, for runs that must be reproducible."""
    for layer in model.layers:
        if isinstance(layer, tf.keras.layers.Dropout):
            layer.rate = 0.0
    return model


def make_optimizer(name: str) -> Any:
    if name == "adam":
        return tf.keras.optimizers.Adam(learning_rate=1e-3)
    if name == "sgd":
        return tf.keras.optimizers.SGD(learning_rate=1e-2)
    raise ValueError(f"unknown optimizer: {name}")


def prepare(optimizer: Any, model: Any) -> Any:
    """Create the optimizer's variables outside of the traced step."""
    optimizer.build(model.trainable_variables)
    return optimizer


def open_dataset(
    config: Config, batch: int, shard: tuple[int, int] = (0, 1), augment: bool = True
) -> tf.data.Dataset:
    """(images [batch, size, size, 3] float32, labels [batch]) for ever; in file order and as
    they are in the files unless augmented."""
    return inputs.open_train(
        config["dataset"],
        config["data_dir"],
        shard=shard,
        batch=batch,
        image_size=config["image_size"],
        seed=config["data_seed"],
        augment=augment,
        shuffle=augment,
        threads=config["input_threads"],
    )


def step_signature(config: Config) -> list[tf.TensorSpec]:
    """Any batch size, so that one trace serves full and split batches."""
    size = config["image_size"]
    return [
        tf.TensorSpec([None, size, size, 3], tf.float32),
        tf.TensorSpec([None], tf.int32),
    ]


def graph(**arguments: Any) -> Any:
    """tf.function without AutoGraph: the steps hold no Python control flow over tensors, and
    converting Horovod's and Keras's code takes 1.0-1.4 of 1.6-2.2 s of tracing at 32-54 tensors.
    """
    return tf.function(autograph=False, **arguments)


def losses(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """Cross-entropy per sample, shape [batch]."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def tf_variables(variables: Iterable[Any]) -> list[tf.Variable]:
    """Keras 3 wraps the TensorFlow variables that Horovod needs; Keras 2 hands them out."""
    return [v if isinstance(v, tf.Variable) else v.value for v in variables]


def digest(variables: Iterable[tf.Variable]) -> str:
    """A hash of the values, equal only if every bit is."""
    result = hashlib.sha256()
    for variable in variables:
        result.update(variable.numpy().tobytes())
    return result.hexdigest()


def save_arrays(path: str, arrays: Iterable[Any]) -> None:
    """Write tensors or variables to an .npz file, in order, as a0, a1, ..."""
    values = {f"a{i}": np.asarray(array) for i, array in enumerate(arrays)}
    np.savez(path, **values)


def size_of(model: Any) -> dict[str, int]:
    """What the optimizer trains and Horovod reduces: counts, and bytes of the gradients."""
    weights = tf_variables(model.trainable_variables)
    return {
        "parameters": sum(int(np.prod(v.shape)) for v in weights),
        "gradient_tensors": len(weights),
        "gradient_bytes": sum(int(np.prod(v.shape)) * v.dtype.size for v in weights),
    }
