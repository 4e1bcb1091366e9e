"""The training data of a session, found and told from other copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.plan.data import open_data, other_data
from hvdperf.worker.dataset_id import dataset_id
from models.inputs.errors import DataError


@pytest.fixture
def words(tmp_path: Path) -> Path:
    for part in ("train", "valid", "test"):
        (tmp_path / f"ptb.{part}.txt").write_text(" a b c\n" * 20)
    return tmp_path


def test_what_else_stands_beside_a_data_set_does_not_tell_it_apart(words):
    alone = open_data("ptb", str(words))
    (words / "other").mkdir()
    (words / "other" / "large.bin").write_bytes(bytes(1000))
    (words / "gone.txt").symlink_to(words / "nowhere")
    assert open_data("ptb", str(words)) == alone
    assert alone.identity.startswith("3 files, ")
    assert sorted(alone.files) == ["ptb.test.txt", "ptb.train.txt", "ptb.valid.txt"]
    (words / "ptb.train.txt").write_text(" a b d\n" * 20)
    assert open_data("ptb", str(words)).identity != alone.identity


def test_a_file_that_is_missing_is_one_line(words):
    (words / "ptb.valid.txt").unlink()
    with pytest.raises(UserError, match=r"--data-dir: .*ptb\.valid\.txt: missing") as refused:
        open_data("ptb", str(words))
    assert "\n" not in str(refused.value)


def test_files_of_one_size_swap_names(tmp_path):
    whole = tmp_path / "whole"
    (whole / "part").mkdir(parents=True)
    for name, content in (("a", b"11"), ("b", b"22"), ("part/c", b"33"), ("alone", b"4444")):
        (whole / name).write_bytes(content)
    other = other_data(str(whole), tmp_path / "other")
    read = {
        str(path.relative_to(other)): path.read_bytes()
        for path in other.rglob("*")
        if path.is_file()
    }
    assert read == {"a": b"22", "b": b"33", "part/c": b"11", "alone": b"4444"}
    assert dataset_id(other) != dataset_id(whole)
    assert other_data(str(whole), tmp_path / "other") == other, "again"


def test_where_nothing_can_be_swapped_that_is_said(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"22")
    for directory in (str(tmp_path), ""):
        with pytest.raises(DataError, match="no two files are equally large"):
            other_data(directory, tmp_path / "other")
