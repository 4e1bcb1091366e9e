"""Language models of LSTM layers, arXiv:1409.2329: the networks of section 4.1 for Penn Treebank.

Dropout is on the connections between layers only, never on the recurrent ones (section 3.2). Every
parameter starts uniformly distributed, biases included. Here each sequence starts from a state of
zeros, because the sequences of a batch are drawn at random; in the paper the state is carried on.
"""

from __future__ import annotations

from typing import Any

from tensorflow import keras

LAYERS = 2


def lstm_ptb_small(length: int, vocabulary: int) -> keras.Model:
    """Build the paper's small model, which is not regularised; length 20, vocabulary 10,000 there.

    int32 [n, length] -> [n, length, vocabulary].
    """
    return _lstm(length, vocabulary, units=200, dropout=0.0, spread=0.1)


def lstm(length: int, vocabulary: int) -> keras.Model:
    """Build the paper's medium model; length 35, vocabulary 10,000 there.

    int32 [n, length] -> [n, length, vocabulary].
    """
    return _lstm(length, vocabulary, units=650, dropout=0.5, spread=0.05)


def lstm_ptb_large(length: int, vocabulary: int) -> keras.Model:
    """Build the paper's large model; length 35, vocabulary 10,000 there.

    int32 [n, length] -> [n, length, vocabulary].
    """
    return _lstm(length, vocabulary, units=1500, dropout=0.65, spread=0.04)


def lstm_s(length: int, vocabulary: int) -> keras.Model:
    """Build the medium model with 128 units; made for length 20 and vocabulary 2,000.

    int32 [n, length] -> [n, length, vocabulary].
    """
    return _lstm(length, vocabulary, units=128, dropout=0.5, spread=0.05)


def _lstm(length: int, vocabulary: int, units: int, dropout: float, spread: float) -> keras.Model:
    """Build a model whose parameters start in -spread..spread. The embedding's gradient is
    tf.IndexedSlices."""

    def initial() -> Any:
        # A new initializer per tensor: in Keras 2 a second use would give the same numbers again.
        return keras.initializers.RandomUniform(-spread, spread)

    tokens = keras.Input((length,), dtype="int32")
    x = keras.layers.Embedding(vocabulary, units, embeddings_initializer=initial())(tokens)
    for _ in range(LAYERS):
        x = _dropped(x, dropout)
        x = keras.layers.LSTM(
            units,
            return_sequences=True,
            kernel_initializer=initial(),
            recurrent_initializer=initial(),
            bias_initializer=initial(),
            unit_forget_bias=False,
        )(x)
    logits = keras.layers.Dense(
        vocabulary, kernel_initializer=initial(), bias_initializer=initial()
    )(_dropped(x, dropout))
    return keras.Model(tokens, logits)


def _dropped(x: Any, rate: float) -> Any:
    return keras.layers.Dropout(rate)(x) if rate else x
