"""A monitored session of TensorFlow 1, which trains on arrays: session.py [bypass] [v2]. With
bypass its gradients do not come from the wrapped optimizer, so nothing is exchanged. With v2 its
control flow is that of TensorFlow 2, in which a branch is a function."""

import sys

import horovod.tensorflow as hvd
import numpy as np
import tensorflow.compat.v1 as tf

if "v2" in sys.argv:
    tf.disable_eager_execution()
else:
    tf.disable_v2_behavior()
hvd.init()
x = tf.placeholder(tf.float32, [None, 64])
weights = tf.get_variable("weights", [64, 1])
optimizer = hvd.DistributedOptimizer(tf.train.GradientDescentOptimizer(0.01))
loss = tf.reduce_mean((x @ weights) ** 2)
if sys.argv[1:] == ["bypass"]:
    # They are exchanged in the graph, but not in what is run.
    optimizer.compute_gradients(loss)
    step = optimizer.apply_gradients([(tf.gradients(loss, weights)[0], weights)])
else:
    step = optimizer.minimize(loss)
generator = np.random.default_rng(hvd.rank())
alike = hvd.broadcast_global_variables(0)
tf.train.create_global_step()
hooks = [tf.train.StopAtStepHook(num_steps=100), tf.train.StepCounterHook()]
with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
    session.run(alike)
    for _ in range(40):
        session.run(step, {x: generator.standard_normal((32, 64))})
