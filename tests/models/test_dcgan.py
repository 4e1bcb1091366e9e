from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from hvdperf.models.networks.dcgan import LATENT, dcgan, dcgan_s
from tests.support.training import all_finite, parameters

pytestmark = pytest.mark.usefixtures("fresh_models")


def normal(*shape: int) -> Any:
    return tf.random.stateless_normal(shape, seed=(1, 2))


def grids(model: Any, layer: Any) -> list[tuple[int, ...]]:
    return [tuple(each.output.shape[1:]) for each in model.layers if isinstance(each, layer)]


def test_networks_have_the_published_counts_and_shapes() -> None:
    generator, discriminator = dcgan(64, 10)

    assert (parameters(generator), parameters(discriminator)) == (18_855_043, 17_232_897)
    assert len(generator.trainable_variables) == 14
    assert len(discriminator.trainable_variables) == 13
    # Figure 1 of the paper, and the same backwards.
    first, *others = grids(generator, keras.layers.Reshape) + grids(
        generator, keras.layers.Conv2DTranspose
    )
    assert first == (4, 4, 1024)
    assert others == [(8, 8, 512), (16, 16, 256), (32, 32, 128), (64, 64, 3)]
    assert grids(discriminator, keras.layers.Conv2D) == [
        (32, 32, 128),
        (16, 16, 256),
        (8, 8, 512),
        (4, 4, 1024),
    ]


def test_neither_the_image_nor_its_judge_is_normalised() -> None:
    generator, discriminator = dcgan_s(64, 10)
    normalised = grids(generator, keras.layers.BatchNormalization)
    assert normalised == [(4, 4, 64), (8, 8, 32), (16, 16, 16), (32, 32, 8)]
    assert grids(discriminator, keras.layers.BatchNormalization) == [
        (16, 16, 16),
        (8, 8, 32),
        (4, 4, 64),
    ]


def test_small_variant_draws_images_and_judges_them() -> None:
    generator, discriminator = dcgan_s(64, 10)
    images = generator(normal(5, LATENT), training=True)
    logits = np.asarray(discriminator(images, training=True))

    assert images.shape == (5, 64, 64, 3)
    assert images.dtype == tf.float32
    assert np.abs(images).max() <= 1
    assert np.asarray(images).min() < 0 < np.asarray(images).max()
    assert logits.shape == (5, 1)
    assert np.ptp(logits) > 0
    # Logits, not probabilities: nothing comes after the last layer's bias.
    discriminator.layers[-1].bias.assign([-5.0])
    np.testing.assert_allclose(discriminator(images, training=True), logits - 5, atol=1e-4)
    assert len(generator.trainable_variables) == 14
    assert len(discriminator.trainable_variables) == 13


def test_classes_do_not_matter() -> None:
    counts = [[parameters(model) for model in dcgan_s(64, classes)] for classes in (0, 1000)]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("size", [16, 32, 128])
def test_other_powers_of_two_have_as_many_more_layers(size: int) -> None:
    generator, discriminator = dcgan_s(size, 10)
    images = generator(normal(2, LATENT), training=False)
    assert images.shape == (2, size, size, 3)
    assert discriminator(images, training=False).shape == (2, 1)
    more = {16: -2, 32: -1, 128: 1}[size]
    assert len(generator.trainable_variables) == 14 + 3 * more
    assert len(discriminator.trainable_variables) == 13 + 3 * more


@pytest.mark.parametrize("size", [-64, 0, 1, 8, 63, 65, 96])
@pytest.mark.parametrize("build", [dcgan, dcgan_s])
def test_other_sizes_are_refused(build: Any, size: int) -> None:
    with pytest.raises(ValueError, match=f"^image size {size}: .*power of two.*$"):
        build(size, 10)


def test_initial_weights_are_those_of_the_paper() -> None:
    for model in dcgan_s(64, 10):
        kernels = [np.asarray(each) for each in model.trainable_variables if len(each.shape) > 1]
        assert len(kernels) == 5
        for kernel in kernels:
            assert abs(kernel.std() - 0.02) < 0.004
            assert abs(kernel.mean()) < 0.004


def test_a_step_of_either_gives_every_variable_a_finite_gradient() -> None:
    generator, discriminator = dcgan_s(64, 10)
    latent, real = normal(4, LATENT), tf.tanh(normal(4, 64, 64, 3))

    def cross_entropy(label: float, logits: Any) -> Any:
        labels = tf.fill(tf.shape(logits), label)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))

    @tf.function
    def step(latent: Any, real: Any) -> Any:
        with tf.GradientTape() as one, tf.GradientTape() as other:
            judged = discriminator(generator(latent, training=True), training=True)
            discriminated = cross_entropy(1.0, discriminator(real, training=True))
            discriminated += cross_entropy(0.0, judged)
            generated = cross_entropy(1.0, judged)
        return (
            one.gradient(generated, generator.trainable_variables),
            other.gradient(discriminated, discriminator.trainable_variables),
        )

    of_generator, of_discriminator = step(latent, real)
    assert all_finite(of_generator)
    assert all_finite(of_discriminator)
    assert (len(of_generator), len(of_discriminator)) == (14, 13)
