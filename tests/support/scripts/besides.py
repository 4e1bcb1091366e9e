"""A training step, and whatever else a script may do in each of its steps: another function, a
broadcast, three metrics that are exchanged, the garbage collector, and Python of its own. Its batch
is captured by a closure, its memory grows, and it pauses at its end."""

import gc
import time

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

hvd.init()
x = tf.constant(np.random.default_rng(hvd.rank()).standard_normal((48, 64)), tf.float32)
weights = tf.Variable(tf.zeros((64, 64)))
optimizer = tf.keras.optimizers.SGD(0.01)
kept: list = []


@tf.function
def step():
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights - 1.0) ** 2)
    gradients = hvd.DistributedGradientTape(tape).gradient(loss, [weights])
    optimizer.apply_gradients([(gradients[0], weights)])
    # A branch that is never taken.
    tf.cond(loss < 0, lambda: hvd.allreduce(loss, name="rare"), lambda: loss)
    return [hvd.allreduce(loss, name=f"metric{number}") for number in range(3)]


@tf.function
def evaluate():
    value = x
    for _ in range(40):
        value = tf.tanh(value @ weights)
    return value


def look_around():
    end = time.perf_counter() + 0.02
    while time.perf_counter() < end:
        pass
    kept.append(b"x" * 8_000_000)


def rest():
    time.sleep(1.5)


for _ in range(60):
    step()
    evaluate()
    hvd.broadcast_variables([weights], root_rank=0)
    look_around()
    gc.collect(1)
rest()
