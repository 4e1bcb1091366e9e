"""How every pipeline runs: on threads of its own, in order, as it was written."""

from __future__ import annotations

import tensorflow as tf


def fixed(threads: int) -> tf.data.Options:
    """Options under which nothing about a pipeline is chosen at run time."""
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    options.deterministic = True
    # Sharded already, and with a fixed number of threads.
    options.autotune.enabled = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options
