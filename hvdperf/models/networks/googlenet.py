"""GoogLeNet (Inception v1), arXiv:1409.4842, table 1.

As in tf_cnn_benchmarks, there are no response normalisation and no auxiliary classifiers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorflow import keras

# Output channels of a module: #1x1, #3x3 reduce, #3x3, #5x5 reduce, #5x5, pool proj.
Module = tuple[int, int, int, int, int, int]

STAGES: tuple[tuple[Module, ...], ...] = (
    (
        (64, 96, 128, 16, 32, 32),  # 3a
        (128, 128, 192, 32, 96, 64),  # 3b
    ),
    (
        (192, 96, 208, 16, 48, 64),  # 4a
        (160, 112, 224, 24, 64, 64),  # 4b
        (128, 128, 256, 24, 64, 64),  # 4c
        (112, 144, 288, 32, 64, 64),  # 4d
        (256, 160, 320, 32, 128, 128),  # 4e
    ),
    (
        (256, 160, 320, 32, 128, 128),  # 5a
        (384, 192, 384, 48, 128, 128),  # 5b
    ),
)


def googlenet(image_size: int, classes: int) -> keras.Model:
    """Build [n, s, s, 3] -> [n, classes]; 224 px in the paper."""
    return _googlenet(image_size, classes, STAGES, thinner=1)


def googlenet_s(image_size: int, classes: int) -> keras.Model:
    """Build [n, s, s, 3] -> [n, classes] of 3a, 4a and 5a at a quarter of the width, for 64 px."""
    return _googlenet(image_size, classes, [stage[:1] for stage in STAGES], thinner=4)


def _googlenet(
    image_size: int, classes: int, stages: Sequence[Sequence[Module]], thinner: int
) -> keras.Model:
    """Build the network with every width divided by `thinner`. At 224 px the modules see 28 x 28,
    14 x 14 and 7 x 7."""
    images = keras.Input((image_size, image_size, 3))
    x = _conv(images, 64 // thinner, 7, strides=2)
    x = keras.layers.MaxPooling2D(3, strides=2, padding="same")(x)
    x = _conv(x, 64 // thinner, 1)
    x = _conv(x, 192 // thinner, 3)
    for stage in stages:
        x = keras.layers.MaxPooling2D(3, strides=2, padding="same")(x)
        for module in stage:
            x = _inception(x, *(channels // thinner for channels in module))
    x = keras.layers.GlobalAveragePooling2D()(x)
    x = keras.layers.Dropout(0.4)(x)
    return keras.Model(images, keras.layers.Dense(classes)(x))


def _inception(
    x: Any, one: int, reduce_3: int, three: int, reduce_5: int, five: int, pool: int
) -> Any:
    """Map [n, h, w, c] to [n, h, w, one + three + five + pool]; figure 2(b)."""
    pooled = keras.layers.MaxPooling2D(3, strides=1, padding="same")(x)
    branches = [
        _conv(x, one, 1),
        _conv(_conv(x, reduce_3, 1), three, 3),
        _conv(_conv(x, reduce_5, 1), five, 5),
        _conv(pooled, pool, 1),
    ]
    return keras.layers.Concatenate()(branches)


def _conv(x: Any, channels: int, size: int, strides: int = 1) -> Any:
    return keras.layers.Conv2D(channels, size, strides=strides, padding="same", activation="relu")(
        x
    )
