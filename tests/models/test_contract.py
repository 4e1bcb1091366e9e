"""What the suite can train: the contract of a network of one's own, at its door."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from hvdperf.models import contract
from hvdperf.models.own_networks import BadNetwork
from hvdperf.worker import training

keras = tf.keras


class Task:
    """A task of 4 figures and a class."""

    def signature(self) -> Any:
        return tf.TensorSpec([None, 4], tf.float32), tf.TensorSpec([None], tf.int32)


class Subclassed(tf.keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def call(self, x: Any, training: bool = False) -> Any:
        return self.dense(x)


class OwnStep(Subclassed):
    def train_step(self, data: Any) -> Any:
        return {}


def sequential(*layers: Any) -> Any:
    return keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(3)])


def test_a_model_that_is_not_built_is_built_by_a_call():
    (model,) = contract.built([Subclassed()], Task())
    assert [tuple(weight.shape) for weight in model.trainable_variables] == [(4, 3), (3,)]


def test_what_cannot_be_trained_is_refused():
    frozen = sequential()
    frozen.trainable = False
    for model in (frozen, tf.Module(), None):
        with pytest.raises(BadNetwork):
            contract.built([model], Task())


def test_a_training_of_the_models_own_is_refused():
    with pytest.raises(BadNetwork, match="train_step"):
        contract.check_methods(OwnStep(), has_loss=False, has_optimizer=False)
    contract.check_methods(Subclassed(), has_loss=False, has_optimizer=False)
    contract.check_methods(sequential(), has_loss=False, has_optimizer=False)
    compiled = sequential()
    compiled.compile("sgd", "mse")
    with pytest.raises(BadNetwork, match="compile"):
        contract.check_methods(compiled, has_loss=False, has_optimizer=False)
    contract.check_methods(compiled, has_loss=True, has_optimizer=True)


@pytest.mark.parametrize("loss", [0.5, [[0.5]], [1]])
def test_a_loss_is_one_figure_a_sample(loss):
    with pytest.raises(BadNetwork):
        contract.check_loss(tf.constant(loss))
    contract.check_loss(tf.constant([0.5]))


@pytest.mark.parametrize(
    ("outputs", "labels", "classes"),
    [
        ([[0.1, 0.2]], [0], 3),
        ([0.1], [0], 3),
        ([[0.1, 0.2]], [0.5], 2),
        ({"logits": [[0.1, 0.2]]}, [0], 2),
    ],
)
def test_the_suites_own_loss_takes_logits_and_numbers_of_classes(outputs, labels, classes):
    made = outputs if isinstance(outputs, dict) else tf.constant(outputs)
    with pytest.raises(BadNetwork):
        contract.check_logits(made, tf.constant(labels), classes)
    contract.check_logits(tf.zeros([2, 3]), tf.zeros([2], tf.int32), 3)
    contract.check_logits(tf.zeros([2, 5, 3]), tf.zeros([2, 5], tf.int32), 0)


def test_every_random_layer_is_still_wherever_it_is():
    layers = keras.layers
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(4), layers.Dropout(0.5)])
    model = sequential(inner, layers.GaussianNoise(1.0), layers.BatchNormalization())
    part = training.Part(model, keras.optimizers.SGD())
    x = tf.random.stateless_normal([8, 4], [1, 2])
    assert not bool(tf.reduce_all(model(x, training=True) == model(x, training=True)))
    training.without_randomness([part])
    assert bool(tf.reduce_all(model(x, training=True) == model(x, training=True)))
    normalised = bool(tf.reduce_all(model(x, training=True) == model(x, training=False)))
    assert not normalised, "batch normalization still trains"


def test_what_layers_add_to_the_loss_is_trained():
    class Task1(Task):
        def losses(self, models: Any, batch: Any) -> Any:
            return (tf.reduce_sum(models[0](batch[0], training=True), axis=1) * 0.0,)

    dense = keras.layers.Dense(3, kernel_regularizer=keras.regularizers.L2(0.5), use_bias=False)
    model = keras.Sequential([keras.Input((4,)), dense])
    task: Any = Task1()
    found: list[Any] = []
    for replicas in (1, 2):
        part = training.Part(model, keras.optimizers.SGD())
        training.update(
            task,
            [part],
            (tf.ones([2, 4]), tf.zeros([2], tf.int32)),
            tf.reduce_mean,
            use=lambda _, gradients: found.extend(gradients),
            summed=replicas,
        )
    kernel = part.sources[0]
    assert bool(tf.reduce_all(tf.abs(found[0] - kernel) < 1e-6))
    assert bool(tf.reduce_all(tf.abs(found[1] - kernel / 2) < 1e-6)), "replicas add up gradients"
