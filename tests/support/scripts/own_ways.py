"""Training in ways of one's own: `gan` has two networks, two tapes and data that every rank reads
first; `allreduce` exchanges gradients by itself, after the step; `several` takes four batches in a
call; `sets` has a process set of each rank's own."""

import sys

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

hvd.init()
tf.random.set_seed(1)


def network():
    return [tf.Variable(tf.random.normal((64, 64), stddev=0.05)) for _ in range(2)]


def batches(seed, count):
    data = np.random.default_rng(seed).standard_normal((count * 32, 64)).astype("float32")
    return tf.data.Dataset.from_tensor_slices(data).batch(32)


def loss(weights, x):
    return tf.reduce_mean(((x @ weights[0]) @ weights[1]) ** 2)


first, second = network(), network()
optimizers = [tf.keras.optimizers.SGD(0.01) for _ in range(2)]


@tf.function
def train_both(x):
    for weights, optimizer in zip((first, second), optimizers, strict=True):
        with tf.GradientTape() as tape:
            value = loss(weights, x)
        gradients = hvd.DistributedGradientTape(tape).gradient(value, weights)
        optimizer.apply_gradients(zip(gradients, weights, strict=True))


@tf.function
def train_on_four(data):
    for _ in tf.range(4):
        with tf.GradientTape() as tape:
            value = loss(first, next(data))
        gradients = hvd.DistributedGradientTape(tape).gradient(value, first)
        optimizers[0].apply_gradients(zip(gradients, first, strict=True))


@tf.function
def gradients_of(x):
    with tf.GradientTape() as tape:
        value = loss(first, x)
    return tape.gradient(value, first)


if sys.argv[1] == "gan":
    for x in batches(0, 10):
        loss(first, x)
    for x in batches(hvd.rank(), 40):
        train_both(x)
elif sys.argv[1] == "sets":
    sets = [hvd.add_process_set([rank]) for rank in range(hvd.size())]

    @tf.function
    def train_alone(x):
        with tf.GradientTape() as tape:
            value = loss(first, x)
        tape = hvd.DistributedGradientTape(tape, process_set=sets[hvd.rank()])
        gradients = tape.gradient(value, first)
        optimizers[0].apply_gradients(zip(gradients, first, strict=True))

    for x in batches(hvd.rank(), 40):
        train_alone(x)
elif sys.argv[1] == "several":
    data = iter(batches(hvd.rank(), 160))
    for _ in range(40):
        train_on_four(data)
else:
    for x in batches(hvd.rank(), 40):
        exchanged = [hvd.allreduce(each) for each in gradients_of(x)]
        optimizers[0].apply_gradients(zip(exchanged, first, strict=True))
