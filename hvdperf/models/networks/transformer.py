"""A decoder-only transformer: the layers of arXiv:1706.03762, section 3, without the encoder.

As in GPT-2, positions are learned, each sublayer's input is normalised rather than its output, and
a last normalisation comes before the logits. There is no dropout, and the logits' weights are not
those of the embedding.
"""

from __future__ import annotations

from typing import Any

from tensorflow import keras

HEADS = 4
_WIDENING = 4  # the feed-forward layer's inner width, in widths of the network
_EPSILON = 1e-5


def transformer(length: int, vocabulary: int) -> keras.Model:
    """Build a model of four layers of width 256; made for length 64 and vocabulary 8,000.

    int32 [n, length] -> [n, length, vocabulary].
    """
    return _transformer(length, vocabulary, layers=4, width=256)


def transformer_s(length: int, vocabulary: int) -> keras.Model:
    """Build a model of two layers of width 64; made for length 32 and vocabulary 2,000.

    int32 [n, length] -> [n, length, vocabulary].
    """
    return _transformer(length, vocabulary, layers=2, width=64)


def _transformer(length: int, vocabulary: int, layers: int, width: int) -> keras.Model:
    """Build a model whose logits at t depend on the tokens up to t. The embedding's gradient is
    tf.IndexedSlices."""
    tokens = keras.Input((length,), dtype="int32")
    x = keras.layers.Embedding(vocabulary, width)(tokens)
    x = _Positions()(x)
    for _ in range(layers):
        x = keras.layers.Add()([x, _attended(_normalised(x), width)])
        x = keras.layers.Add()([x, _fed_forward(_normalised(x), width)])
    return keras.Model(tokens, keras.layers.Dense(vocabulary)(_normalised(x)))


class _Positions(keras.layers.Layer):
    """A layer that adds a learned vector to each position: [n, t, d] -> the same shape."""

    def build(self, input_shape: Any) -> None:
        self._vectors = self.add_weight(
            name="vectors", shape=tuple(input_shape[1:]), initializer="uniform", trainable=True
        )

    def call(self, x: Any) -> Any:
        return x + self._vectors


def _attended(x: Any, width: int) -> Any:
    """Apply causal self-attention: [n, t, width] -> the same shape."""
    attention = keras.layers.MultiHeadAttention(HEADS, key_dim=width // HEADS)
    return attention(x, x, use_causal_mask=True)


def _fed_forward(x: Any, width: int) -> Any:
    """Apply arXiv:1706.03762, equation 2: [n, t, width] -> the same shape."""
    x = keras.layers.Dense(_WIDENING * width, activation="relu")(x)
    return keras.layers.Dense(width)(x)


def _normalised(x: Any) -> Any:
    return keras.layers.LayerNormalization(epsilon=_EPSILON)(x)
