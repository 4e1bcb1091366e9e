"""What every data set gives when it is opened by its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from hvdperf.models import inputs
from hvdperf.models.inputs import TRAIN, VALIDATION, DataError, Request
from hvdperf.models.inputs.imagenet_files import check
from hvdperf.models.inputs.sample_sets import write_cifar, write_imagenet, write_tokens
from hvdperf.models.registry import Form

ROOT = Path(inputs.__file__).parents[3]
SIZES = {"cifar10": 32, "cifar100": 32, "imagenet": 16, "ptb": 5}
DATA_SETS = [source.name for source in inputs.INPUTS.values() if source.needs_data]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every data set, with a number of validation records that few numbers divide."""
    folders = {name: tmp_path_factory.mktemp(name) for name in DATA_SETS}
    for name in ("cifar10", "cifar100"):
        write_cifar(folders[name], name, records={"cifar10": 65, "cifar100": 13}[name])
    write_imagenet(folders["imagenet"], shards=3, per_shard=4, validation_shards=2)
    write_tokens(folders["ptb"], sentences=60, words=50)
    return folders


def request(data: dict[str, Path], name: str, **options: Any) -> Request:
    form = Form.WORDS if name == "ptb" else Form.IMAGES
    default = {"batch": 4, "size": SIZES[name], "classes": 40, "form": form}
    return Request(name, **{**default, "directory": data[name], **options})


def validation(data: dict[str, Path], name: str, **options: Any) -> list[list[bytes]]:
    """What tells a record from others, in batches."""
    dataset = inputs.open_split(request(data, name, **options), VALIDATION)
    return [
        [one.tobytes() + other.tobytes() for one, other in zip(*batch, strict=True)]
        for batch in dataset.as_numpy_iterator()
    ]


@pytest.mark.parametrize("name", DATA_SETS)
def test_ranks_validate_with_every_record_once(data, name):
    (everything,) = validation(data, name, batch=1000)
    assert len(everything) > 7
    for index in range(5):
        batches = validation(data, name, shard=(index, 5))
        *whole, last = map(len, batches)
        assert set(whole) <= {4}
        assert 0 < last <= 4
        assert [record for batch in batches for record in batch] == everything[index::5]


def train(
    data: dict[str, Path], name: str, batches: int, batch: int = 1, **options: Any
) -> list[bytes]:
    """What tells a record from others, of the first so many batches."""
    dataset = inputs.open_split(
        request(data, name, **{"augment": False, "batch": batch, **options})
    )
    return [
        one.tobytes() + other.tobytes()
        for found in dataset.take(batches).as_numpy_iterator()
        for one, other in zip(*found, strict=True)
    ]


@pytest.mark.parametrize("name", DATA_SETS)
def test_every_epoch_is_the_whole_shard_in_a_new_order(data, name):
    extent = extent_of(data, name).train
    assert extent is not None
    everything = train(data, name, extent, shuffle=False)
    assert len(everything) == extent
    assert len(set(everything)) > 0.9 * extent, "of words some come twice"
    seen: list[bytes] = []
    for index in range(3):
        # Every third record, but of ImageNet every third shard, and there are three of four.
        shard = (
            everything[4 * index : 4 * index + 4] if name == "imagenet" else everything[index::3]
        )
        found = train(data, name, 2 * len(shard), shard=(index, 3))
        epochs = found[: len(shard)], found[len(shard) :]
        assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(shard)
        assert len({*map(tuple, epochs), tuple(shard)}) > 1
        seen += shard
    assert sorted(seen) == sorted(everything)


@pytest.mark.parametrize("name", DATA_SETS)
def test_a_batch_may_be_larger_than_the_shard(data, name):
    shard = {*train(data, name, 200, shard=(0, 7), shuffle=False)}
    found = train(data, name, 1, 200, shard=(0, 7))
    assert len(found) == 200
    assert set(found) == shard


@pytest.mark.parametrize("name", DATA_SETS)
def test_order_depends_on_the_seed_alone(data, name):
    first = train(data, name, 12, 4, seed=3, augment=True)
    assert train(data, name, 12, 4, seed=3, augment=True, threads=2) == first
    assert train(data, name, 12, 4, seed=4, augment=True) != first


@pytest.mark.parametrize("name", DATA_SETS)
def test_threads_are_the_pipelines_own(data, name):
    for split in (TRAIN, VALIDATION):
        found = inputs.open_split(request(data, name, threads=3), split).options()
        assert found.threading.private_threadpool_size == 3
        assert found.threading.max_intra_op_parallelism == 1
        assert not found.autotune.enabled
        policy = found.experimental_distribute.auto_shard_policy
        assert policy == tf.data.experimental.AutoShardPolicy.OFF


@pytest.mark.parametrize("name", DATA_SETS)
def test_validation_is_the_same_each_time_and_unlike_training(data, name):
    first, again = (validation(data, name, threads=threads) for threads in (1, 3))
    assert first == again
    trained = set(train(data, name, 1, 8, shuffle=False))
    assert trained.isdisjoint(record for batch in first for record in batch)


# The session refuses fewer records of ImageNet than ranks, because it has counted them.
@pytest.mark.parametrize("name", [name for name in DATA_SETS if name != "imagenet"])
def test_rank_without_a_record_is_refused(data, name):
    records = len(validation(data, name, batch=1))
    assert len(validation(data, name, shard=(records - 1, records))) == 1
    with pytest.raises(DataError, match=rf": {records} .* cannot be shared by {records + 1} ranks"):
        validation(data, name, shard=(0, records + 1))
    trained = extent_of(data, name).train or 0
    with pytest.raises(DataError, match=rf": {trained} .* cannot be shared by {trained + 1} ranks"):
        train(data, name, 1, shard=(0, trained + 1))


# How many samples -------------------------------------------------------------------------------


def extent_of(data: dict[str, Path], name: str) -> inputs.Extent:
    files = inputs.locate(name, data[name])
    return inputs.extent(name, check(files) if name == "imagenet" else files, SIZES[name])


def test_extent_is_the_number_of_samples(data):
    words = (data["ptb"] / "ptb.train.txt").read_text()
    tokens = len(words.split()) + words.count("\n")
    trained = {"cifar10": 65, "cifar100": 13, "imagenet": 12, "ptb": (tokens - 1) // 5}
    for name in DATA_SETS:
        held_out = len(validation(data, name, batch=1))
        assert extent_of(data, name) == inputs.Extent(trained[name], held_out)
    assert inputs.extent("synthetic", None, 8) == inputs.Extent(train=None, validation=0)


def test_finding_and_writing_files_needs_no_tensorflow(data):
    code = "import sys; from hvdperf.models import inputs\n"
    code += "from hvdperf.models.inputs import sample_sets\n"
    for name, folder in data.items():
        code += f"assert inputs.locate({name!r}, {str(folder)!r})\n"
    code += "assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
