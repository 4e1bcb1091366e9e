"""Data of one's own: what each replica trains on, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from hvdperf.models import contract, registry
from hvdperf.models.inputs import TRAIN, Request
from hvdperf.models.own_networks import BadNetwork
from hvdperf.models.registry import Network, Shard
from hvdperf.worker.training import own_samples
from tests.support.rank_configs import rank_config

SAMPLES = 4096
BATCH = 32


def _one(number: Any) -> Any:
    return tf.cast(number, tf.float32), number


def with_shard(size: int, shard: Shard) -> Any:
    return tf.data.Dataset.range(SAMPLES).shard(shard.count, shard.index).map(_one)


def by_keyword(size: int, shard: Shard | None = None) -> Any:
    assert shard is not None
    return with_shard(size, shard)


def shuffled(size: int, shard: Shard) -> Any:
    return tf.data.Dataset.range(SAMPLES).shard(shard.count, shard.index).shuffle(64).map(_one)


def generated(size: int, shard: Shard) -> Any:
    spec = tf.TensorSpec([], tf.int64)
    return tf.data.Dataset.from_generator(lambda: iter([(1, 2)]), output_signature=(spec, spec))


def without_shard(size: int) -> Any:
    return tf.data.Dataset.range(SAMPLES).map(_one)


def three_parts(size: int, shard: Shard) -> Any:
    return tf.data.Dataset.range(9).map(lambda i: (i, i, i))


def listed(size: int, shard: Shard) -> Any:
    return [1, 2]


def ragged(size: int, shard: Shard) -> Any:
    rows = tf.ragged.constant([[1], [2, 3]])
    return tf.data.Dataset.from_tensor_slices((rows, [1, 2]))


def unknown(size: int, shard: Shard) -> Any:
    return tf.data.Dataset.range(9).map(lambda i: (tf.numpy_function(int, [i], tf.int64), i))


def needs_more(size: int, shard: Shard, path: str) -> Any:
    return with_shard(size, shard)


@pytest.fixture
def of(registries: None) -> Callable[[Callable[..., Any]], str]:
    """Return a function that makes a network with that function as its data, and returns its
    name."""

    def made(function: Callable[..., Any]) -> str:
        data = f"{__name__}:{function.__name__}"
        registry.NETWORKS["mine"] = Network("mine", f"{__name__}:_one", 8, data=data)
        return "mine"

    return made


@pytest.mark.parametrize("shard", [(0, 1), (0, 4), (3, 4)])
@pytest.mark.parametrize("data", [with_shard, by_keyword])
def test_a_replica_trains_on_its_shard_and_the_suite_shuffles_nothing(of, data, shard):
    index, count = shard
    batches = contract.dataset(None, TRAIN, Request(of(data), BATCH, 8, shard=shard, seed=1))
    # A pass and the beginning of another one.
    found = [int(n) for _, labels in batches.take(SAMPLES // count // BATCH + 1) for n in labels]
    mine = list(range(index, SAMPLES, count))
    assert found == [*mine, *mine[:BATCH]]


def test_a_shuffle_without_a_seed_is_the_same_for_every_strategy(of):
    name = of(shuffled)
    orders = [
        [int(label) for _, label in contract.samples(name, 8, Shard(index, 2), seed=3).take(20)]
        for index in (0, 1, 0)
    ]
    assert orders[0] == orders[2]
    assert orders[0] != sorted(orders[0])
    assert not set(orders[0]) & set(orders[1])


@pytest.mark.parametrize(("data", "count"), [(with_shard, 1024), (generated, None)])
def test_a_pass_is_as_long_as_tensorflow_knows(of, data, count):
    name = of(data)
    own = rank_config(model=name, dataset=name, input_size=8)
    assert own_samples(own, (3, 4)) == count
    assert own_samples(own._replace(dataset="synthetic"), (3, 4)) is None


@pytest.mark.parametrize(
    "data",
    [without_shard, three_parts, listed, ragged, unknown, needs_more],
    ids=lambda function: function.__name__,
)
def test_data_without_a_shard_or_that_cannot_be_trained_on_are_refused(of, data):
    with pytest.raises(BadNetwork) as refused:
        contract.samples(of(data), 8, Shard(0, 2), seed=1)
    assert "\n" not in str(refused.value)
