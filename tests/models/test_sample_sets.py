"""The samples that the suite writes of every data set."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hvdperf.models import inputs
from hvdperf.models.inputs import TRAIN, DataError, sample_sets
from hvdperf.models.inputs.cifar_files import FORMATS, Layout, locate
from hvdperf.models.inputs.sample_sets import write_imagenet, write_tokens
from tests.support.cifar_records import records, write_cifar
from tests.support.refusals import refusal

# By data set and layout: how a small one is written.
WRITERS: dict[str, Callable[..., Any]] = {
    f"{dataset} {layout.value}": partial(write_cifar, dataset=dataset, layout=layout, records=35)
    for dataset, layout in product(FORMATS, Layout)
}
WRITERS["imagenet"] = partial(write_imagenet, shards=2, per_shard=2)
WRITERS["ptb"] = partial(write_tokens, sentences=30, words=20)
EACH = pytest.mark.parametrize("dataset", WRITERS)


@EACH
def test_same_seed_gives_the_same_bytes(tmp_path, dataset):
    def contents(folder: str, seed: int) -> dict[str, bytes]:
        paths = WRITERS[dataset](tmp_path / folder, seed=seed)
        return {path.name: path.read_bytes() for path in paths}

    first = contents("first", 5)
    assert len(set(first.values())) == len(first) > 1
    assert contents("second", 5) == first
    assert contents("third", 6) != first


@pytest.mark.parametrize("dataset", ["cifar10", "imagenet", "ptb"])
def test_where_there_is_no_directory_the_writer_is_named(tmp_path, dataset):
    said = refusal(lambda: inputs.locate(dataset, tmp_path / "nowhere"))
    assert said.startswith(f"{tmp_path / 'nowhere'}: no such directory")
    assert said.endswith(f"python -m hvdperf.models.inputs.sample_sets DIR {dataset}")


def test_labels_are_balanced_and_images_are_no_copies(sample):
    for split in sample.paths:
        images, labels = records(sample, split)
        assert len({image.tobytes() for image in images}) == len(images)
        frequency = np.bincount(labels, minlength=FORMATS[sample.dataset].classes)
        assert frequency.max() - frequency.min() <= 1


def test_classes_can_be_told_by_their_colour_but_not_always(tmp_path):
    write_cifar(tmp_path, "cifar10", Layout.BINARY, records=1000, seed=1)
    images, labels = records(locate(tmp_path, "cifar10"), TRAIN)
    colours = images.mean(axis=(1, 2))
    centres = np.stack([colours[labels == label].mean(axis=0) for label in range(10)])
    distances = np.abs(colours[:, None] - centres).sum(axis=2)
    assert 0.6 < np.mean(distances.argmin(axis=1) == labels) < 0.85


# All of them -----------------------------------------------------------------------------------


def test_every_data_set_has_a_sample():
    assert set(sample_sets.WRITERS) == {s.name for s in inputs.INPUTS.values() if s.needs_data}


def test_the_command_writes_what_every_input_reads_once(tmp_path, capsys):
    assert sample_sets.main([str(tmp_path)]) == 0
    for dataset in sample_sets.WRITERS:
        inputs.locate(dataset, tmp_path / dataset)
    assert sample_sets.main([str(tmp_path), "ptb"]) == 0
    assert capsys.readouterr().out.count("\n") == len(sample_sets.WRITERS)


def test_the_command_refuses_an_unknown_name_and_files_of_somebody_else_stay(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        sample_sets.main([str(tmp_path), "mnist"])
    assert "mnist" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "cifar10").mkdir()
    assert not sample_sets.write("cifar10", tmp_path)
    assert list((tmp_path / "cifar10").iterdir()) == []


def test_of_a_sample_that_could_not_be_written_nothing_is_left(tmp_path, monkeypatch):
    def fail(path: Path) -> None:
        path.mkdir(parents=True)
        raise DataError("the disk is full")

    monkeypatch.setitem(sample_sets.WRITERS, "cifar10", fail)
    with pytest.raises(DataError):
        sample_sets.write("cifar10", tmp_path)
    assert list(tmp_path.iterdir()) == []
