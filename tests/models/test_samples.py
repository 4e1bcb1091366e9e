from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hvdperf.models.inputs.cifar_files import CifarFiles, Layout, Split, locate, records
from hvdperf.models.inputs.errors import DataError
from hvdperf.models.inputs.samples import main, write_cifar


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_same_seed_gives_the_same_bytes(tmp_path: Path, dataset: str, layout: Layout) -> None:
    def contents(folder: str, seed: int) -> dict[str, bytes]:
        paths = write_cifar(tmp_path / folder, dataset, layout, 7, seed)
        return {path.name: path.read_bytes() for path in paths}

    first = contents("first", 5)
    assert contents("second", 5) == first
    assert contents("third", 6) != first


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


def test_size_of_a_binary_file(tmp_path: Path) -> None:
    paths = write_cifar(tmp_path, "cifar100", Layout.BINARY, records_per_file=3)
    assert [path.stat().st_size for path in paths] == [3 * 3074, 3 * 3074]


def test_existing_files_are_never_overwritten(tmp_path: Path) -> None:
    precious = tmp_path / "test_batch.bin"
    precious.write_bytes(b"precious")
    with pytest.raises(DataError, match="exists already"):
        write_cifar(tmp_path, "cifar10", Layout.BINARY)
    assert [path.name for path in tmp_path.iterdir()] == ["test_batch.bin"]
    assert precious.read_bytes() == b"precious"


@pytest.mark.parametrize(("count", "seed"), [(0, 0), (-1, 0), (5, -1)])
def test_numbers_without_sense_are_refused(tmp_path: Path, count: int, seed: int) -> None:
    with pytest.raises(DataError):
        write_cifar(tmp_path, "cifar10", Layout.BINARY, count, seed)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "new" / "folder")
    arguments = [target, "--dataset", "cifar100", "--layout", "pickle"]
    assert main([*arguments, "--records-per-file", "9", "--seed", "2"]) == 0
    assert "2 files of cifar100" in capsys.readouterr().out
    files = locate(target, "cifar100")
    assert (files.layout, files.train_records) == (Layout.PICKLE, 9)

    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "exists already" in error
    assert error.count("\n") == 1
