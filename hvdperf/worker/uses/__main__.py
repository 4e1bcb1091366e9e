"""Trains in the ways in which people use Horovod, and says which of them do what they promise.

    horovodrun -np 2 python -m hvdperf.worker.uses FILE USE...

A use, given by its name, trains a small network for a few steps as a user's script
does, on data of its own on each rank. Rank 0 appends a line of JSON to the file for each use: its
name, and "" or what is wrong. A use that promises equal ranks is judged by what the ranks have
afterwards, not by whether it ended.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import numpy as np
import tensorflow as tf

from hvdperf.worker.uses import SILENTLY, Use

keras = tf.keras
STEPS, BATCH, FEATURES = 6, 8, 4
RATE = 0.05
# How far equal figures may lie apart, of their size.
CLOSE = 1e-5


def network(seed: int = 1) -> Any:
    """Return a network. Its first weights depend on the seed alone."""
    keras.utils.set_random_seed(seed)
    layers = [keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)]
    return keras.Sequential([keras.Input((FEATURES,)), *layers])


def data() -> tuple[Any, Any]:
    """Return features and targets, of its own for each rank."""
    generator = np.random.default_rng(100 + hvd.rank())
    x = generator.standard_normal((STEPS * BATCH, FEATURES)).astype("float32")
    return x, (x.sum(axis=1, keepdims=True) + hvd.rank()).astype("float32")


def fit(model: Any, callbacks: Sequence[Any] = (), epochs: int = 1) -> Any:
    """Train as most scripts do, and return Keras's history."""
    x, y = data()
    return model.fit(
        x, y, batch_size=BATCH, epochs=epochs, callbacks=list(callbacks), shuffle=False, verbose=0
    )


def compiled(seed: int = 1, rate: float = RATE) -> Any:
    model = network(seed)
    model.compile(
        hvd_keras.DistributedOptimizer(keras.optimizers.SGD(rate)), keras.losses.MeanSquaredError()
    )
    return model


def on_ranks(values: Sequence[Any]) -> list[list[Any]]:
    """Return the values of each rank."""
    # Plain bytes, so that this says nothing of how Horovod and Keras work together.
    found: list[list[Any]] = hvd.allgather_object([np.asarray(value) for value in values])
    return found


def unlike(values: Sequence[Any], what: str) -> str:
    """Return that ranks have other values, "" if all have the same."""
    first, *others = on_ranks(values)
    same = all(
        np.allclose(a, b, rtol=CLOSE, atol=CLOSE) for other in others for a, b in zip(first, other)
    )
    return "" if same else f"{SILENTLY} {what}"


def trained(model: Any, before: Sequence[Any]) -> str:
    """Return what is wrong with a network after training. before: its weights."""
    after = model.get_weights()
    if all(np.array_equal(a, b) for a, b in zip(before, after)):
        return "nothing was trained"
    return unlike(after, "weights after training")


def broadcast() -> str:
    model = network(seed=1 + hvd.rank())
    hvd.broadcast_variables(model.variables, root_rank=0)
    return unlike(model.get_weights(), "weights")


def tape() -> str:
    return _loop(_step)


def allreduce() -> str:
    return _loop(_step_of_ones_own)


def _loop(make: Callable[[Any, Any], Any]) -> str:
    """Train in a loop of one's own. make: returns the step for a network and an optimizer."""
    model, optimizer = network(), keras.optimizers.SGD(RATE)
    before = model.get_weights()
    step = make(model, optimizer)
    x, y = data()
    for at in range(0, len(x), BATCH):
        step(tf.constant(x[at : at + BATCH]), tf.constant(y[at : at + BATCH]))
    return trained(model, before)


def _step(model: Any, optimizer: Any) -> Any:
    @tf.function
    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    return step


def _step_of_ones_own(model: Any, optimizer: Any) -> Any:
    @tf.function
    def step(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        gradients = [hvd.allreduce(gradient) for gradient in gradients]
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))

    return step


def keras_fit() -> str:
    model = compiled()
    before = model.get_weights()
    fit(model)
    return trained(model, before)


def load_model(name: str) -> str:
    model = network()
    model.compile(keras.optimizers.SGD(RATE), keras.losses.MeanSquaredError())
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, name)
        model.save(path)
        model = hvd_keras.load_model(path)
    before = model.get_weights()
    fit(model)
    return trained(model, before)


def broadcast_callback() -> str:
    # Without a step in which anything is learned, only the callback can make ranks equal.
    model = compiled(seed=1 + hvd.rank(), rate=0.0)
    fit(model, [hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)])
    return unlike(model.get_weights(), "weights")


def metric_callback() -> str:
    history = fit(compiled(), [hvd_keras.callbacks.MetricAverageCallback()]).history
    return unlike(history["loss"], "losses")


def warmup_callback() -> str:
    each = hvd_keras.callbacks.LearningRateWarmupCallback(
        initial_lr=RATE, warmup_epochs=2, steps_per_epoch=STEPS
    )
    # From RATE / ranks to RATE in two epochs.
    return _rates(each, RATE / hvd.size() * (1 + (hvd.size() - 1) / 2))


def schedule_callback() -> str:
    each = hvd_keras.callbacks.LearningRateScheduleCallback(
        initial_lr=RATE, multiplier=0.5, start_epoch=0, steps_per_epoch=STEPS
    )
    return _rates(each, RATE / 2)


def _rates(callback: Any, expected: float) -> str:
    """Return what is wrong with the learning rate after an epoch."""
    model = compiled()
    fit(model, [callback])
    rate = float(np.asarray(model.optimizer.learning_rate))
    return "" if np.isclose(rate, expected) else f"the learning rate is {rate:g}, not {expected:g}"


def checkpoint_callback() -> str:
    with tempfile.TemporaryDirectory() as directory:
        each = hvd_keras.callbacks.BestModelCheckpoint(monitor="loss")
        each.filepath = os.path.join(directory, "best.keras")
        fit(compiled(), [each])
        return "" if os.listdir(directory) else "no checkpoint was written"


def elastic() -> str:
    model, optimizer = network(seed=1 + hvd.rank()), keras.optimizers.SGD(RATE)
    x, y = data()
    step = _step(model, optimizer)

    @hvd.elastic.run
    def train(state: Any) -> None:
        while state.batch < STEPS:
            at = state.batch * BATCH
            step(tf.constant(x[at : at + BATCH]), tf.constant(y[at : at + BATCH]))
            state.batch += 1
            state.commit()

    state = hvd.elastic.TensorFlowKerasState(model, optimizer, batch=0)
    before = model.get_weights()
    train(state)
    return trained(model, before)


def _told(error: Exception) -> str:
    """Return an error in a line. One in traced code begins with where it is, and ends with what
    it is."""
    lines = [line.strip() for line in f"{error}".splitlines() if line.strip()] or [""]
    in_traced = lines[0].startswith("in user code")
    told = lines[-1] if in_traced else f"{type(error).__name__}: {lines[0]}"
    return re.sub(r" at 0x[0-9a-f]+", "", told)


USES: dict[Use, Callable[[], str]] = {
    Use.TAPE: tape,
    Use.FIT: keras_fit,
    Use.ALLREDUCE: allreduce,
    Use.BROADCAST: broadcast,
    Use.BROADCAST_CALLBACK: broadcast_callback,
    Use.METRIC_CALLBACK: metric_callback,
    Use.WARMUP_CALLBACK: warmup_callback,
    Use.SCHEDULE_CALLBACK: schedule_callback,
    Use.CHECKPOINT_CALLBACK: checkpoint_callback,
    Use.LOAD_KERAS: lambda: load_model("model.keras"),
    Use.LOAD_H5: lambda: load_model("model.h5"),
    Use.ELASTIC: elastic,
}


def main() -> None:
    path, *names = sys.argv[1:]
    hvd.init()
    for name in names:
        try:
            problem = USES[Use(name)]()
        except Exception as error:  # noqa: BLE001 - any error is an answer
            problem = _told(error)
        problems = hvd.allgather_object(problem)
        if hvd.rank() == 0:
            with open(path, "a", encoding="utf-8") as stream:
                told = next(filter(None, problems), "")
                stream.write(json.dumps({"use": name, "problem": told}) + "\n")


if __name__ == "__main__":
    main()
