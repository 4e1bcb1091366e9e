"""What every data set gives when it is opened by its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hvdperf.models import inputs
from hvdperf.models.inputs.cifar_files import Layout
from hvdperf.models.inputs.errors import DataError
from hvdperf.models.inputs.imagenet_check import check
from hvdperf.models.inputs.imagenet_samples import write_imagenet
from hvdperf.models.inputs.samples import write_cifar
from hvdperf.models.inputs.token_samples import write_tokens
from hvdperf.models.registry import Form

ROOT = Path(inputs.__file__).parents[3]
DATA_SETS = [source.name for source in inputs.INPUTS.values() if source.needs_data]
SIZES = {"cifar10": 32, "cifar100": 32, "imagenet": 16, "ptb": 5}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every data set, with a number of validation records that few numbers divide."""
    folders = {name: tmp_path_factory.mktemp(name) for name in DATA_SETS}
    for name in ("cifar10", "cifar100"):
        write_cifar(folders[name], name, Layout.BINARY, records_per_file=13)
    write_imagenet(folders["imagenet"], shards=3, per_shard=4, validation_shards=2)
    write_tokens(folders["ptb"], sentences=60, words=50)
    return folders


def arguments(name: str) -> dict[str, Any]:
    words = name == "ptb"
    return {"size": SIZES[name], "classes": 40, "form": Form.WORDS if words else Form.IMAGES}


def validation(data: dict[str, Path], name: str, **options: Any) -> list[list[bytes]]:
    """What tells a record from others, in batches."""
    options = {"shard": (0, 1), "batch": 4, **arguments(name), **options}
    dataset = inputs.open_validation(name, data[name], **options)
    return [
        [one.tobytes() + other.tobytes() for one, other in zip(*batch, strict=True)]
        for batch in dataset.as_numpy_iterator()
    ]


def test_every_data_set_is_tested() -> None:
    assert set(SIZES) == set(DATA_SETS)


@pytest.mark.parametrize("count", [2, 3, 5])
@pytest.mark.parametrize("name", DATA_SETS)
def test_ranks_validate_with_every_record_once(
    data: dict[str, Path], name: str, count: int
) -> None:
    (everything,) = validation(data, name, batch=1000)
    assert len(everything) > 7
    seen: list[bytes] = []
    for index in range(count):
        batches = validation(data, name, shard=(index, count))
        *whole, last = map(len, batches)
        assert set(whole) <= {4}
        assert 0 < last <= 4
        part = [record for batch in batches for record in batch]
        remaining = iter(everything)
        assert all(record in remaining for record in part), "not in file order"
        seen += part
    assert sorted(seen) == sorted(everything)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", DATA_SETS)
def test_validation_is_the_same_each_time_and_unlike_training(
    data: dict[str, Path], name: str, threads: int
) -> None:
    first, again = (validation(data, name, threads=threads) for _ in range(2))
    assert first == again
    plain = {"augment": False, "shuffle": False, "seed": 0}
    options = {"shard": (0, 1), "batch": 8, **arguments(name), **plain}
    train = inputs.open_train(name, data[name], **options).as_numpy_iterator()
    trained = {one.tobytes() + other.tobytes() for one, other in zip(*next(train), strict=True)}
    assert trained.isdisjoint(record for batch in first for record in batch)


# The session refuses fewer records of ImageNet than ranks, because it has counted them.
@pytest.mark.parametrize("name", [name for name in DATA_SETS if name != "imagenet"])
def test_rank_without_a_validation_record_is_refused(data: dict[str, Path], name: str) -> None:
    records = len(validation(data, name, batch=1))
    assert len(validation(data, name, shard=(records - 1, records))) == 1
    with pytest.raises(DataError, match=rf": {records} .* cannot be shared by {records + 1} ranks"):
        validation(data, name, shard=(0, records + 1))


def test_synthetic_input_has_nothing_to_validate_with() -> None:
    with pytest.raises(inputs.UnknownInput, match="synthetic has nothing to validate with: use"):
        inputs.open_validation("synthetic", None, shard=(0, 1), batch=4, size=8)


def test_form_that_a_data_set_lacks_is_refused(data: dict[str, Path]) -> None:
    for name, form in (("cifar10", Form.WORDS), ("ptb", Form.IMAGES)):
        options: dict[str, Any] = {"shard": (0, 1), "batch": 4, "size": 8, "form": form}
        with pytest.raises(inputs.UnknownInput, match=f"{name} has no {form.value}"):
            inputs.open_validation(name, data[name], **options)
        with pytest.raises(inputs.UnknownInput, match=f"{name} has no {form.value}"):
            inputs.open_train(name, data[name], seed=0, **options)


@pytest.mark.parametrize("name", DATA_SETS)
def test_directory_is_asked_for(name: str) -> None:
    options: dict[str, Any] = {"shard": (0, 1), "batch": 4, **arguments(name)}
    with pytest.raises(inputs.UnknownInput, match="needs the directory"):
        inputs.open_validation(name, None, **options)


# How many samples -------------------------------------------------------------------------------


def test_extent_is_the_number_of_samples(data: dict[str, Path]) -> None:
    def extent(name: str) -> inputs.Extent:
        files = inputs.locate(name, data[name])
        return inputs.extent(name, check(files) if name == "imagenet" else files, SIZES[name])

    words = (data["ptb"] / "ptb.train.txt").read_text()
    tokens = len(words.split()) + words.count("\n")
    trained = {"cifar10": 5 * 13, "cifar100": 13, "imagenet": 12, "ptb": (tokens - 1) // 5}
    for name in DATA_SETS:
        held_out = len(validation(data, name, batch=1))
        assert extent(name) == inputs.Extent(trained[name], held_out)
    assert inputs.extent("synthetic", None, 8) == inputs.Extent(train=None, validation=0)


def test_finding_files_needs_no_tensorflow(data: dict[str, Path]) -> None:
    code = "import sys; from hvdperf.models import inputs\n"
    for name, folder in data.items():
        code += f"assert inputs.locate({name!r}, {str(folder)!r})\n"
    code += "assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
