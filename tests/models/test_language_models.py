"""The language models are the published ones, and depend on the words before only."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from hvdperf.models import registry
from tests.support.training import all_finite, gradients, parameters, words

pytestmark = pytest.mark.usefixtures("fresh_models")

# The small networks: length, tensors of gradients, width of the embedding.
SMALL = {"lstm_s": (20, 9, 128), "transformer_s": (32, 38, 64)}
EACH = pytest.mark.parametrize("name", SMALL)
# An LSTM has an embedding, three tensors for each of two layers, kernel and bias of the logits.
COUNTS = [
    ("lstm", 35, 10_000, 19_775_200, 9, [0.5] * 3),
    ("lstm_s", 20, 2_000, 777_168, 9, [0.5] * 3),
    ("transformer", 64, 8_000, 7_279_936, 70, []),
    # A position is a vector.
    ("transformer", 128, 8_000, 7_279_936 + 64 * 256, 70, []),
    ("transformer_s", 32, 2_000, 360_144, 38, []),
]


@pytest.mark.usefixtures("without_random_weights")
@pytest.mark.parametrize(("name", "length", "vocabulary", "count", "tensors", "rates"), COUNTS)
def test_counts_are_the_published_ones(name, length, vocabulary, count, tensors, rates):
    model = registry.build(name, length, vocabulary)
    assert parameters(model) == count
    assert len(model.trainable_variables) == tensors
    assert model.output_shape == (None, length, vocabulary)
    dropouts = [layer for layer in model.layers if isinstance(layer, keras.layers.Dropout)]
    assert [layer.rate for layer in dropouts] == rates


def test_every_parameter_of_an_lstm_starts_uniform_as_in_the_paper():
    model, spread = registry.build("lstm", 5, 500), 0.05
    values = [np.asarray(variable) for variable in model.trainable_variables]
    for value in values:
        assert 0.95 * spread < np.abs(value).max() < 1.0001 * spread
        assert abs(np.abs(value).mean() - spread / 2) < 0.1 * spread
    # No two tensors start alike, whichever have the same shape.
    assert len({value.flat[0] for value in values}) == len(values)


@EACH
def test_gradient_of_the_embedding_alone_is_sparse(name):
    length, tensors, width = SMALL[name]
    tokens = words(4, length)
    found = gradients(registry.build(name, length, 2000), tokens, tokens)
    (sparse,) = (each for each in found if isinstance(each, tf.IndexedSlices))
    assert len(found) == tensors
    assert sparse.values.shape == (4 * length, width)
    assert sparse.dense_shape.numpy().tolist() == [2000, width]
    np.testing.assert_array_equal(sparse.indices, tokens.ravel())
    assert all_finite(found)


@EACH
def test_logits_depend_on_the_words_before_only(name):
    length, _, _ = SMALL[name]
    model = registry.build(name, length, 2000)
    before = words(2, length)
    unchanged = np.asarray(model(before, training=False))
    assert unchanged.shape == (2, length, 2000)
    assert unchanged.dtype == np.float32
    assert not np.allclose(unchanged.sum(axis=-1), 1.0)
    for position in (0, 13, length - 1):
        after = before.copy()
        after[:, position] = (after[:, position] + 1) % 2000
        change = np.abs(model(after, training=False) - unchanged).max(axis=(0, 2))
        assert change[:position].max(initial=0) < 1e-6
        # In an LSTM the difference fades out further on.
        assert change[position : position + 3].min() > (0 if name == "lstm_s" else 1e-5)


def test_positions_can_be_told_apart_by_a_transformer():
    model = registry.build("transformer_s", 32, 2000)
    # Of one word alone, every position would see the same without positions.
    logits = np.asarray(model(np.full((1, 32), 7, np.int32), training=False))[0]
    assert np.abs(logits[1:] - logits[:-1]).max(axis=1).min() > 1e-4
