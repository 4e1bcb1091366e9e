"""Inception: GoogLeNet (v1, arXiv:1409.4842, table 1), Inception-v3 as in keras.applications, and
Inception-v4 (arXiv:1602.07261, figures 3 to 9, as TF-Slim builds it).

As in tf_cnn_benchmarks, GoogLeNet has neither response normalisation nor auxiliary classifiers. In
v4 every convolution has no bias and is followed by a batch normalisation without scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tensorflow import keras

from hvdperf.models.networks.classifiers import of_keras

# What follows each other: a convolution (channels, height, width, and strides and padding unless
# they are 1 and "same"), a pooling, or a block, which is a list of branches that are concatenated.
Step = Any
Steps = Sequence[Step]
VALID, HALVED = (1, "valid"), (2, "valid")


def _through(conv: Callable[..., Any], x: Any, steps: Steps) -> Any:
    """Apply steps. conv: maps a tensor, and what a convolution has, to a tensor."""
    for step in steps:
        if isinstance(step, list):
            x = keras.layers.Concatenate()([_through(conv, x, branch) for branch in step])
        else:
            x = conv(x, *step) if isinstance(step, tuple) else step(x)
    return x


def _classifier(
    conv: Callable[..., Any], image_size: int, classes: int, steps: Steps, dropout: float = 0.0
) -> keras.Model:
    images = keras.Input((image_size, image_size, 3))
    x = keras.layers.GlobalAveragePooling2D()(_through(conv, images, steps))
    if dropout:
        x = keras.layers.Dropout(dropout)(x)
    return keras.Model(images, keras.layers.Dense(classes)(x))


def max_pool(x: Any) -> Any:
    return keras.layers.MaxPooling2D(3, strides=2)(x)


def average_pool(x: Any) -> Any:
    return keras.layers.AveragePooling2D(3, strides=1, padding="same")(x)


def _pool(strides: int, x: Any) -> Any:
    return keras.layers.MaxPooling2D(3, strides=strides, padding="same")(x)


# GoogLeNet -------------------------------------------------------------------------------------

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


def _googlenet(
    image_size: int, classes: int, stages: Sequence[Sequence[Module]], thinner: int
) -> keras.Model:
    """Build the network with every width divided by `thinner`. At 224 px the modules see 28 x 28,
    14 x 14 and 7 x 7."""
    halve = partial(_pool, 2)
    steps = [(64, 7, 7, 2), halve, (64, 1, 1), (192, 3, 3)]
    for stage in stages:
        steps += [halve, *map(_inception, stage)]
    return _classifier(partial(_biased, thinner), image_size, classes, steps, dropout=0.4)


def _inception(channels: Module) -> Step:
    """Return the block of figure 2(b)."""
    one, reduce_3, three, reduce_5, five, pool = channels
    return [
        [(one, 1, 1)],
        [(reduce_3, 1, 1), (three, 3, 3)],
        [(reduce_5, 1, 1), (five, 5, 5)],
        [partial(_pool, 1), (pool, 1, 1)],
    ]


def _biased(thinner: int, x: Any, channels: int, height: int, width: int, strides: int = 1) -> Any:
    size = (height, width)
    return keras.layers.Conv2D(
        channels // thinner, size, strides, padding="same", activation="relu"
    )(x)


# 224 px in the paper, and 3a, 4a and 5a at a quarter of the width, for 64 px.
googlenet = partial(_googlenet, stages=STAGES, thinner=1)
googlenet_s = partial(_googlenet, stages=[stage[:1] for stage in STAGES], thinner=4)


inception_v3 = partial(of_keras, keras.applications.InceptionV3)


def _normalised(
    thinner: int,
    x: Any,
    channels: int,
    height: int,
    width: int,
    strides: int = 1,
    padding: str = "same",
) -> Any:
    """Apply a convolution without bias, a batch normalisation without scale, and a ReLU. The
    paper's "V" is padding="valid". thinner: divisor of the number of channels."""
    size = (height, width)
    conv = keras.layers.Conv2D(channels // thinner, size, strides, padding, use_bias=False)
    x = keras.layers.BatchNormalization(momentum=0.9997, epsilon=1e-3, scale=False)(conv(x))
    return keras.layers.ReLU()(x)


# Inception-v4, with the shapes at 299 px -------------------------------------------------------

_STEM_V4: Steps = (  # to 35 x 35 x 384; figure 3
    *((32, 3, 3, *HALVED), (32, 3, 3, *VALID), (64, 3, 3)),
    [[max_pool], [(96, 3, 3, *HALVED)]],  # 73 x 73 x 160
    [  # 71 x 71 x 192
        [(64, 1, 1), (96, 3, 3, *VALID)],
        [(64, 1, 1), (64, 1, 7), (64, 7, 1), (96, 3, 3, *VALID)],
    ],
    [[(192, 3, 3, *HALVED)], [max_pool]],
)
_BLOCK_A_V4: Step = [  # figure 4
    [(96, 1, 1)],
    [(64, 1, 1), (96, 3, 3)],
    [(64, 1, 1), (96, 3, 3), (96, 3, 3)],
    [average_pool, (96, 1, 1)],
]
_REDUCTION_A_V4: Step = [  # to 17 x 17 x 1024; figure 7 with k, l, m, n = 192, 224, 256, 384
    [(384, 3, 3, *HALVED)],
    [(192, 1, 1), (224, 3, 3), (256, 3, 3, *HALVED)],
    [max_pool],
]
_BLOCK_B_V4: Step = [  # figure 5
    [(384, 1, 1)],
    [(192, 1, 1), (224, 1, 7), (256, 7, 1)],
    [(192, 1, 1), (192, 7, 1), (224, 1, 7), (224, 7, 1), (256, 1, 7)],
    [average_pool, (128, 1, 1)],
]
_REDUCTION_B_V4: Step = [  # to 8 x 8 x 1536; figure 8
    [(192, 1, 1), (192, 3, 3, *HALVED)],
    [(256, 1, 1), (256, 1, 7), (320, 7, 1), (320, 3, 3, *HALVED)],
    [max_pool],
]
_BLOCK_C_V4: Step = [  # figure 6
    [(256, 1, 1)],
    [(384, 1, 1), [[(256, 1, 3)], [(256, 3, 1)]]],
    [(384, 1, 1), (448, 3, 1), (512, 1, 3), [[(256, 1, 3)], [(256, 3, 1)]]],
    [average_pool, (256, 1, 1)],
]


def _inception_v4(
    image_size: int, classes: int, blocks: tuple[int, int, int], thinner: int
) -> keras.Model:
    a, b, c = blocks
    steps = [*_STEM_V4, *[_BLOCK_A_V4] * a, _REDUCTION_A_V4]
    steps += [*[_BLOCK_B_V4] * b, _REDUCTION_B_V4, *[_BLOCK_C_V4] * c]
    return _classifier(partial(_normalised, thinner), image_size, classes, steps, dropout=0.2)


# 299 px in the paper, and blocks 1-1-1 at a quarter of the width, for 75 px; s >= 75.
inception_v4 = partial(_inception_v4, blocks=(4, 7, 3), thinner=1)
inception_v4_s = partial(_inception_v4, blocks=(1, 1, 1), thinner=4)
