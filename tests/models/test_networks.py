"""The networks by name are the published ones: counts taken by building them, one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from hvdperf.models import inputs, registry, tasks
from hvdperf.models.networks.classifiers import D, resnet_v2, vgg
from hvdperf.models.networks.dcgan import LATENT, dcgan, dcgan_s
from hvdperf.models.registry import NETWORKS, Scale, Task, UnknownNetwork
from hvdperf.worker import training
from tests.support.training import all_finite, gradients, parameters, shapes

ROOT = Path(inputs.__file__).parents[3]


def test_unknown_network_lists_the_known_and_suggests_the_closest():
    with pytest.raises(UnknownNetwork) as raised:
        registry.network("resnet50")
    message = str(raised.value)
    assert "did you mean resnet_50" in message
    assert all(name in message for name in NETWORKS)
    assert "\n" not in message
    with pytest.raises(UnknownNetwork) as raised:
        registry.build("zzz", 32, 10)
    assert "did you mean" not in str(raised.value)


def test_inputs_have_the_classes_of_their_data_sets_and_the_closest_is_suggested():
    assert [each.classes for each in inputs.INPUTS.values()] == [10, 100, 1001, 0, 1000]
    with pytest.raises(inputs.UnknownInput, match=r"did you mean cifar10\?"):
        inputs.find("cifar-10")


pytestmark = pytest.mark.usefixtures("fresh_models")

CLASSIFIERS = {
    name: network for name, network in NETWORKS.items() if network.task is Task.CLASSIFICATION
}
FULL = [name for name, network in CLASSIFIERS.items() if network.scale is Scale.FULL]
SMALL = [name for name, network in CLASSIFIERS.items() if network.scale is Scale.SMALL]

INCEPTION_GRIDS = [
    *[(73, 73, 160), (71, 71, 192), (35, 35, 384)],
    *[(35, 35, 384)] * 4,
    *[(17, 17, 1024)] * 8,
    (8, 8, 1536),
    *[(8, 8, 512), (8, 8, 512), (8, 8, 1536)] * 3,
]
GOOGLENET_GRIDS = [
    *[(28, 28, 256), (28, 28, 480)],
    *[(14, 14, 512), (14, 14, 512), (14, 14, 512), (14, 14, 528), (14, 14, 832)],
    *[(7, 7, 832), (7, 7, 1024)],
]
ALEXNET_GRIDS = [(27, 27, 64), (13, 13, 192), (6, 6, 256)]

# Trainable parameters and tensors for 1000 classes at the default image size, and the megabytes of
# their gradients.
PUBLISHED = {
    "vgg_16": (138_357_544, 32, 553),
    "vgg_19": (143_667_240, 38, 575),
    "resnet_50": (25_583_592, 214, 102),
    "resnet_v2_101": (44_577_896, 344, 178),
    "inception_v4": (42_648_232, 300, 171),
    "inception_v3": (23_817_352, 190, 95),
    "googlenet": (6_998_552, 116, 28),
    "alexnet": (61_838_248, 16, 247),
}
# The output sizes of the modules in the paper, and the layers that have them.
MODULES = {
    "inception_v4": (keras.layers.Concatenate, INCEPTION_GRIDS),
    "googlenet": (keras.layers.Concatenate, GOOGLENET_GRIDS),
    "alexnet": (keras.layers.MaxPooling2D, ALEXNET_GRIDS),
}
DROPOUTS = {"googlenet_s": [0.4], "inception_v4_s": [0.2], "alexnet_s": [0.5, 0.5]}


def grids(model: Any, layer: Any) -> list[tuple[int, ...]]:
    return [tuple(each.output.shape[1:]) for each in model.layers if isinstance(each, layer)]


@pytest.mark.long
@pytest.mark.usefixtures("without_random_weights")
@pytest.mark.parametrize("name", FULL)
def test_full_size_network_has_the_published_counts_and_output_sizes(name):
    network, (count, tensors, megabytes) = NETWORKS[name], PUBLISHED[name]
    model = registry.build(name, network.input_size, 1000)
    assert parameters(model) == count
    assert len(model.trainable_variables) == tensors == network.gradient_tensors
    assert model.output_shape == (None, 1000)
    assert {tf.as_dtype(variable.dtype) for variable in model.trainable_variables} == {tf.float32}
    assert round(4 * count / 1e6) == megabytes
    layer, expected = MODULES.get(name, ((), []))
    assert grids(model, layer) == expected


@pytest.mark.usefixtures("without_random_weights")
def test_own_vgg_is_that_of_keras_and_its_parameters_depend_on_the_image_size():
    of_keras = registry.build("vgg_16", 32, 10)
    assert shapes(vgg(32, 10, D, width=64, dense=4096)) == shapes(of_keras)
    # The grid before the first dense layer is 7 x 7 at 224 px and 1 x 1 at 32 px.
    grid, classes = (7 * 7 - 1) * 512 * 4096, (1000 - 10) * (4096 + 1)
    assert parameters(of_keras) == PUBLISHED["vgg_16"][0] - grid - classes


@pytest.mark.long
def test_own_resnet_v2_computes_what_that_of_keras_does():
    own = resnet_v2(64, 10, (3, 4, 6, 3), width=64)
    theirs = keras.applications.ResNet50V2(
        weights=None, input_shape=(64, 64, 3), classes=10, classifier_activation=None
    )
    own.set_weights(theirs.get_weights())
    images = tf.random.stateless_normal((2, 64, 64, 3), seed=(1, 2))
    np.testing.assert_allclose(own(images), theirs(images), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", SMALL)
def test_small_network_takes_its_smallest_image_and_gives_logits(name):
    network = NETWORKS[name]
    size = network.smallest
    model = registry.build(name, size, 10)
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
    dropouts = [layer for layer in model.layers if isinstance(layer, keras.layers.Dropout)]
    assert [layer.rate for layer in dropouts] == DROPOUTS.get(name, [])
    if size > 1:
        with pytest.raises(ValueError):
            registry.build(name, size - 1, 10)


def test_small_variants_have_few_tensors_and_need_no_larger_images():
    assert [name + "_s" for name in FULL if name != "inception_v3"] == SMALL
    # Tracing costs by the tensor: 115 is the budget of the default profile.
    assert max(NETWORKS[name].gradient_tensors for name in SMALL) <= 115
    for name in SMALL:
        assert NETWORKS[name].smallest <= NETWORKS[name.removesuffix("_s")].smallest


def normal(*shape: int) -> Any:
    return tf.random.stateless_normal(shape, seed=(1, 2))


def test_networks_have_the_published_counts_and_shapes():
    generator, discriminator = dcgan(64, 10)

    assert (parameters(generator), parameters(discriminator)) == (18_855_043, 17_232_897)
    assert len(generator.trainable_variables) == 14
    assert len(discriminator.trainable_variables) == 13
    # Figure 1 of the paper, and the same backwards.
    up = [(4, 4, 1024), (8, 8, 512), (16, 16, 256), (32, 32, 128)]
    assert grids(generator, (keras.layers.Reshape, keras.layers.Conv2DTranspose)) == [
        *up,
        (64, 64, 3),
    ]
    assert grids(discriminator, keras.layers.Conv2D) == up[::-1]


def test_neither_the_image_nor_its_judge_is_normalised():
    generator, discriminator = dcgan_s(64, 10)
    normalised = grids(generator, keras.layers.BatchNormalization)
    assert normalised == [(4, 4, 64), (8, 8, 32), (16, 16, 16), (32, 32, 8)]
    assert grids(discriminator, keras.layers.BatchNormalization) == normalised[2::-1]


@pytest.mark.parametrize(("size", "more"), [(16, -2), (64, 0), (128, 1)])
def test_powers_of_two_have_as_many_layers_that_draw_images_and_judge_them(size, more):
    generator, discriminator = dcgan_s(size, 10)
    images = generator(normal(5, LATENT), training=True)
    logits = np.asarray(discriminator(images, training=True))
    assert len(generator.trainable_variables) == 14 + 3 * more
    assert len(discriminator.trainable_variables) == 13 + 3 * more
    assert (images.shape, images.dtype) == ((5, size, size, 3), tf.float32)
    assert np.abs(images).max() <= 1
    assert np.asarray(images).min() < 0 < np.asarray(images).max()
    assert logits.shape == (5, 1)
    # Logits, not probabilities: nothing comes after the last layer's bias.
    discriminator.layers[-1].bias.assign([-5.0])
    np.testing.assert_allclose(discriminator(images, training=True), logits - 5, atol=1e-4)


@pytest.mark.parametrize("size", [-64, 0, 1, 8, 63, 65, 96])
@pytest.mark.parametrize("build", [dcgan, dcgan_s])
def test_other_sizes_are_refused(build, size):
    with pytest.raises(ValueError, match=f"^image size {size}: .*power of two.*$"):
        build(size, 10)


def test_initial_weights_are_those_of_the_paper():
    for model in dcgan_s(64, 10):
        kernels = [np.asarray(each) for each in model.trainable_variables if len(each.shape) > 1]
        assert len(kernels) == 5
        for kernel in kernels:
            assert abs(kernel.std() - 0.02) < 0.004
            assert abs(kernel.mean()) < 0.004


@pytest.mark.long
def test_a_step_gives_every_variable_of_both_a_finite_gradient():
    task = tasks.find(NETWORKS["dcgan_s"], 64, 10)
    parts = [
        training.Part(model, training.make_optimizer("sgd", "float32"))
        for model in task.build("dcgan_s")
    ]
    found: list[Any] = []
    batch = tf.tanh(normal(4, 64, 64, 3)), normal(4, LATENT)
    training.update(task, parts, batch, tf.reduce_mean, use=lambda _, each: found.append(each))
    assert all(map(all_finite, found))
    assert [len(each) for each in found] == [14, 13]
