from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tensorflow import keras

from hvdperf.models.networks.inception import A, B, C, inception_v3, inception_v3_of, inception_v3_s
from tests.support.training import all_finite, gradients, parameters, shapes

pytestmark = pytest.mark.usefixtures("fresh_models")


def noise(size: int) -> Any:
    return np.random.default_rng(0).standard_normal((3, size, size, 3), dtype=np.float32)


@pytest.mark.usefixtures("without_random_weights")
def test_own_network_at_full_size_has_the_grids_of_the_paper() -> None:
    model = inception_v3_of(299, 10, A, B, C, thinner=1)
    joined = [each for each in model.layers if isinstance(each, keras.layers.Concatenate)]
    grids = [tuple(each.output.shape[1:]) for each in joined]
    assert grids == [
        (35, 35, 256),
        (35, 35, 288),
        (35, 35, 288),
        *[(17, 17, 768)] * 5,
        (8, 8, 1280),
        *[(8, 8, 768), (8, 8, 768), (8, 8, 2048)] * 2,
    ]


def test_own_network_at_full_size_computes_what_that_of_keras_does() -> None:
    own = inception_v3_of(75, 10, A, B, C, thinner=1)
    theirs = inception_v3(75, 10)
    with pytest.raises(ValueError):
        inception_v3(74, 10)
    assert shapes(own) == shapes(theirs)

    own.set_weights(theirs.get_weights())
    expected = np.asarray(theirs(noise(75), training=False))
    found = np.asarray(own(noise(75), training=False))
    # Without statistics to normalise by, activations shrink from layer to layer.
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_small_variant_has_a_block_of_each_kind_and_trains() -> None:
    model = inception_v3_s(75, 10)
    logits = np.asarray(model(noise(75), training=False))

    # 5 convolutions in the stem, 7 + 4 + 10 + 6 + 9 in the blocks, then the dense layer.
    assert len(model.trainable_variables) == 2 * 41 + 2 == 84
    assert parameters(model) < parameters(inception_v3_of(75, 10, A[:1], B[:1], 1, thinner=2)) / 3
    assert logits.shape == (3, 10)
    assert np.ptp(logits) > 0
    assert not np.allclose(logits.sum(axis=1), 1.0)
    assert all_finite(gradients(model, noise(75), [1, 2, 3]))
