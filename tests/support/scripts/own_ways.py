"""Training in ways of one's own, one after the other: `gan` has two networks, two tapes and data
that every rank reads first; `allreduce` exchanges gradients by itself, after the step; `several`
takes four batches in a call; `sets` has a process set of each rank's own; `eager` is a plain
loop."""

import sys

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

STEPS = 40
hvd.init()
tf.random.set_seed(1)


def network():
    return [tf.Variable(tf.random.normal((64, 64), stddev=0.05)) for _ in range(2)]


def batches(seed, count=STEPS):
    data = np.random.default_rng(seed).standard_normal((count * 32, 64)).astype("float32")
    return tf.data.Dataset.from_tensor_slices(data).batch(32)


def loss(weights, x):
    return tf.reduce_mean(((x @ weights[0]) @ weights[1]) ** 2)


first, second = network(), network()
optimizers = [tf.keras.optimizers.SGD(0.01) for _ in range(2)]


def train(x, weights=first, optimizer=optimizers[0], **named):
    with tf.GradientTape() as tape:
        value = loss(weights, x)
    gradients = hvd.DistributedGradientTape(tape, **named).gradient(value, weights)
    optimizer.apply_gradients(zip(gradients, weights, strict=True))


@tf.function
def train_both(x):
    train(x)
    train(x, second, optimizers[1])


@tf.function
def train_on_four(data):
    for _ in tf.range(4):
        train(next(data))


@tf.function
def gradients_of(x):
    with tf.GradientTape() as tape:
        value = loss(first, x)
    return tape.gradient(value, first)


def gan():
    for x in batches(0, 10):
        loss(first, x)
    for x in batches(hvd.rank()):
        train_both(x)


def allreduce():
    for x in batches(hvd.rank()):
        exchanged = [hvd.allreduce(each) for each in gradients_of(x)]
        optimizers[0].apply_gradients(zip(exchanged, first, strict=True))


def several():
    data = iter(batches(hvd.rank(), 4 * STEPS))
    for _ in range(STEPS):
        train_on_four(data)


def sets():
    own = [hvd.add_process_set([rank]) for rank in range(hvd.size())][hvd.rank()]

    @tf.function
    def train_alone(x):
        train(x, process_set=own)

    for x in batches(hvd.rank()):
        train_alone(x)


def eager():
    for x in batches(hvd.rank()):
        train(x)


WAYS = {way.__name__: way for way in (gan, allreduce, several, sets, eager)}
for name in sys.argv[1:]:
    WAYS[name]()
