"""ResNet, arXiv:1512.03385 (v1), and its pre-activation form, arXiv:1603.05027 (v2).

Batch normalisation makes hundreds of gradients of a few hundred bytes each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorflow import keras

_BATCH_NORM_EPSILON = 1.001e-5  # that of keras.applications


def resnet_50(image_size: int, classes: int) -> keras.Model:
    """Build [n, s, s, 3] -> [n, classes]; v1, 224 px in the paper, s >= 32."""
    return keras.applications.ResNet50(
        weights=None,
        input_shape=(image_size, image_size, 3),
        classes=classes,
        classifier_activation=None,
    )


def resnet_v2_101(image_size: int, classes: int) -> keras.Model:
    """Build [n, s, s, 3] -> [n, classes]; v2, 224 px in the paper, s >= 32."""
    return keras.applications.ResNet101V2(
        weights=None,
        input_shape=(image_size, image_size, 3),
        classes=classes,
        classifier_activation=None,
    )


def resnet_50_s(image_size: int, classes: int) -> keras.Model:
    """Build [n, s, s, 3] -> [n, classes]; v2 with one bottleneck per stage and a quarter of the
    width, made for 32 px."""
    return resnet_v2(image_size, classes, (1, 1, 1, 1), width=16)


def resnet_v2_101_s(image_size: int, classes: int) -> keras.Model:
    """Build [n, s, s, 3] -> [n, classes]; v2 with two bottlenecks per stage and a quarter of the
    width, made for 32 px."""
    return resnet_v2(image_size, classes, (2, 2, 2, 2), width=16)


def resnet_v2_101_t(image_size: int, classes: int) -> keras.Model:
    """Build [n, s, s, 3] -> [n, classes]; v2 with all bottlenecks and a quarter of the width, made
    for 32 px."""
    return resnet_v2(image_size, classes, (3, 4, 23, 3), width=16)


def resnet_v2(image_size: int, classes: int, depths: Sequence[int], width: int) -> keras.Model:
    """Build a pre-activation ResNet with depths[i] bottlenecks in each of its four stages.

    [n, s, s, 3] -> [n, s/4, s/4, width] -> [n, s/32, s/32, 32 width] -> [n, classes], the sizes
    rounded up. Depths (3, 4, 23, 3) at width 64 give keras.applications' ResNet101V2, variable by
    variable: as there, a stage's stride is in its last bottleneck, and the last stage has none.
    """
    images = keras.Input((image_size, image_size, 3))
    x = keras.layers.ZeroPadding2D(3)(images)
    x = keras.layers.Conv2D(width, 7, strides=2)(x)
    x = keras.layers.ZeroPadding2D(1)(x)
    x = keras.layers.MaxPooling2D(3, strides=2)(x)
    for stage, depth in enumerate(depths):
        for block in range(depth):
            stride = 2 if block == depth - 1 and stage < len(depths) - 1 else 1
            x = _bottleneck(x, width * 2**stage, stride, widen=block == 0)
    x = _normalised(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    return keras.Model(images, keras.layers.Dense(classes)(x))


def _bottleneck(x: Any, width: int, stride: int, widen: bool) -> Any:
    """Map [n, h, w, c] to [n, h/stride, w/stride, 4 width]; arXiv:1603.05027, figure 4(e)."""
    active = _normalised(x)
    if widen:
        shortcut = keras.layers.Conv2D(4 * width, 1, strides=stride)(active)
    else:
        shortcut = keras.layers.MaxPooling2D(1, strides=stride)(x) if stride > 1 else x
    y = keras.layers.Conv2D(width, 1, use_bias=False)(active)
    y = keras.layers.ZeroPadding2D(1)(_normalised(y))
    y = keras.layers.Conv2D(width, 3, strides=stride, use_bias=False)(y)
    y = keras.layers.Conv2D(4 * width, 1)(_normalised(y))
    return keras.layers.Add()([shortcut, y])


def _normalised(x: Any) -> Any:
    x = keras.layers.BatchNormalization(epsilon=_BATCH_NORM_EPSILON)(x)
    return keras.layers.ReLU()(x)
