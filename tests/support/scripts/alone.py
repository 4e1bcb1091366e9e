"""A training whose import of Horovod fails, and that goes on without it."""

import sys

import numpy as np
import tensorflow as tf

sys.modules["horovod"] = None  # type: ignore[assignment]
try:
    import horovod.tensorflow as hvd

    hvd.init()
except ImportError:
    pass

weights = tf.Variable(tf.random.normal((64, 1)))
optimizer = tf.keras.optimizers.SGD(0.01)


@tf.function
def step(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ weights) ** 2)
    optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])


for _ in range(40):
    step(tf.constant(np.random.standard_normal((32, 64)).astype("float32")))
