"""Networks as users bring them, each with a property that real ones have. Small, to be quick."""

import itertools

from hvdperf.models.registry import Network

_HERE = "strange_networks:"
_DATA = {"loss": _HERE + "error", "data": _HERE + "numbers"}

NETWORKS = (
    Network("dicts", _HERE + "two_inputs", 4, loss=_HERE + "error", data=_HERE + "pairs"),
    Network("subclassed", _HERE + "subclassed", 8, optimizer=_HERE + "schedule"),
    Network("table", _HERE + "table", 4, loss=_HERE + "error", data=_HERE + "words"),
    Network("averaged", _HERE + "dense", 8, optimizer=_HERE + "averaging"),
    Network("synchronised", _HERE + "synchronised", 8),
    Network("raises", _HERE + "raising", 8),
    Network("wrapped", _HERE + "dense", 8, optimizer=_HERE + "distributed"),
    Network("dies", _HERE + "dying", 8),
    Network("differs", _HERE + "of_another_size", 8),
    Network("explodes", _HERE + "dense", 8, optimizer=_HERE + "huge_steps"),
    Network("labels", _HERE + "classes", 4, data=_HERE + "thirteen", classes=10),
    Network("overlapping", _HERE + "line", 4, loss=_HERE + "error", data=_HERE + "all_for_each"),
    Network("unlike", _HERE + "line", 4, loss=_HERE + "error", data=_HERE + "drawn"),
)


def _of_images(size, *layers):
    import keras

    return keras.Sequential([keras.Input((size, size, 3)), keras.layers.Flatten(), *layers])


def _of_rows(size, outputs):
    import keras

    return keras.Sequential([keras.Input((size,)), keras.layers.Dense(outputs)])


def dense(size, classes):
    from keras.layers import Dense

    return _of_images(size, Dense(8), Dense(classes))


def line(size, classes):
    return _of_rows(size, 1)


def classes(size, classes):
    return _of_rows(size, classes)


def two_inputs(size, classes):
    import keras

    a, b = keras.Input((size,), name="a"), keras.Input((size,), name="b")
    both = keras.layers.Concatenate()([a, b])
    return keras.Model({"a": a, "b": b}, keras.layers.Dense(1)(both))


def subclassed(size, classes):
    import keras

    class Net(keras.Model):
        def __init__(self):
            super().__init__()
            self.flat, self.dense = keras.layers.Flatten(), keras.layers.Dense(8)
            self.last = keras.layers.Dense(classes)

        def call(self, x, training=False):
            return self.last(self.dense(self.flat(x)))

    return Net()


def table(size, classes):
    import keras
    from keras.layers import Dense, Embedding, Flatten

    words = keras.Input((size,), dtype="int32")
    return keras.Sequential([words, Embedding(1000, 4), Flatten(), Dense(1)])


def synchronised(size, classes):
    import horovod.tensorflow as hvd
    import keras

    class Centred(keras.layers.Layer):
        def call(self, x, training=False):
            return x - hvd.allreduce(keras.ops.mean(x, axis=0), op=hvd.Average)

    return _of_images(size, Centred(), keras.layers.Dense(classes))


def raising(size, classes):
    import keras

    class Said(keras.regularizers.Regularizer):
        def __call__(self, x):
            raise RuntimeError("the regularizer was run")

    return _of_images(size, keras.layers.Dense(classes, kernel_regularizer=Said()))


def dying(size, classes):
    import os
    import sys

    print("no more", file=sys.stderr, flush=True)
    os._exit(3)


def of_another_size(size, classes):
    import horovod.tensorflow as hvd
    from keras.layers import Dense

    return _of_images(size, Dense(8 + hvd.rank()), Dense(classes))


def error(labels, outputs):
    import tensorflow as tf

    return tf.abs(labels - outputs[:, 0])


def schedule():
    import keras

    return keras.optimizers.SGD(keras.optimizers.schedules.ExponentialDecay(0.01, 1000, 0.9))


def averaging():
    import keras

    return keras.optimizers.SGD(1e-2, use_ema=True, ema_overwrite_frequency=10)


def distributed():
    import horovod.tensorflow as hvd
    import keras

    return hvd.DistributedOptimizer(keras.optimizers.SGD(1e-2))


def huge_steps():
    import keras

    return keras.optimizers.SGD(1e30)


def _rows(count, size):
    import tensorflow as tf

    return tf.random.stateless_normal([count, size], seed=[1, 2])


def numbers(size, shard):
    import tensorflow as tf

    rows = tf.data.Dataset.from_tensor_slices(_rows(64, size))
    return rows.shard(shard.count, shard.index).map(lambda x: (x, x[0]))


def pairs(size, shard):
    return numbers(size, shard).map(lambda x, y: ({"a": x, "b": x}, y))


def words(size, shard):
    import tensorflow as tf

    ids = tf.random.stateless_uniform([64, size], [1, 2], 0, 1000, tf.int32)
    samples = tf.data.Dataset.from_tensor_slices((ids, tf.ones([64])))
    return samples.shard(shard.count, shard.index)


def thirteen(size, shard):
    import tensorflow as tf

    samples = tf.data.Dataset.from_tensor_slices((_rows(26, size), tf.range(26) % 13))
    return samples.shard(shard.count, shard.index)


def all_for_each(size, shard):
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((_rows(64, size), tf.ones([64])))


_openings = itertools.count()


def drawn(size, shard):
    """Samples that differ at each opening, whatever the seed."""
    added = float(next(_openings))
    return numbers(size, shard).map(lambda x, y: (x + added, y))
