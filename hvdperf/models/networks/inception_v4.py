"""Inception-v4, arXiv:1602.07261, figures 3 to 9, as TF-Slim builds it.

Every convolution has no bias and is followed by a batch normalisation without scale.
"""

from __future__ import annotations

from typing import Any

from tensorflow import keras

from hvdperf.models.networks.inception import (
    Convolution,
    average_pool,
    concatenated,
    max_pool,
)


def inception_v4(image_size: int, classes: int) -> keras.Model:
    """Build [n, s, s, 3] -> [n, classes]; 299 px in the paper, s >= 75."""
    return _inception_v4(image_size, classes, blocks=(4, 7, 3), thinner=1)


def inception_v4_s(image_size: int, classes: int) -> keras.Model:
    """Build [n, s, s, 3] -> [n, classes] of blocks 1-1-1 at a quarter of the width, for 75 px."""
    return _inception_v4(image_size, classes, blocks=(1, 1, 1), thinner=4)


def _inception_v4(
    image_size: int, classes: int, blocks: tuple[int, int, int], thinner: int
) -> keras.Model:
    """Build the network with every width divided by `thinner`. Shapes in the comments are those at
    299 px with thinner=1."""
    conv = Convolution(thinner, momentum=0.9997)
    images = keras.Input((image_size, image_size, 3))
    x = _stem(conv, images)  # 35 x 35 x 384
    for _ in range(blocks[0]):
        x = _block_a(conv, x)
    x = _reduction_a(conv, x)  # 17 x 17 x 1024
    for _ in range(blocks[1]):
        x = _block_b(conv, x)
    x = _reduction_b(conv, x)  # 8 x 8 x 1536
    for _ in range(blocks[2]):
        x = _block_c(conv, x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    x = keras.layers.Dropout(0.2)(x)
    return keras.Model(images, keras.layers.Dense(classes)(x))


def _stem(conv: Convolution, x: Any) -> Any:
    """Map 299 x 299 x 3 to 35 x 35 x 384; figure 3."""
    x = conv(x, 32, 3, 3, strides=2, padding="valid")
    x = conv(x, 32, 3, 3, padding="valid")
    x = conv(x, 64, 3, 3)
    x = concatenated(max_pool(x), conv(x, 96, 3, 3, strides=2, padding="valid"))  # 73 x 73 x 160
    left = conv(conv(x, 64, 1, 1), 96, 3, 3, padding="valid")
    right = conv(conv(conv(x, 64, 1, 1), 64, 1, 7), 64, 7, 1)
    right = conv(right, 96, 3, 3, padding="valid")
    x = concatenated(left, right)  # 71 x 71 x 192
    return concatenated(conv(x, 192, 3, 3, strides=2, padding="valid"), max_pool(x))


def _block_a(conv: Convolution, x: Any) -> Any:
    """Map 35 x 35 x 384 to the same shape; figure 4."""
    single = conv(conv(x, 64, 1, 1), 96, 3, 3)
    double = conv(conv(conv(x, 64, 1, 1), 96, 3, 3), 96, 3, 3)
    pooled = conv(average_pool(x), 96, 1, 1)
    return concatenated(conv(x, 96, 1, 1), single, double, pooled)


def _reduction_a(conv: Convolution, x: Any) -> Any:
    """Map 35 x 35 x 384 to 17 x 17 x 1024; figure 7 with k, l, m, n = 192, 224, 256, 384."""
    single = conv(x, 384, 3, 3, strides=2, padding="valid")
    double = conv(conv(x, 192, 1, 1), 224, 3, 3)
    double = conv(double, 256, 3, 3, strides=2, padding="valid")
    return concatenated(single, double, max_pool(x))


def _block_b(conv: Convolution, x: Any) -> Any:
    """Map 17 x 17 x 1024 to the same shape; figure 5."""
    single = conv(conv(conv(x, 192, 1, 1), 224, 1, 7), 256, 7, 1)
    double = conv(conv(conv(x, 192, 1, 1), 192, 7, 1), 224, 1, 7)
    double = conv(conv(double, 224, 7, 1), 256, 1, 7)
    pooled = conv(average_pool(x), 128, 1, 1)
    return concatenated(conv(x, 384, 1, 1), single, double, pooled)


def _reduction_b(conv: Convolution, x: Any) -> Any:
    """Map 17 x 17 x 1024 to 8 x 8 x 1536; figure 8."""
    single = conv(conv(x, 192, 1, 1), 192, 3, 3, strides=2, padding="valid")
    double = conv(conv(conv(x, 256, 1, 1), 256, 1, 7), 320, 7, 1)
    double = conv(double, 320, 3, 3, strides=2, padding="valid")
    return concatenated(single, double, max_pool(x))


def _block_c(conv: Convolution, x: Any) -> Any:
    """Map 8 x 8 x 1536 to the same shape; figure 6."""
    single = conv(x, 384, 1, 1)
    double = conv(conv(conv(x, 384, 1, 1), 448, 3, 1), 512, 1, 3)
    pooled = conv(average_pool(x), 256, 1, 1)
    return concatenated(
        conv(x, 256, 1, 1),
        conv(single, 256, 1, 3),
        conv(single, 256, 3, 1),
        conv(double, 256, 1, 3),
        conv(double, 256, 3, 1),
        pooled,
    )
