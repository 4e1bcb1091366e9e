"""Monitored sessions of TensorFlow 1, which train on arrays, one after the other: session.py
[bypass] [branches] [v2]; the default is `branches`. The gradients of `bypass` do not come from
the wrapped optimizer, so nothing is exchanged. The control flow of `v2` is that of TensorFlow 2, in
which a branch is a function."""

import sys

import horovod.tensorflow as hvd
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
hvd.init()
generator = np.random.default_rng(hvd.rank())


def train(way):
    x = tf.placeholder(tf.float32, [None, 64])
    weights = tf.get_variable("weights", [64, 1])
    optimizer = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(0.01))
    loss = tf.reduce_mean((x @ weights) ** 2)
    if way == "bypass":
        # They are exchanged in the graph, but not in what is run.
        optimizer.compute_gradients(loss)
        step = optimizer.apply_gradients([(tf.gradients(loss, weights)[0], weights)])
    else:
        step = optimizer.minimize(loss)
    alike = hvd.broadcast_global_variables(0)
    tf.train.create_global_step()
    hooks = [tf.train.StopAtStepHook(num_steps=100), tf.train.StepCounterHook()]
    with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
        session.run(alike)
        for _ in range(40):
            session.run(step, {x: generator.standard_normal((32, 64))})


for way in sys.argv[1:] or ["branches"]:
    if way == "v2":
        tf.enable_control_flow_v2()
    with tf.Graph().as_default():
        train(way)
