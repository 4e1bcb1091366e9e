"""The samples that the suite writes of every data set."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hvdperf.models import inputs
from hvdperf.models.inputs import TRAIN, DataError, Files, sample_sets
from hvdperf.models.inputs.cifar_files import FORMATS, Layout, locate
from hvdperf.models.inputs.sample_sets import write_imagenet, write_tokens
from tests.support.cifar_records import records, write_cifar
from tests.support.refusals import refusal

# By data set and layout: how a small one is written.
WRITERS: dict[str, Callable[..., Any]] = {
    **{
        f"{dataset} {layout.value}": partial(
            write_cifar, dataset=dataset, layout=layout, records=35
        )
        for dataset in FORMATS
        for layout in Layout
    },
    "imagenet": partial(write_imagenet, shards=2, per_shard=2),
    "ptb": partial(write_tokens, sentences=30, words=20),
}
EACH = pytest.mark.parametrize("dataset", WRITERS)


@EACH
def test_same_seed_gives_the_same_bytes(tmp_path: Path, dataset: str) -> None:
    def contents(folder: str, seed: int) -> dict[str, bytes]:
        paths = WRITERS[dataset](tmp_path / folder, seed=seed)
        return {path.name: path.read_bytes() for path in paths}

    first = contents("first", 5)
    assert len(set(first.values())) == len(first) > 1
    assert contents("second", 5) == first
    assert contents("third", 6) != first


@pytest.mark.parametrize("dataset", ["cifar10", "imagenet", "ptb"])
def test_where_there_is_no_directory_the_writer_is_named(tmp_path: Path, dataset: str) -> None:
    said = refusal(lambda: inputs.locate(dataset, tmp_path / "nowhere"))
    assert said.startswith(f"{tmp_path / 'nowhere'}: no such directory")
    assert said.endswith(f"python -m hvdperf.models.inputs.sample_sets DIR {dataset}")


def test_labels_are_balanced_and_images_are_no_copies(sample: Files) -> None:
    for split in sample.paths:
        images, labels = records(sample, split)
        assert len({image.tobytes() for image in images}) == len(images)
        frequency = np.bincount(labels, minlength=FORMATS[sample.dataset].classes)
        assert frequency.max() - frequency.min() <= 1


def test_classes_can_be_told_by_their_colour_but_not_always(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar10", Layout.BINARY, records=1000, seed=1)
    images, labels = records(locate(tmp_path, "cifar10"), TRAIN)
    colours = images.mean(axis=(1, 2))
    centres = np.stack([colours[labels == label].mean(axis=0) for label in range(10)])
    distances = np.abs(colours[:, None] - centres).sum(axis=2)
    assert 0.6 < np.mean(distances.argmin(axis=1) == labels) < 0.85


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


def test_the_command_refuses_an_unknown_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        sample_sets.main([str(tmp_path), "mnist"])
    assert "mnist" in capsys.readouterr().err
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
