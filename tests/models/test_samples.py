"""The samples that the suite writes of every data set."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from hvdperf.models import inputs
from hvdperf.models.inputs.cifar_files import CifarFiles, Layout, Split, locate, records
from hvdperf.models.inputs.errors import DataError
from hvdperf.models.inputs.imagenet_check import check
from hvdperf.models.inputs.imagenet_samples import write_imagenet
from hvdperf.models.inputs.samples import write_cifar
from hvdperf.models.inputs.token_samples import write_tokens
from tests.support.refusals import refusal


class Writer(NamedTuple):
    """Of a data set: how a small one is written, one of its files, what is refused, and the command
    that writes one, with the number of training records."""

    write: Callable[..., Any]
    few: dict[str, int]
    file: str
    refused: list[dict[str, int]]
    command: str
    records: int


def cifar(dataset: str, layout: Layout, file: str, records: int) -> Writer:
    def write(path: Path, **options: int) -> tuple[Path, ...]:
        return write_cifar(path, dataset, layout, **options)

    refused = [{"records_per_file": 0}, {"records_per_file": -1}, {"seed": -1}]
    command = f"samples --dataset {dataset} --layout {layout.value} --records-per-file 9"
    return Writer(write, {"records_per_file": 7}, file, refused, command, records)


WRITERS = {
    "cifar10": cifar("cifar10", Layout.BINARY, "test_batch.bin", 45),
    "cifar10 pickle": cifar("cifar10", Layout.PICKLE, "test_batch", 45),
    "cifar100": cifar("cifar100", Layout.BINARY, "test.bin", 9),
    "cifar100 pickle": cifar("cifar100", Layout.PICKLE, "test", 9),
    "imagenet": Writer(
        write_imagenet,
        {"shards": 2, "per_shard": 2},
        "validation-00000-of-00128",
        [{"shards": 0}, {"per_shard": 0}, {"seed": -1}, {"validation_shards": -1}],
        "imagenet_samples --shards 3 --per-shard 1",
        3,
    ),
    "ptb": Writer(
        write_tokens,
        {"sentences": 30, "words": 20},
        "ptb.test.txt",
        [{"sentences": 0}, {"words": 0}, {"seed": -1}],
        "token_samples --sentences 12 --words 9",
        12,
    ),
}
EACH = pytest.mark.parametrize("dataset", WRITERS)


@EACH
def test_same_seed_gives_the_same_bytes(tmp_path: Path, dataset: str) -> None:
    def contents(folder: str, seed: int) -> dict[str, bytes]:
        writer = WRITERS[dataset]
        paths = writer.write(tmp_path / folder, seed=seed, **writer.few)
        return {path.name: path.read_bytes() for path in paths}

    first = contents("first", 5)
    assert len(set(first.values())) == len(first) > 1
    assert contents("second", 5) == first
    assert contents("third", 6) != first


@EACH
def test_existing_files_are_never_overwritten(tmp_path: Path, dataset: str) -> None:
    precious = tmp_path / WRITERS[dataset].file
    precious.write_bytes(b"precious")
    with pytest.raises(DataError, match="exists already"):
        WRITERS[dataset].write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [precious.name]
    assert precious.read_bytes() == b"precious"


@EACH
def test_numbers_without_sense_are_refused(tmp_path: Path, dataset: str) -> None:
    for numbers in WRITERS[dataset].refused:
        with pytest.raises(DataError):
            WRITERS[dataset].write(tmp_path, **numbers)


@EACH
def test_a_command_writes_them_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], dataset: str
) -> None:
    name, *options = WRITERS[dataset].command.split()
    main = import_module(f"hvdperf.models.inputs.{name}").main
    target = tmp_path / "new" / "folder"
    arguments = [str(target), *options, "--seed", "2"]
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith(f"{len(list(target.iterdir()))} ")
    files = inputs.locate(dataset.split()[0], target)
    if dataset == "ptb":
        assert len(files.train.read_text().splitlines()) == WRITERS[dataset].records
    else:
        counted = check(files) if dataset == "imagenet" else files
        assert counted.train_records == WRITERS[dataset].records
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "exists already" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("dataset", ["cifar10", "imagenet", "ptb"])
def test_where_there_is_no_directory_the_writer_is_named(tmp_path: Path, dataset: str) -> None:
    said = refusal(lambda: inputs.locate(dataset, tmp_path / "nowhere"))
    assert said.startswith(f"{tmp_path / 'nowhere'}: no such directory")
    assert f"hvdperf.models.inputs.{WRITERS[dataset].command.split()[0]} " in said


def test_labels_are_balanced(sample: CifarFiles) -> None:
    for split in Split:
        _, labels = records(sample, split)
        frequency = np.bincount(labels, minlength=sample.classes)
        assert frequency.max() - frequency.min() <= 1


def test_classes_can_be_told_by_their_colour_but_not_always(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar10", Layout.BINARY, records_per_file=200, seed=1)
    images, labels = records(locate(tmp_path, "cifar10"), Split.TRAIN)
    colours = images.mean(axis=(1, 2))
    centres = np.stack([colours[labels == label].mean(axis=0) for label in range(10)])
    distances = np.abs(colours[:, None] - centres).sum(axis=2)
    assert 0.6 < np.mean(distances.argmin(axis=1) == labels) < 0.85


def test_images_of_a_class_are_not_copies(cifar10: CifarFiles) -> None:
    images, _ = records(cifar10, Split.TRAIN)
    assert len({image.tobytes() for image in images}) == 100
