"""AlexNet, VGG and ResNet.

AlexNet in one column, arXiv:1404.5997, has the 64/192/384/384/256 channels of tf_cnn_benchmarks
and, as there, no response normalisation. Nearly nine tenths of the gradient bytes are in two dense
kernels.

VGG, arXiv:1409.1556, table 1: configurations D (16 layers) and E (19 layers). The first dense layer
holds most of the weights, and its size depends on the image's. As in keras.applications, there is
no dropout.

ResNet, arXiv:1512.03385 (v1), and its pre-activation form, arXiv:1603.05027 (v2): batch
normalisation makes hundreds of gradients of a few hundred bytes each.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tensorflow import keras


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


# Made for 227 px, and with a quarter of the width for 67 px; s >= 67.
alexnet = partial(_alexnet, width=64, dense=4096)
alexnet_s = partial(_alexnet, width=16, dense=1024)


D = (2, 2, 3, 3, 3)
E = (2, 2, 4, 4, 4)


def of_keras(application: Any, image_size: int, classes: int) -> keras.Model:
    """Build a network of keras.applications with new weights, up to its logits."""
    return application(
        weights=None,
        input_shape=(image_size, image_size, 3),
        classes=classes,
        classifier_activation=None,
    )


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


# 224 px in the paper, and with an eighth of the width for 32 px; s >= 32.
vgg_16 = partial(of_keras, keras.applications.VGG16)
vgg_19 = partial(of_keras, keras.applications.VGG19)
vgg_16_s = partial(vgg, convolutions=D, width=8, dense=1024)
vgg_19_s = partial(vgg, convolutions=E, width=8, dense=1024)


_BATCH_NORM_EPSILON = 1.001e-5  # that of keras.applications


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


# 224 px in the paper; s >= 32.
resnet_50 = partial(of_keras, keras.applications.ResNet50)
resnet_v2_101 = partial(of_keras, keras.applications.ResNet101V2)
# v2 with one bottleneck per stage, with two, or with all, and a quarter of the width; for 32 px.
resnet_50_s = partial(resnet_v2, depths=(1, 1, 1, 1), width=16)
resnet_v2_101_s = partial(resnet_v2, depths=(2, 2, 2, 2), width=16)
resnet_v2_101_t = partial(resnet_v2, depths=(3, 4, 23, 3), width=16)
