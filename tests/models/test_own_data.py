"""Data of one's own: each replica prepares its own samples and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from hvdperf.models import contract, registry
from hvdperf.models.inputs import Request
from hvdperf.models.own_networks import BadNetwork
from hvdperf.models.registry import Network, Shard

SAMPLES = 4096
BATCH = 32
# What the suite's own buffer holds: two batches, and the one that it is filling.
BUFFERED = 3 * BATCH
prepared: list[int] = []


def _prepare(number: Any) -> Any:
    prepared.append(int(number))
    return np.float32(number)


def _one(number: Any) -> Any:
    return tf.ensure_shape(tf.numpy_function(_prepare, [number], tf.float32), []), number


def with_shard(size: int, shard: Shard) -> Any:
    return tf.data.Dataset.range(SAMPLES).shard(shard.count, shard.index).map(_one)


def by_keyword(size: int, shard: Shard | None = None) -> Any:
    assert shard is not None
    return with_shard(size, shard)


def without_shard(size: int) -> Any:
    return tf.data.Dataset.range(SAMPLES).map(_one, num_parallel_calls=2).prefetch(4)


def zipped(size: int) -> Any:
    numbers = tf.data.Dataset.range(SAMPLES).map(lambda i: _one(i)[0])
    return tf.data.Dataset.zip((numbers, tf.data.Dataset.range(SAMPLES)))


def shuffled(size: int) -> Any:
    return tf.data.Dataset.range(SAMPLES).shuffle(64).map(_one)


def from_generator(size: int) -> Any:
    signature = tf.TensorSpec([], tf.int64)
    made = tf.data.Dataset.from_generator(lambda: iter(range(9)), output_signature=signature)
    return made.map(_one)


def batched(size: int) -> Any:
    return without_shard(size).batch(2).map(lambda x, y: (x, y))


def three_parts(size: int) -> Any:
    return tf.data.Dataset.range(9).map(lambda i: (i, i, i))


def listed(size: int) -> Any:
    return [1, 2]


def ragged(size: int) -> Any:
    rows = tf.ragged.constant([[1], [2, 3]])
    return tf.data.Dataset.from_tensor_slices((rows, [1, 2]))


def unknown(size: int) -> Any:
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


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("data", [with_shard, by_keyword, without_shard, zipped])
def test_a_replica_prepares_what_it_trains_on(of, data, count):
    name, wanted = of(data), 640
    seen: list[int] = []
    for index in sorted({0, count - 1}):
        prepared.clear()
        shard = (index, count)
        batches = contract.train_dataset(None, Request(name, BATCH, 8, shard=shard, seed=1))
        mine = [int(n) for _, labels in batches.take(wanted // BATCH) for n in labels]
        assert wanted <= len(prepared) <= wanted + BUFFERED
        assert mine[:BATCH] == list(range(index, count * BATCH, count)), (
            "the suite shuffles nothing"
        )
        assert {number % count for number in mine[: SAMPLES // count]} == {index}
        seen += mine[: SAMPLES // count]
    assert len(set(seen)) == len(seen), "no sample belongs to two shards"


def test_a_shuffle_without_a_seed_is_the_same_for_every_strategy(of):
    name = of(shuffled)
    orders = [
        [int(label) for _, label in contract.samples(name, 8, Shard(index, 2), seed=3).take(20)]
        for index in (0, 1, 0)
    ]
    assert orders[0] == orders[2]
    assert orders[0] != sorted(orders[0])
    assert not set(orders[0]) & set(orders[1])


def test_numbers_of_samples_begin_anew_with_each_pass(of):
    # 64 samples
    request = Request(of(with_shard), BATCH, 8, shard=(1, 64), numbered=True)
    numbered = contract.train_dataset(None, request)
    firsts = [int(numbers[0]) for numbers, _ in numbered.take(4)]
    assert firsts == [0, 32, 0, 32]


@pytest.mark.parametrize(
    "data",
    [from_generator, batched, three_parts, listed, ragged, unknown, needs_more],
    ids=lambda function: function.__name__,
)
def test_data_that_cannot_be_divided_or_trained_on_are_refused(of, data):
    with pytest.raises(BadNetwork) as refused:
        contract.samples(of(data), 8, Shard(0, 2), seed=1)
    assert "\n" not in str(refused.value)


def test_one_replica_reads_data_that_cannot_be_divided(of):
    dataset = contract.samples(of(from_generator), 8, Shard(0, 1), seed=1)
    assert len(list(dataset)) == 9
