"""Another copy of the same files is the same data set; other files are another."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from hvdperf.models.inputs import dataset_id


@pytest.fixture
def files(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    (directory / "train").mkdir(parents=True)
    (directory / "train" / "a.bin").write_bytes(bytes(range(256)) * 40)
    (directory / "b.bin").write_bytes(b"b" * 10)
    return directory


def test_a_copy_is_the_same(files, tmp_path):
    shutil.copytree(files, tmp_path / "copy")
    (tmp_path / "copy" / ".hidden").write_text("of no file system's concern")
    assert dataset_id(tmp_path / "copy") == dataset_id(files)
    assert dataset_id(files).startswith("2 files, 0.0 MB, ")


def test_of_named_files_no_other_counts(files):
    named = dataset_id(files, ["b.bin", "train/a.bin"])
    assert named == dataset_id(files)
    (files / "other.txt").write_text("of another data set")
    assert dataset_id(files, ["train/a.bin", "b.bin"]) == named
    assert dataset_id(files) != named
    (files / "b.bin").unlink()
    assert dataset_id(files, ["train/a.bin", "b.bin"]).startswith("1 files")


def test_what_a_linked_folder_holds_counts(files, tmp_path):
    before = dataset_id(files)
    (files / "train").rename(tmp_path / "elsewhere")
    (files / "train").symlink_to(tmp_path / "elsewhere")
    assert dataset_id(files) == before
    (tmp_path / "elsewhere" / "back").symlink_to(files)
    assert dataset_id(files) == before, "a link to above is not gone around in"


def test_a_name_may_be_of_any_bytes(files):
    before = dataset_id(files)
    (files / os.fsdecode(b"\xff.bin")).touch()
    assert dataset_id(files) != before


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
