"""Another copy of the same files is the same data set; other files are another."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from hvdperf.models import inputs

NAMES = ["train/a.bin", "b.bin", "c.bin"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    (directory / "train").mkdir(parents=True)
    (directory / "train" / "a.bin").write_bytes(bytes(range(256)) * 40)
    (directory / "b.bin").write_bytes(b"b" * 10)
    return directory


def dataset_id(directory: Path) -> str:
    return inputs.dataset_id(directory, NAMES)


def test_a_copy_is_the_same_whatever_else_is_there(files, tmp_path):
    shutil.copytree(files, tmp_path / "copy")
    (tmp_path / "copy" / "other.txt").write_text("of another data set")
    assert dataset_id(tmp_path / "copy") == dataset_id(files)
    assert inputs.dataset_id(files, NAMES[::-1]) == dataset_id(files)
    assert dataset_id(files).startswith("2 files, 0.0 MB, ")


def test_a_name_may_be_of_any_bytes(files):
    (files / os.fsdecode(b"\xff.bin")).touch()
    assert inputs.dataset_id(files, [os.fsdecode(b"\xff.bin")]).startswith("1 files")


@pytest.mark.parametrize(
    "change",
    [
        lambda files: (files / "b.bin").rename(files / "c.bin"),
        lambda files: (files / "train" / "a.bin").write_bytes(bytes(range(256)) * 41),
        lambda files: (files / "b.bin").write_bytes(b"b" * 9 + b"c"),
        lambda files: (files / "c.bin").touch(),
        lambda files: (files / "b.bin").unlink(),
    ],
    ids=["a name", "a size", "a byte", "one more", "one less"],
)
def test_other_files_are_another(files, change):
    before = dataset_id(files)
    change(files)
    assert dataset_id(files) != before
