from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from hvdperf.models.networks.language import transformer, transformer_s
from tests.support.training import all_finite, gradients, parameters, words

pytestmark = pytest.mark.usefixtures("fresh_models")


@pytest.mark.usefixtures("without_random_weights")
@pytest.mark.parametrize(
    ("build", "length", "vocabulary", "count", "tensors"),
    [
        (transformer, 64, 8_000, 7_279_936, 70),
        # A position is a vector, a word is two and a bias.
        (transformer, 128, 8_000, 7_279_936 + 64 * 256, 70),
        (transformer, 64, 10_000, 7_279_936 + 2_000 * (2 * 256 + 1), 70),
        (transformer_s, 32, 2_000, 360_144, 38),
    ],
)
def test_counts_are_the_published_ones(
    build: Any,
    length: int,
    vocabulary: int,
    count: int,
    tensors: int,
) -> None:
    model = build(length, vocabulary)

    assert parameters(model) == count
    assert len(model.trainable_variables) == tensors
    assert model.output_shape == (None, length, vocabulary)


def test_changing_a_token_changes_no_logit_before_it() -> None:
    model = transformer_s(32, 2000)
    before = words(2, 32)
    unchanged = np.asarray(model(before, training=False))
    assert unchanged.shape == (2, 32, 2000)
    assert unchanged.dtype == np.float32
    assert not np.allclose(unchanged.sum(axis=-1), 1.0)

    for position in (0, 13, 31):
        after = before.copy()
        after[:, position] = (after[:, position] + 1) % 2000
        change = np.abs(model(after, training=False) - unchanged).max(axis=(0, 2))
        assert change[:position].max(initial=0) < 1e-6
        assert change[position:].min() > 1e-5


def test_positions_can_be_told_apart() -> None:
    model = transformer_s(32, 2000)
    # Of one word alone, every position would see the same without positions.
    logits = np.asarray(model(np.full((1, 32), 7, np.int32), training=False))[0]
    assert np.abs(logits[1:] - logits[:-1]).max(axis=1).min() > 1e-4


def test_gradient_of_the_embedding_alone_is_sparse() -> None:
    model = transformer_s(32, 2000)
    found = gradients(model, words(4, 32), words(4, 32))

    sparse = [each for each in found if isinstance(each, tf.IndexedSlices)]
    assert len(found) == 38
    assert [each.dense_shape.numpy().tolist() for each in sparse] == [[2000, 64]]
    assert sparse[0].values.shape == (4 * 32, 64)
    assert all_finite(found)
