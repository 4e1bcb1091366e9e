"""DCGAN, arXiv:1511.06434: a generator and a discriminator that are trained in turn.

The shapes are those of figure 1, with the 5 x 5 kernels of the authors' program. Normalisation,
activations and initial weights are those of sections 3 and 4. A step has two bursts of gradients,
one for each network.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tensorflow import keras

LATENT = 100  # length of the generator's input vector, uniform in -1..1 in the paper
_SMALLEST = 16
_GRID = 4  # pixels a side of the grid that a generator starts from


def _dcgan(image_size: int, classes: int, width: int) -> tuple[keras.Model, keras.Model]:
    """Build (generator, discriminator): [n, 100] -> [n, s, s, 3], [n, s, s, 3] -> logits [n, 1].

    The images are in -1..1. classes is not used: an image is real or not. width: number of channels
    of the layer next to the image. Raises ValueError unless s is a power of two, 16 or more.
    """
    if image_size < _SMALLEST or image_size & (image_size - 1):
        raise ValueError(f"image size {image_size}: it must be a power of two, 16 or more")
    doublings = (image_size // _GRID).bit_length() - 1
    # Four at 64 px: 128, 256, 512 and 1024 channels on grids of 32, 16, 8 and 4 pixels.
    channels = [width * 2**i for i in range(doublings)]
    return _generator(channels[::-1]), _discriminator(image_size, channels)


# 64 px in the paper, and a sixteenth of the width for as many.
dcgan = partial(_dcgan, width=128)
dcgan_s = partial(_dcgan, width=8)


def _generator(channels: list[int]) -> keras.Model:
    """Build [n, 100] -> [n, 4, 4, first] -> ... -> [n, s, s, 3]. Only the last layer has biases."""
    latent = keras.Input((LATENT,))
    size = _GRID * _GRID * channels[0]
    x = keras.layers.Dense(size, use_bias=False, kernel_initializer=_initial())(latent)
    x = keras.layers.Reshape((_GRID, _GRID, channels[0]))(x)
    for narrower in channels[1:]:
        x = _strided(keras.layers.Conv2DTranspose, narrower, use_bias=False)(_activated(x))
    upsampled = _strided(keras.layers.Conv2DTranspose, 3, activation="tanh")
    return keras.Model(latent, upsampled(_activated(x)))


def _activated(x: Any) -> Any:
    return keras.layers.ReLU()(keras.layers.BatchNormalization()(x))


def _strided(convolution: Any, channels: int, **options: Any) -> Any:
    """Make a convolution that halves the grid, or a transposed one that doubles it."""
    options["kernel_initializer"] = _initial()
    return convolution(channels, 5, strides=2, padding="same", **options)


def _discriminator(image_size: int, channels: list[int]) -> keras.Model:
    """Build [n, s, s, 3] -> [n, s/2, s/2, first] -> ... -> [n, 4, 4, last] -> [n, 1].

    The first convolution is not normalised, and so has biases.
    """
    images = keras.Input((image_size, image_size, 3))
    x = images
    for layer, wider in enumerate(channels):
        x = _strided(keras.layers.Conv2D, wider, use_bias=layer == 0)(x)
        if layer > 0:
            x = keras.layers.BatchNormalization()(x)
        # By position: the slope is named alpha in Keras 2 and negative_slope in Keras 3.
        x = keras.layers.LeakyReLU(0.2)(x)
    x = keras.layers.Flatten()(x)
    return keras.Model(images, keras.layers.Dense(1, kernel_initializer=_initial())(x))


def _initial() -> Any:
    # A new initializer per layer: in Keras 2 a second use would give the same numbers again.
    return keras.initializers.RandomNormal(stddev=0.02)
