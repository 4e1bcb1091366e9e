"""Inception: GoogLeNet (v1, arXiv:1409.4842, table 1), Inception-v3 (arXiv:1512.00567, table 1 and
figures 5 to 7 and 10), and Inception-v4 (arXiv:1602.07261, figures 3 to 9, as TF-Slim builds it).

As in tf_cnn_benchmarks, GoogLeNet has neither response normalisation nor auxiliary classifiers. In
v3, as in keras.applications, and v4 every convolution has no bias and is followed by a batch
normalisation without scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Callable

from tensorflow import keras

from hvdperf.models.networks.classifiers import of_keras

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
    conv = keras.layers.Conv2D(channels, size, strides, padding="same", activation="relu")
    return conv(x)


def _normalised(
    thinner: int,
    momentum: float,
    x: Any,
    channels: int,
    height: int,
    width: int,
    strides: int = 1,
    padding: str = "same",
) -> Any:
    """Apply a convolution without bias, a batch normalisation without scale, and a ReLU. The
    papers' "V" is padding="valid". thinner: divisor of the number of channels. momentum: of the
    moving averages of the normalisation."""
    size = (height, width)
    conv = keras.layers.Conv2D(channels // thinner, size, strides, padding, use_bias=False)
    x = keras.layers.BatchNormalization(momentum=momentum, epsilon=1e-3, scale=False)(conv(x))
    return keras.layers.ReLU()(x)


# `_normalised` of a network's thinness and momentum.
Convolution = Callable[..., Any]


def max_pool(x: Any) -> Any:
    return keras.layers.MaxPooling2D(3, strides=2)(x)


def average_pool(x: Any) -> Any:
    return keras.layers.AveragePooling2D(3, strides=1, padding="same")(x)


def concatenated(*branches: Any) -> Any:
    return keras.layers.Concatenate()(list(branches))


# The blocks of the full Inception-v3. A: channels after the pooling of each block. B: channels
# inside the 7 x 7 factors of each block. C: number of blocks.
A = (32, 64, 64)
B = (128, 160, 160, 192)
C = 2


def inception_v3(image_size: int, classes: int) -> keras.Model:
    """Build [n, s, s, 3] -> [n, classes]; 299 px in the paper, s >= 75."""
    return of_keras(keras.applications.InceptionV3, image_size, classes)


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
    conv = partial(_normalised, thinner, 0.99)
    images = keras.Input((image_size, image_size, 3))
    x = _stem_v3(conv, images)  # 35 x 35 x 192
    for pooled in blocks_a:
        x = _block_a_v3(conv, x, pooled)  # 35 x 35 x 288
    x = _reduction_a_v3(conv, x)  # 17 x 17 x 768
    for inner in blocks_b:
        x = _block_b_v3(conv, x, inner)
    x = _reduction_b_v3(conv, x)  # 8 x 8 x 1280
    for _ in range(blocks_c):
        x = _block_c_v3(conv, x)  # 8 x 8 x 2048
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(images, keras.layers.Dense(classes)(x))


def _stem_v3(conv: Convolution, x: Any) -> Any:
    """Map 299 x 299 x 3 to 35 x 35 x 192."""
    x = conv(x, 32, 3, 3, strides=2, padding="valid")
    x = conv(x, 32, 3, 3, padding="valid")
    x = conv(x, 64, 3, 3)
    x = conv(max_pool(x), 80, 1, 1, padding="valid")
    return max_pool(conv(x, 192, 3, 3, padding="valid"))


def _block_a_v3(conv: Convolution, x: Any, pooled: int) -> Any:
    """Map 35 x 35 x c to 35 x 35 x (224 + pooled); figure 5, with one 5 x 5 convolution left, as in
    keras.applications."""
    single = conv(conv(x, 48, 1, 1), 64, 5, 5)
    double = conv(conv(conv(x, 64, 1, 1), 96, 3, 3), 96, 3, 3)
    return concatenated(conv(x, 64, 1, 1), single, double, conv(average_pool(x), pooled, 1, 1))


def _reduction_a_v3(conv: Convolution, x: Any) -> Any:
    """Map 35 x 35 x 288 to 17 x 17 x 768; figure 10."""
    single = conv(x, 384, 3, 3, strides=2, padding="valid")
    double = conv(conv(x, 64, 1, 1), 96, 3, 3)
    double = conv(double, 96, 3, 3, strides=2, padding="valid")
    return concatenated(single, double, max_pool(x))


def _block_b_v3(conv: Convolution, x: Any, inner: int) -> Any:
    """Map 17 x 17 x 768 to the same shape; figure 6 with n = 7."""
    single = conv(conv(conv(x, inner, 1, 1), inner, 1, 7), 192, 7, 1)
    double = conv(conv(conv(x, inner, 1, 1), inner, 7, 1), inner, 1, 7)
    double = conv(conv(double, inner, 7, 1), 192, 1, 7)
    return concatenated(conv(x, 192, 1, 1), single, double, conv(average_pool(x), 192, 1, 1))


def _reduction_b_v3(conv: Convolution, x: Any) -> Any:
    """Map 17 x 17 x 768 to 8 x 8 x 1280."""
    single = conv(conv(x, 192, 1, 1), 320, 3, 3, strides=2, padding="valid")
    double = conv(conv(conv(x, 192, 1, 1), 192, 1, 7), 192, 7, 1)
    double = conv(double, 192, 3, 3, strides=2, padding="valid")
    return concatenated(single, double, max_pool(x))


def _block_c_v3(conv: Convolution, x: Any) -> Any:
    """Map 8 x 8 x c to 8 x 8 x 2048; figure 7."""
    single = conv(x, 384, 1, 1)
    double = conv(conv(x, 448, 1, 1), 384, 3, 3)
    return concatenated(
        conv(x, 320, 1, 1),
        concatenated(conv(single, 384, 1, 3), conv(single, 384, 3, 1)),
        concatenated(conv(double, 384, 1, 3), conv(double, 384, 3, 1)),
        conv(average_pool(x), 192, 1, 1),
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
    conv = partial(_normalised, thinner, 0.9997)
    images = keras.Input((image_size, image_size, 3))
    x = _stem_v4(conv, images)  # 35 x 35 x 384
    for _ in range(blocks[0]):
        x = _block_a_v4(conv, x)
    x = _reduction_a_v4(conv, x)  # 17 x 17 x 1024
    for _ in range(blocks[1]):
        x = _block_b_v4(conv, x)
    x = _reduction_b_v4(conv, x)  # 8 x 8 x 1536
    for _ in range(blocks[2]):
        x = _block_c_v4(conv, x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    x = keras.layers.Dropout(0.2)(x)
    return keras.Model(images, keras.layers.Dense(classes)(x))


def _stem_v4(conv: Convolution, x: Any) -> Any:
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


def _block_a_v4(conv: Convolution, x: Any) -> Any:
    """Map 35 x 35 x 384 to the same shape; figure 4."""
    single = conv(conv(x, 64, 1, 1), 96, 3, 3)
    double = conv(conv(conv(x, 64, 1, 1), 96, 3, 3), 96, 3, 3)
    pooled = conv(average_pool(x), 96, 1, 1)
    return concatenated(conv(x, 96, 1, 1), single, double, pooled)


def _reduction_a_v4(conv: Convolution, x: Any) -> Any:
    """Map 35 x 35 x 384 to 17 x 17 x 1024; figure 7 with k, l, m, n = 192, 224, 256, 384."""
    single = conv(x, 384, 3, 3, strides=2, padding="valid")
    double = conv(conv(x, 192, 1, 1), 224, 3, 3)
    double = conv(double, 256, 3, 3, strides=2, padding="valid")
    return concatenated(single, double, max_pool(x))


def _block_b_v4(conv: Convolution, x: Any) -> Any:
    """Map 17 x 17 x 1024 to the same shape; figure 5."""
    single = conv(conv(conv(x, 192, 1, 1), 224, 1, 7), 256, 7, 1)
    double = conv(conv(conv(x, 192, 1, 1), 192, 7, 1), 224, 1, 7)
    double = conv(conv(double, 224, 7, 1), 256, 1, 7)
    pooled = conv(average_pool(x), 128, 1, 1)
    return concatenated(conv(x, 384, 1, 1), single, double, pooled)


def _reduction_b_v4(conv: Convolution, x: Any) -> Any:
    """Map 17 x 17 x 1024 to 8 x 8 x 1536; figure 8."""
    single = conv(conv(x, 192, 1, 1), 192, 3, 3, strides=2, padding="valid")
    double = conv(conv(conv(x, 256, 1, 1), 256, 1, 7), 320, 7, 1)
    double = conv(double, 320, 3, 3, strides=2, padding="valid")
    return concatenated(single, double, max_pool(x))


def _block_c_v4(conv: Convolution, x: Any) -> Any:
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
