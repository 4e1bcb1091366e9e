"""The training data of a session, found and told from other copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.models.inputs import DataError, dataset_id
from hvdperf.models.inputs.sample_sets import write_imagenet
from hvdperf.plan import data
from hvdperf.plan.data import DataSource, open_data, other_data


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


def test_files_of_one_size_swap_names(tmp_path):
    whole = tmp_path / "whole"
    (whole / "part").mkdir(parents=True)
    for name, content in (("a", b"11"), ("b", b"22"), ("part/c", b"33"), ("alone", b"4444")):
        (whole / name).write_bytes(content)
    names = ("a", "b", "part/c", "alone")
    source = DataSource("mine", str(whole), 10, files=names)
    other = other_data(source, tmp_path / "other")
    read = {
        str(path.relative_to(other)): path.read_bytes()
        for path in other.rglob("*")
        if path.is_file()
    }
    assert read == {"a": b"22", "b": b"33", "part/c": b"11", "alone": b"4444"}
    assert dataset_id(other, names) != dataset_id(whole, names)
    assert other_data(source, tmp_path / "other") == other, "again"


def test_where_nothing_can_be_swapped_that_is_said(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"22")
    alone = DataSource("mine", str(tmp_path), 10, files=("a", "b"))
    for source in (alone, DataSource("synthetic", "", 10)):
        with pytest.raises(DataError, match="swaps two files of equal size"):
            other_data(source, tmp_path / "other")


@pytest.mark.long
def test_records_of_imagenet_are_read_once_for_each_copy(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "CACHE", tmp_path / "cache")
    shards = write_imagenet(tmp_path / "imagenet", shards=2, per_shard=3)
    folder = str(shards[0].parent)
    found = open_data("imagenet", folder)
    assert found.located is not None
    assert found.located.counts == {"train": 6, "validation": 3}
    (kept,) = (tmp_path / "cache").iterdir()
    counts = kept.read_text()
    with monkeypatch.context() as patch:
        patch.setattr(data, "_run", pytest.fail)
        assert open_data("imagenet", folder) == found
        # What reads the shards says the same again, after seconds in which it imports TensorFlow.
        patch.setattr(data, "_run", lambda *_: counts)
        for damaged in ("", "[1]", "1", '{"records": 1}'):
            kept.write_text(damaged)
            assert open_data("imagenet", folder) == found
            assert kept.read_text() == counts
    content = shards[1].read_bytes()
    shards[1].write_bytes(content[: len(content) // 2] + b"\0" + content[len(content) // 2 + 1 :])
    with pytest.raises(UserError) as refused:
        open_data("imagenet", folder)
    assert str(refused.value).startswith(f"--data-dir: {shards[1]}: record 1 does not fit its")
    assert "\n" not in str(refused.value)
