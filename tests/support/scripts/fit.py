"""Keras's fit with hvd.DistributedOptimizer, and most of a usual script."""

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

hvd.init()
tf.keras.utils.set_random_seed(1)
generator = np.random.default_rng(hvd.rank())
x = generator.standard_normal((32 * 40, 64)).astype("float32")
y = x.sum(axis=1, keepdims=True)
layers = [tf.keras.layers.Dense(256, activation="relu"), tf.keras.layers.Dense(1)]
model = tf.keras.Sequential([tf.keras.Input((64,)), *layers])
optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01))
model.compile(optimizer, tf.keras.losses.MeanSquaredError())
model.fit(x, y, batch_size=32, epochs=2, verbose=1 if hvd.rank() == 0 else 0)
