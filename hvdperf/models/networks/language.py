"""Language models: LSTM layers, and a decoder-only transformer.

LSTM, arXiv:1409.2329: the medium network of section 4.1 for Penn Treebank. Dropout is on the
connections between layers only, never on the recurrent ones (section 3.2). Every parameter starts
uniformly distributed, biases included. Here each sequence starts from a state of zeros, because the
sequences of a batch are drawn at random; in the paper the state is carried on.

Transformer: the layers of arXiv:1706.03762, section 3, without the encoder. As in GPT-2, positions
are learned, each sublayer's input is normalised rather than its output, and a last normalisation
comes before the logits. There is no dropout, and the logits' weights are not those of the
embedding.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tensorflow import keras

LAYERS = 2
DROPOUT = 0.5
SPREAD = 0.05


def _lstm(length: int, vocabulary: int, units: int) -> keras.Model:
    """Build int32 [n, length] -> [n, length, vocabulary] whose parameters start in -SPREAD..SPREAD.
    The embedding's gradient is tf.IndexedSlices."""

    def initial() -> Any:
        # A new initializer per tensor: in Keras 2 a second use would give the same numbers again.
        return keras.initializers.RandomUniform(-SPREAD, SPREAD)

    tokens = keras.Input((length,), dtype="int32")
    x = keras.layers.Embedding(vocabulary, units, embeddings_initializer=initial())(tokens)
    for _ in range(LAYERS):
        x = keras.layers.Dropout(DROPOUT)(x)
        x = keras.layers.LSTM(
            units,
            return_sequences=True,
            kernel_initializer=initial(),
            recurrent_initializer=initial(),
            bias_initializer=initial(),
            unit_forget_bias=False,
        )(x)
    x = keras.layers.Dropout(DROPOUT)(x)
    logits = keras.layers.Dense(
        vocabulary, kernel_initializer=initial(), bias_initializer=initial()
    )(x)
    return keras.Model(tokens, logits)


# Of length 35 and 10,000 words in the paper, and with 128 units for length 20 and 2,000 words.
lstm = partial(_lstm, units=650)
lstm_s = partial(_lstm, units=128)


HEADS = 4
_WIDENING = 4  # the feed-forward layer's inner width, in widths of the network
_EPSILON = 1e-5


def _transformer(length: int, vocabulary: int, layers: int, width: int) -> keras.Model:
    """Build int32 [n, length] -> [n, length, vocabulary], whose logits at t depend on the tokens up
    to t. The embedding's gradient is tf.IndexedSlices."""
    tokens = keras.Input((length,), dtype="int32")
    x = keras.layers.Embedding(vocabulary, width)(tokens)
    x = _Positions()(x)
    for _ in range(layers):
        x = keras.layers.Add()([x, _attended(_normalised(x), width)])
        x = keras.layers.Add()([x, _fed_forward(_normalised(x), width)])
    return keras.Model(tokens, keras.layers.Dense(vocabulary)(_normalised(x)))


# Made for length 64 and 8,000 words, and for length 32 and 2,000 words.
transformer = partial(_transformer, layers=4, width=256)
transformer_s = partial(_transformer, layers=2, width=64)


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
