"""Own loss, optimizer and data: pytest perf/ --workloads examples/own_loss_and_data.py"""

from hvdperf.models import Network

NETWORKS = (
    Network(
        "regression",
        "own_loss_and_data:build",
        64,
        loss="own_loss_and_data:loss",
        optimizer="own_loss_and_data:optimizer",
        data="own_loss_and_data:samples",
    ),
)


def build(input_size, classes):
    import keras

    dense = keras.layers.Dense
    return keras.Sequential([keras.Input((input_size,)), dense(256, activation="relu"), dense(1)])


def loss(labels, outputs):
    import tensorflow as tf

    return tf.abs(labels - tf.cast(outputs[:, 0], tf.float32))  # one figure a sample


def optimizer():
    import keras

    return keras.optimizers.SGD(1e-3, momentum=0.9)


def samples(input_size, shard):
    import tensorflow as tf

    mine = tf.random.stateless_normal([4096, input_size], [1, 2])[shard.index :: shard.count]
    return tf.data.Dataset.from_tensor_slices((mine, tf.reduce_sum(mine, axis=1)))
