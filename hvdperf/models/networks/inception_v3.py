"""Inception-v3, arXiv:1512.00567, table 1 and figures 5 to 7 and 10.

As in keras.applications, every convolution has no bias and is followed by a batch normalisation
without scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorflow import keras

from hvdperf.models.networks.inception import (
    Convolution,
    average_pool,
    concatenated,
    max_pool,
)

# The blocks of the full network. A: channels after the pooling of each block. B: channels inside
# the 7 x 7 factors of each block. C: number of blocks.
A = (32, 64, 64)
B = (128, 160, 160, 192)
C = 2


def inception_v3(image_size: int, classes: int) -> keras.Model:
    """Build [n, s, s, 3] -> [n, classes]; 299 px in the paper, s >= 75."""
    return keras.applications.InceptionV3(
        weights=None,
        input_shape=(image_size, image_size, 3),
        classes=classes,
        classifier_activation=None,
    )


def inception_v3_s(image_size: int, classes: int) -> keras.Model:
    """Build [n, s, s, 3] -> [n, classes] of one block of each kind at a quarter of the width; made
    for 75 px."""
    return inception_v3_of(image_size, classes, A[:1], B[:1], 1, thinner=4)


def inception_v3_of(
    image_size: int,
    classes: int,
    blocks_a: Sequence[int],
    blocks_b: Sequence[int],
    blocks_c: int,
    thinner: int,
) -> keras.Model:
    """Build an Inception-v3 of these blocks, every width divided by `thinner`.

    Blocks A, B and C with thinner=1 give keras.applications' InceptionV3, variable by variable.
    Shapes in the comments are those of that network at 299 px.
    """
    conv = Convolution(thinner, momentum=0.99)
    images = keras.Input((image_size, image_size, 3))
    x = _stem(conv, images)  # 35 x 35 x 192
    for pooled in blocks_a:
        x = _block_a(conv, x, pooled)  # 35 x 35 x 288
    x = _reduction_a(conv, x)  # 17 x 17 x 768
    for inner in blocks_b:
        x = _block_b(conv, x, inner)
    x = _reduction_b(conv, x)  # 8 x 8 x 1280
    for _ in range(blocks_c):
        x = _block_c(conv, x)  # 8 x 8 x 2048
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(images, keras.layers.Dense(classes)(x))


def _stem(conv: Convolution, x: Any) -> Any:
    """Map 299 x 299 x 3 to 35 x 35 x 192."""
    x = conv(x, 32, 3, 3, strides=2, padding="valid")
    x = conv(x, 32, 3, 3, padding="valid")
    x = conv(x, 64, 3, 3)
    x = conv(max_pool(x), 80, 1, 1, padding="valid")
    return max_pool(conv(x, 192, 3, 3, padding="valid"))


def _block_a(conv: Convolution, x: Any, pooled: int) -> Any:
    """Map 35 x 35 x c to 35 x 35 x (224 + pooled); figure 5, with one 5 x 5 convolution left, as in
    keras.applications."""
    single = conv(conv(x, 48, 1, 1), 64, 5, 5)
    double = conv(conv(conv(x, 64, 1, 1), 96, 3, 3), 96, 3, 3)
    return concatenated(conv(x, 64, 1, 1), single, double, conv(average_pool(x), pooled, 1, 1))


def _reduction_a(conv: Convolution, x: Any) -> Any:
    """Map 35 x 35 x 288 to 17 x 17 x 768; figure 10."""
    single = conv(x, 384, 3, 3, strides=2, padding="valid")
    double = conv(conv(x, 64, 1, 1), 96, 3, 3)
    double = conv(double, 96, 3, 3, strides=2, padding="valid")
    return concatenated(single, double, max_pool(x))


def _block_b(conv: Convolution, x: Any, inner: int) -> Any:
    """Map 17 x 17 x 768 to the same shape; figure 6 with n = 7."""
    single = conv(conv(conv(x, inner, 1, 1), inner, 1, 7), 192, 7, 1)
    double = conv(conv(conv(x, inner, 1, 1), inner, 7, 1), inner, 1, 7)
    double = conv(conv(double, inner, 7, 1), 192, 1, 7)
    return concatenated(conv(x, 192, 1, 1), single, double, conv(average_pool(x), 192, 1, 1))


def _reduction_b(conv: Convolution, x: Any) -> Any:
    """Map 17 x 17 x 768 to 8 x 8 x 1280."""
    single = conv(conv(x, 192, 1, 1), 320, 3, 3, strides=2, padding="valid")
    double = conv(conv(conv(x, 192, 1, 1), 192, 1, 7), 192, 7, 1)
    double = conv(double, 192, 3, 3, strides=2, padding="valid")
    return concatenated(single, double, max_pool(x))


def _block_c(conv: Convolution, x: Any) -> Any:
    """Map 8 x 8 x c to 8 x 8 x 2048; figure 7."""
    single = conv(x, 384, 1, 1)
    double = conv(conv(x, 448, 1, 1), 384, 3, 3)
    return concatenated(
        conv(x, 320, 1, 1),
        concatenated(conv(single, 384, 1, 3), conv(single, 384, 3, 1)),
        concatenated(conv(double, 384, 1, 3), conv(double, 384, 3, 1)),
        conv(average_pool(x), 192, 1, 1),
    )
