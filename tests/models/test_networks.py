"""The networks are the published ones: counts taken by building them, one by one."""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from hvdperf.models import registry
from hvdperf.models.networks.classifiers import D, resnet_v2, vgg
from hvdperf.models.networks.inception import A, B, C, inception_v3, inception_v3_of
from hvdperf.models.registry import NETWORKS, Scale, Task, Traffic
from tests.support.training import all_finite, gradients, parameters, shapes

pytestmark = pytest.mark.usefixtures("fresh_models")

CLASSIFIERS = {
    name: network for name, network in NETWORKS.items() if network.task is Task.CLASSIFICATION
}
FULL = [name for name, network in CLASSIFIERS.items() if network.scale is Scale.FULL]
SMALL = [name for name, network in CLASSIFIERS.items() if network.scale is Scale.SMALL]

# Trainable parameters for 1000, 100 and 10 classes at the default image size, trainable tensors,
# and megabytes of gradients for 1000 classes.
PUBLISHED = {
    "vgg_16": ((138_357_544, 134_670_244, 134_301_514), 32, 553),
    "vgg_19": ((143_667_240, 139_979_940, 139_611_210), 38, 575),
    "resnet_50": ((25_583_592, 23_739_492, 23_555_082), 214, 102),
    "resnet_v2_101": ((44_577_896, 42_733_796, 42_549_386), 344, 178),
    "inception_v4": ((42_648_232, 41_264_932, 41_126_602), 300, 171),
    "inception_v3": ((23_817_352, 21_973_252, 21_788_842), 190, 95),
    "googlenet": ((6_998_552, 6_076_052, 5_983_802), 116, 28),
    "alexnet": ((61_838_248, 58_150_948, 57_782_218), 16, 247),
}
# The same networks with other numbers of classes.
LONG = pytest.mark.long


def traffic_of(model: Any) -> Traffic:
    """What the sizes of the gradients say, in bytes."""
    sizes = [4 * math.prod(shape) for shape in shapes(model)]
    if max(sizes) > 0.5 * sum(sizes):
        return Traffic.FEW_HUGE
    if len(sizes) >= 200 and sum(size < 4096 for size in sizes) > 0.4 * len(sizes):
        return Traffic.MANY_TINY
    return Traffic.MIXED


@pytest.mark.usefixtures("without_random_weights")
@pytest.mark.parametrize(
    ("position", "classes"),
    [(0, 1000), pytest.param(1, 100, marks=LONG), pytest.param(2, 10, marks=LONG)],
)
@pytest.mark.parametrize("name", FULL)
def test_full_size_network_has_the_published_counts(name: str, position: int, classes: int) -> None:
    model = registry.build(name, NETWORKS[name].input_size, classes)

    counts, tensors, megabytes = PUBLISHED[name]
    assert parameters(model) == counts[position]
    assert len(model.trainable_variables) == tensors == NETWORKS[name].gradient_tensors
    assert model.output_shape == (None, classes)
    assert {tf.as_dtype(variable.dtype) for variable in model.trainable_variables} == {tf.float32}
    if classes == 1000:
        assert round(4 * parameters(model) / 1e6) == megabytes
        assert NETWORKS[name].traffic is traffic_of(model)


@pytest.mark.usefixtures("without_random_weights")
def test_parameters_of_vgg_depend_on_the_image_size() -> None:
    # The grid before the first dense layer is 7 x 7 at 224 px and 1 x 1 at 32 px.
    saved = (7 * 7 - 1) * 512 * 4096
    assert parameters(registry.build("vgg_16", 32, 10)) == PUBLISHED["vgg_16"][0][2] - saved


@pytest.mark.usefixtures("without_random_weights")
@pytest.mark.parametrize("name", ["resnet_50", "inception_v4", "googlenet"])
def test_parameters_of_networks_with_global_pooling_do_not(name: str) -> None:
    assert parameters(registry.build(name, 96, 10)) == PUBLISHED[name][0][2]


@pytest.mark.usefixtures("without_random_weights")
def test_own_resnet_v2_at_full_size_is_that_of_keras() -> None:
    own = resnet_v2(64, 10, (3, 4, 23, 3), width=64)
    assert shapes(own) == shapes(registry.build("resnet_v2_101", 64, 10))


def test_own_resnet_v2_computes_what_that_of_keras_does() -> None:
    own = resnet_v2(64, 10, (3, 4, 6, 3), width=64)
    theirs = keras.applications.ResNet50V2(
        weights=None, input_shape=(64, 64, 3), classes=10, classifier_activation=None
    )
    own.set_weights(theirs.get_weights())
    images = tf.random.stateless_normal((2, 64, 64, 3), seed=(1, 2))
    np.testing.assert_allclose(own(images), theirs(images), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("without_random_weights")
def test_own_vgg_at_full_size_is_that_of_keras() -> None:
    assert shapes(vgg(32, 10, D, width=64, dense=4096)) == shapes(registry.build("vgg_16", 32, 10))


def test_own_inception_v3_computes_what_that_of_keras_does() -> None:
    noise = np.random.default_rng(0).standard_normal((3, 75, 75, 3), dtype=np.float32)
    own = inception_v3_of(75, 10, A, B, C, thinner=1)
    theirs = inception_v3(75, 10)
    assert shapes(own) == shapes(theirs)

    own.set_weights(theirs.get_weights())
    expected = np.asarray(theirs(noise, training=False))
    found = np.asarray(own(noise, training=False))
    # Without statistics to normalise by, activations shrink from layer to layer.
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.usefixtures("without_random_weights")
def test_own_inception_v3_has_the_grids_of_the_paper() -> None:
    model = inception_v3_of(299, 10, A, B, C, thinner=1)
    joined = [each for each in model.layers if isinstance(each, keras.layers.Concatenate)]
    assert [tuple(each.output.shape[1:]) for each in joined] == [
        (35, 35, 256),
        (35, 35, 288),
        (35, 35, 288),
        *[(17, 17, 768)] * 5,
        (8, 8, 1280),
        *[(8, 8, 768), (8, 8, 768), (8, 8, 2048)] * 2,
    ]


INCEPTION_GRIDS = [
    [(73, 73, 160), (71, 71, 192), (35, 35, 384)],
    [(35, 35, 384)] * 4,
    [(17, 17, 1024)] * 8,
    [(8, 8, 1536)] * 4,
]
GOOGLENET_GRIDS = [
    [(28, 28, 256), (28, 28, 480)],
    [(14, 14, 512), (14, 14, 512), (14, 14, 512), (14, 14, 528), (14, 14, 832)],
    [(7, 7, 832), (7, 7, 1024)],
]
ALEXNET_GRIDS = [[(27, 27, 64)], [(13, 13, 192)], [(6, 6, 256)]]


@pytest.mark.usefixtures("without_random_weights")
@pytest.mark.parametrize(
    ("name", "layer", "grids"),
    [
        ("inception_v4", keras.layers.Concatenate, INCEPTION_GRIDS),
        ("googlenet", keras.layers.Concatenate, GOOGLENET_GRIDS),
        ("alexnet", keras.layers.MaxPooling2D, ALEXNET_GRIDS),
    ],
    ids=["inception_v4", "googlenet", "alexnet"],
)
def test_modules_have_the_output_sizes_of_the_paper(
    name: str, layer: Any, grids: list[list[tuple[int, int, int]]]
) -> None:
    model = registry.build(name, NETWORKS[name].input_size, 10)
    outputs = [tuple(each.output.shape[1:]) for each in model.layers if isinstance(each, layer)]
    assert outputs == list(chain.from_iterable(grids))


@pytest.mark.parametrize("name", SMALL)
def test_small_network_is_as_registered_and_gives_logits(name: str) -> None:
    network = NETWORKS[name]
    model = registry.build(name, network.input_size, 10)
    size = network.input_size
    images = np.random.default_rng(0).standard_normal((3, size, size, 3), dtype=np.float32)

    logits = model(images, training=False)

    assert len(model.trainable_variables) == network.gradient_tensors
    assert logits.shape == (3, 10)
    assert logits.dtype == tf.float32
    assert np.ptp(np.asarray(logits)) > 0
    # Probabilities would add up to one, and none would be negative.
    assert not np.allclose(np.asarray(logits).sum(axis=1), 1.0)
    assert np.asarray(logits).min() < 0
    assert all_finite(gradients(model, images, [1, 2, 3]))


@pytest.mark.parametrize("name", SMALL)
def test_small_network_keeps_to_the_tracing_budget(name: str) -> None:
    # Tracing costs by the tensor: 115 is the budget of the default profile.
    assert NETWORKS[name].gradient_tensors <= 115
    if name in ("resnet_50_s", "googlenet_s"):
        assert NETWORKS[name].gradient_tensors <= 60


def test_small_variants_keep_the_traffic_class_of_the_full_size() -> None:
    assert [name + "_s" for name in FULL] == SMALL
    for name in FULL:
        assert NETWORKS[f"{name}_s"].traffic is NETWORKS[name].traffic


def test_dropout_can_be_switched_off_before_tracing() -> None:
    model = registry.build("alexnet_s", 67, 10)
    images = tf.random.stateless_normal((2, 67, 67, 3), seed=(1, 2))
    assert not np.allclose(model(images, training=True), model(images, training=False))

    dropouts = [layer for layer in model.layers if isinstance(layer, keras.layers.Dropout)]
    assert [layer.rate for layer in dropouts] == [0.5, 0.5]
    for layer in dropouts:
        layer.rate = 0.0
    step = tf.function(lambda x: model(x, training=True))
    np.testing.assert_allclose(step(images), model(images, training=False), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "rate"), [("googlenet_s", 0.4), ("inception_v4_s", 0.2)])
def test_dropout_is_a_layer_of_keras(name: str, rate: float) -> None:
    model = registry.build(name, NETWORKS[name].input_size, 10)
    rates = [layer.rate for layer in model.layers if isinstance(layer, keras.layers.Dropout)]
    assert rates == [rate]


@pytest.mark.parametrize("name", SMALL)
def test_image_too_small_is_refused(name: str) -> None:
    smallest = NETWORKS[name].smallest
    model = registry.build(name, smallest, 10)
    assert model(np.zeros((1, smallest, smallest, 3), np.float32)).shape == (1, 10)
    if smallest > 1:
        with pytest.raises(ValueError):
            registry.build(name, smallest - 1, 10)


def test_small_variants_need_no_larger_images_than_the_full_size() -> None:
    for name in FULL:
        assert NETWORKS[f"{name}_s"].smallest <= NETWORKS[name].smallest
