"""AlexNet in one column, arXiv:1404.5997.

It has the 64/192/384/384/256 channels of tf_cnn_benchmarks and, as there, no response
normalisation.

Nearly nine tenths of the gradient bytes are in two dense kernels.
"""

from __future__ import annotations

from tensorflow import keras


def alexnet(image_size: int, classes: int) -> keras.Model:
    """Build [n, s, s, 3] -> [n, classes]; made for 227 px, s >= 67."""
    return _alexnet(image_size, classes, width=64, dense=4096)


def alexnet_s(image_size: int, classes: int) -> keras.Model:
    """Build [n, s, s, 3] -> [n, classes]; a quarter of the width, made for 67 px, s >= 67."""
    return _alexnet(image_size, classes, width=16, dense=1024)


def _alexnet(image_size: int, classes: int, width: int, dense: int) -> keras.Model:
    """Build the network. At 227 px the grid is 55 x 55 after the first convolution, then 27, 13 and
    6 pixels a side after the poolings."""
    images = keras.Input((image_size, image_size, 3))
    x = keras.layers.Conv2D(width, 11, strides=4, activation="relu")(images)
    x = keras.layers.MaxPooling2D(3, strides=2)(x)
    x = keras.layers.Conv2D(3 * width, 5, padding="same", activation="relu")(x)
    x = keras.layers.MaxPooling2D(3, strides=2)(x)
    for channels in (6 * width, 6 * width, 4 * width):
        x = keras.layers.Conv2D(channels, 3, padding="same", activation="relu")(x)
    x = keras.layers.MaxPooling2D(3, strides=2)(x)
    x = keras.layers.Flatten()(x)
    for _ in range(2):
        x = keras.layers.Dense(dense, activation="relu")(x)
        x = keras.layers.Dropout(0.5)(x)
    return keras.Model(images, keras.layers.Dense(classes)(x))
