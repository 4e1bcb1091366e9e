"""VGG, arXiv:1409.1556, table 1: configurations D (16 layers) and E (19 layers).

The first dense layer holds most of the weights, and its size depends on the image's.
As in keras.applications, there is no dropout.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorflow import keras

D = (2, 2, 3, 3, 3)
E = (2, 2, 4, 4, 4)


def vgg_16(image_size: int, classes: int) -> keras.Model:
    """Build [n, s, s, 3] -> [n, classes]; 224 px in the paper, s >= 32."""
    return keras.applications.VGG16(
        weights=None,
        input_shape=(image_size, image_size, 3),
        classes=classes,
        classifier_activation=None,
    )


def vgg_19(image_size: int, classes: int) -> keras.Model:
    """Build [n, s, s, 3] -> [n, classes]; 224 px in the paper, s >= 32."""
    return keras.applications.VGG19(
        weights=None,
        input_shape=(image_size, image_size, 3),
        classes=classes,
        classifier_activation=None,
    )


def vgg_16_s(image_size: int, classes: int) -> keras.Model:
    """Build [n, s, s, 3] -> [n, classes]; an eighth of the width, made for 32 px, s >= 32."""
    return vgg(image_size, classes, D, width=8, dense=1024)


def vgg_19_s(image_size: int, classes: int) -> keras.Model:
    """Build [n, s, s, 3] -> [n, classes]; an eighth of the width, made for 32 px, s >= 32."""
    return vgg(image_size, classes, E, width=8, dense=1024)


def vgg(
    image_size: int, classes: int, convolutions: Sequence[int], width: int, dense: int
) -> keras.Model:
    """Build a VGG with convolutions[i] convolutions in stage i and `width` channels in the first.

    [n, s, s, 3] -> [n, s // 32, s // 32, 8 width] -> [n, dense] -> [n, dense] -> [n, classes].
    The paper's networks have width 64 and dense 4096.
    """
    images = keras.Input((image_size, image_size, 3))
    x = images
    for stage, depth in enumerate(convolutions):
        for _ in range(depth):
            channels = width * min(2**stage, 8)
            x = keras.layers.Conv2D(channels, 3, padding="same", activation="relu")(x)
        x = keras.layers.MaxPooling2D(2, strides=2)(x)
    x = keras.layers.Flatten()(x)
    x = keras.layers.Dense(dense, activation="relu")(x)
    x = keras.layers.Dense(dense, activation="relu")(x)
    return keras.Model(images, keras.layers.Dense(classes)(x))
