"""A training loop of one's own, with tf.function and DistributedGradientTape.

Options plant what a rank or all ranks do besides, or leave out.
"""

import argparse
import os
import subprocess
import time

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--slow", type=float, default=0.0)
parser.add_argument("--save", type=float, default=0.0)
parser.add_argument("--stop", type=float, default=0.0)
parser.add_argument("--fail-at", type=int, default=-1)
parser.add_argument("--leave", type=int, default=0)
parser.add_argument("--stall-at", type=int, default=-1)
for flag in ("eager", "no-exchange", "gpu"):
    parser.add_argument(f"--{flag}", action="store_true")
options = parser.parse_args()

if options.gpu:
    # As on a machine with a GPU, for all that asks TensorFlow.
    tf.config.list_logical_devices = lambda kind=None: [kind]

hvd.init()
rank = hvd.rank()
tf.random.set_seed(1)
weights = [
    tf.Variable(tf.random.normal(shape, stddev=0.05), name=f"w{i}")
    for i, shape in enumerate([(64, 256), (256, 256), (256, 1)])
]
optimizer = tf.keras.optimizers.SGD(0.01)


def batches():
    generator = np.random.default_rng(rank)
    while True:
        x = generator.standard_normal((32, 64)).astype("float32")
        yield x, x.sum(axis=1, keepdims=True)


spec = (tf.TensorSpec((32, 64), tf.float32), tf.TensorSpec((32, 1), tf.float32))
data = iter(tf.data.Dataset.from_generator(batches, output_signature=spec))


def work():
    if options.slow and rank == 1:
        time.sleep(options.slow)
    return np.float32(0)


def step(x, y):
    with tf.GradientTape() as tape:
        hidden = x
        for weight in weights[:-1]:
            hidden = tf.nn.relu(hidden @ weight)
        loss = tf.reduce_mean((hidden @ weights[-1] - y) ** 2)
        if options.slow:
            loss += 0.0 * tf.numpy_function(work, [], tf.float32)
    if not options.no_exchange:
        tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss, weights)
    optimizer.apply_gradients(zip(gradients, weights, strict=True))
    return loss


traced = step if options.eager else tf.function(step)
hvd.broadcast_variables(weights, root_rank=0)
for number in range(options.steps):
    traced(*next(data))
    if options.save and number % 20 == 19 and rank == 0:
        time.sleep(options.save)
    if options.stop and number == options.steps // 2 and rank == 1:
        code = f"kill -STOP $PPID; sleep {options.stop}; kill -CONT $PPID"
        subprocess.Popen(["sh", "-c", code])
    if number == options.stall_at and rank == 0:
        hvd.allreduce(tf.constant(1.0), name="logged")
    if number == options.fail_at:
        raise RuntimeError("the script's own error")
print(f"rank {rank} is done", flush=True)
if options.leave:
    os._exit(options.leave)
