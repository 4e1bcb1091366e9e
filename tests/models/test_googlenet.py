"""GoogLeNet's auxiliary classifiers; the network itself is in test_networks.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from models.networks.googlenet import googlenet
from tests.support.training import all_finite, gradients, parameters

PARAMETERS = {1000: 6_998_552, 100: 6_076_052, 10: 5_983_802}


pytestmark = pytest.mark.usefixtures("fresh_models")


@pytest.mark.usefixtures("without_random_weights")
@pytest.mark.parametrize("classes", PARAMETERS)
def test_auxiliary_classifiers_have_the_published_counts(classes: int) -> None:
    model = googlenet(224, classes, auxiliary=True)

    # After 4a (512 channels) and 4d (528): 1 x 1 to 128 channels, on 4 x 4 to 1024, the classes.
    dense = (4 * 4 * 128 + 1) * 1024 + (1024 + 1) * classes
    heads = (512 + 1) * 128 + (528 + 1) * 128 + 2 * dense
    assert parameters(model) == PARAMETERS[classes] + heads
    if classes == 1000:
        assert parameters(model) == 13_378_280  # as Caffe's bvlc_googlenet
    assert len(model.trainable_variables) == 116 + 2 * 6
    assert [tuple(output.shape) for output in model.outputs] == [(None, classes)] * 3
    rates = [each.rate for each in model.layers if isinstance(each, keras.layers.Dropout)]
    assert sorted(rates) == [0.4, 0.7, 0.7]


def test_auxiliary_logits_come_after_the_main_ones_in_the_order_of_the_modules() -> None:
    model = googlenet(65, 10, auxiliary=True)
    images = np.random.default_rng(0).standard_normal((2, 65, 65, 3), dtype=np.float32)
    with tf.GradientTape(persistent=True) as tape:
        outputs = model(images, training=True)

    def reached(logits: Any) -> int:
        found = tape.gradient(logits, model.trainable_variables)
        return sum(gradient is not None for gradient in found)

    # Three convolutions, then modules of six, each convolution of two tensors: 3 modules up to 4a
    # and 6 up to 4d, from where six tensors lead to the classes.
    expected = [116, 2 * (3 + 3 * 6) + 6, 2 * (3 + 6 * 6) + 6]
    assert [reached(logits) for logits in outputs] == expected
    assert all_finite(gradients(model, images, [1, 2]))


@pytest.mark.usefixtures("without_random_weights")
def test_auxiliary_classifiers_need_a_larger_image() -> None:
    googlenet(64, 10)
    with pytest.raises(ValueError):
        googlenet(64, 10, auxiliary=True)
