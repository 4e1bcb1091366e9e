"""The samples that the suite writes of every data set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from hvdperf.models import inputs
from hvdperf.models.inputs import DataError, sample_sets
from hvdperf.models.inputs.cifar_files import CifarFiles, Layout, Split, locate, records
from hvdperf.models.inputs.sample_sets import write_cifar, write_imagenet, write_tokens
from tests.support.refusals import refusal


class Writer(NamedTuple):
    """Of a data set: how a small one is written, one of its files, and what is refused."""

    write: Callable[..., Any]
    few: dict[str, int]
    file: str
    refused: list[dict[str, int]]


def cifar(dataset: str, layout: Layout, file: str) -> Writer:
    def write(path: Path, **options: int) -> tuple[Path, ...]:
        return write_cifar(path, dataset, layout, **options)

    refused = [{"records_per_file": 0}, {"records_per_file": -1}, {"seed": -1}]
    return Writer(write, {"records_per_file": 7}, file, refused)


WRITERS = {
    "cifar10": cifar("cifar10", Layout.BINARY, "test_batch.bin"),
    "cifar10 pickle": cifar("cifar10", Layout.PICKLE, "test_batch"),
    "cifar100": cifar("cifar100", Layout.BINARY, "test.bin"),
    "cifar100 pickle": cifar("cifar100", Layout.PICKLE, "test"),
    "imagenet": Writer(
        write_imagenet,
        {"shards": 2, "per_shard": 2},
        "validation-00000-of-00128",
        [{"shards": 0}, {"per_shard": 0}, {"seed": -1}, {"validation_shards": -1}],
    ),
    "ptb": Writer(
        write_tokens,
        {"sentences": 30, "words": 20},
        "ptb.test.txt",
        [{"sentences": 0}, {"words": 0}, {"seed": -1}],
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


@pytest.mark.parametrize("dataset", ["cifar10", "imagenet", "ptb"])
def test_where_there_is_no_directory_the_writer_is_named(tmp_path: Path, dataset: str) -> None:
    said = refusal(lambda: inputs.locate(dataset, tmp_path / "nowhere"))
    assert said.startswith(f"{tmp_path / 'nowhere'}: no such directory")
    assert said.endswith(f"python -m hvdperf.models.inputs.sample_sets DIR {dataset}")


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


# All of them -----------------------------------------------------------------------------------


def test_every_data_set_has_a_sample():
    assert set(sample_sets.WRITERS) == {s.name for s in inputs.INPUTS.values() if s.needs_data}


def test_the_command_writes_what_every_input_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sample_sets.main([str(tmp_path)]) == 0
    for dataset in sample_sets.WRITERS:
        inputs.locate(dataset, tmp_path / dataset)
    assert sample_sets.main([str(tmp_path), "ptb"]) == 0
    assert capsys.readouterr().out.count("\n") == len(sample_sets.WRITERS), "each is written once"


@pytest.mark.parametrize(
    ("arguments", "status"), [([], 2), (["somewhere", "mnist"], 2), (["--help"], 0), (["--all"], 2)]
)
def test_the_command_writes_nothing_if_it_is_called_wrongly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], status: int
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        sample_sets.main(arguments)
    assert ended.value.code == status
    assert list(tmp_path.iterdir()) == []


def test_files_of_somebody_else_stay(tmp_path: Path) -> None:
    (tmp_path / "cifar10").mkdir()
    assert not sample_sets.write("cifar10", tmp_path)
    assert list((tmp_path / "cifar10").iterdir()) == []


def test_a_sample_of_another_version_is_written_anew(tmp_path: Path) -> None:
    assert sample_sets.write("cifar10", tmp_path)
    assert not sample_sets.write("cifar10", tmp_path)
    stamp = tmp_path / "cifar10" / sample_sets.STAMP
    stamp.write_text("0" * 64)
    (tmp_path / "cifar10" / "data_batch_1.bin").unlink()
    assert not sample_sets.is_current(tmp_path / "cifar10")
    assert sample_sets.write("cifar10", tmp_path)
    inputs.locate("cifar10", tmp_path / "cifar10")
    assert sample_sets.is_current(tmp_path / "cifar10")


def test_of_a_sample_that_could_not_be_written_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        path.mkdir(parents=True)
        raise DataError("the disk is full")

    monkeypatch.setitem(sample_sets.WRITERS, "cifar10", fail)
    with pytest.raises(DataError):
        sample_sets.write("cifar10", tmp_path)
    assert list(tmp_path.iterdir()) == []
