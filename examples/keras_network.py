"""A Keras network of one's own: pytest perf/ --workloads examples/keras_network.py"""

from hvdperf.models import Network

# Name, builder, and the height and width of its images in pixels.
NETWORKS = (Network("small_cnn", "keras_network:build", 32),)


def build(input_size, classes):
    import keras  # within the function: a session itself imports no TensorFlow

    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((input_size, input_size, 3)),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(classes),
        ]
    )
