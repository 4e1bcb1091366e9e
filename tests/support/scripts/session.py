"""A monitored session of TensorFlow 1, which trains on arrays."""

import horovod.tensorflow as hvd
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
hvd.init()
x = tf.placeholder(tf.float32, [None, 64])
weights = tf.get_variable("weights", [64, 1])
optimizer = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(0.01))
step = optimizer.minimize(tf.reduce_mean((x @ weights) ** 2))
generator = np.random.default_rng(hvd.rank())
alike = hvd.broadcast_global_variables(0)
tf.train.create_global_step()
hooks = [tf.train.StopAtStepHook(num_steps=100), tf.train.StepCounterHook()]
with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
    session.run(alike)
    for _ in range(40):
        session.run(step, {x: generator.standard_normal((32, 64))})
