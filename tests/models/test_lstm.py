from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from hvdperf.models.networks.language import lstm, lstm_ptb_large, lstm_ptb_small, lstm_s
from tests.support.training import all_finite, gradients, parameters, words

pytestmark = pytest.mark.usefixtures("fresh_models")


def dropouts(model: Any) -> list[Any]:
    return [layer for layer in model.layers if isinstance(layer, keras.layers.Dropout)]


@pytest.mark.usefixtures("without_random_weights")
@pytest.mark.parametrize(
    ("build", "length", "vocabulary", "count", "rates"),
    [
        (lstm_ptb_small, 20, 10_000, 4_651_600, []),
        (lstm, 35, 10_000, 19_775_200, [0.5] * 3),
        (lstm, 35, 2_000, 9_367_200, [0.5] * 3),
        (lstm_ptb_large, 35, 10_000, 66_022_000, [0.65] * 3),
        (lstm_s, 20, 2_000, 777_168, [0.5] * 3),
    ],
)
def test_counts_are_the_published_ones(
    build: Any,
    length: int,
    vocabulary: int,
    count: int,
    rates: list[float],
) -> None:
    model = build(length, vocabulary)

    assert parameters(model) == count
    # An embedding, three tensors for each of two layers, kernel and bias of the logits.
    assert len(model.trainable_variables) == 9
    assert model.output_shape == (None, length, vocabulary)
    assert [layer.rate for layer in dropouts(model)] == rates


@pytest.mark.parametrize(
    ("build", "spread"), [(lstm_ptb_small, 0.1), (lstm, 0.05), (lstm_ptb_large, 0.04)]
)
def test_every_parameter_starts_uniform_as_in_the_paper(build: Any, spread: float) -> None:
    model = build(5, 500)
    values = [np.asarray(variable) for variable in model.trainable_variables]
    for value in values:
        assert 0.95 * spread < np.abs(value).max() < 1.0001 * spread
        assert abs(np.abs(value).mean() - spread / 2) < 0.1 * spread
    # No two tensors start alike, whichever have the same shape.
    assert len({value.flat[0] for value in values}) == len(values)


def test_gradient_of_the_embedding_alone_is_sparse() -> None:
    model = lstm_s(20, 2000)
    found = gradients(model, words(4, 20), words(4, 20))

    assert [isinstance(each, tf.IndexedSlices) for each in found] == [True] + [False] * 8
    assert found[0].values.shape == (4 * 20, 128)
    assert found[0].dense_shape.numpy().tolist() == [2000, 128]
    np.testing.assert_array_equal(found[0].indices, words(4, 20).ravel())
    assert all_finite(found)


def test_logits_depend_on_the_words_before_only() -> None:
    model = lstm_s(20, 2000)
    before = words(2, 20)
    after = before.copy()
    after[:, 7] = (after[:, 7] + 1) % 2000
    first, second = (np.asarray(model(each, training=False)) for each in (before, after))

    assert first.shape == (2, 20, 2000)
    assert first.dtype == np.float32
    assert not np.allclose(first.sum(axis=-1), 1.0)
    np.testing.assert_array_equal(first[:, :7], second[:, :7])
    # Further on the difference fades out.
    assert (np.abs(first - second).max(axis=(0, 2))[7:10] > 0).all()


def test_dropout_can_be_switched_off_before_tracing() -> None:
    model = lstm_s(20, 2000)
    tokens = words(2, 20)
    assert not np.allclose(model(tokens, training=True), model(tokens, training=False), atol=1e-5)
    for layer in dropouts(model):
        layer.rate = 0.0
    step = tf.function(lambda x: model(x, training=True))
    np.testing.assert_allclose(step(tokens), model(tokens, training=False), atol=1e-5)
