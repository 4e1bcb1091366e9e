"""The building blocks of Inception-v3 and Inception-v4."""

from __future__ import annotations

from typing import Any

from tensorflow import keras


class Convolution:
    """A convolution without bias, a batch normalisation without scale, and a ReLU. The papers' "V"
    is padding="valid"."""

    def __init__(self, thinner: int, momentum: float) -> None:
        """thinner: divisor of every number of channels. momentum: of the moving averages of a
        normalisation."""
        self._thinner = thinner
        self._momentum = momentum

    def __call__(
        self,
        x: Any,
        channels: int,
        height: int,
        width: int,
        strides: int = 1,
        padding: str = "same",
    ) -> Any:
        x = keras.layers.Conv2D(
            channels // self._thinner,
            (height, width),
            strides=strides,
            padding=padding,
            use_bias=False,
        )(x)
        x = keras.layers.BatchNormalization(momentum=self._momentum, epsilon=1e-3, scale=False)(x)
        return keras.layers.ReLU()(x)


def max_pool(x: Any) -> Any:
    return keras.layers.MaxPooling2D(3, strides=2)(x)


def average_pool(x: Any) -> Any:
    return keras.layers.AveragePooling2D(3, strides=1, padding="same")(x)


def concatenated(*branches: Any) -> Any:
    return keras.layers.Concatenate()(list(branches))
