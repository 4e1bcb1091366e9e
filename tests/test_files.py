"""Files that are there whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from hvdperf.files import write_whole


def test_a_file_has_what_it_was_given(tmp_path):
    path = tmp_path / "table.csv"
    assert write_whole(path, "a,b\r\n\u00e9\n") == path
    assert path.read_bytes() == b"a,b\r\n\xc3\xa9\n"


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")], ids=repr
)
def test_an_interruption_or_a_full_disk_leaves_the_earlier_file_alone(tmp_path, monkeypatch, error):
    path = write_whole(tmp_path / "case.json", "1")

    def failing(descriptor: int) -> None:
        raise error

    monkeypatch.setattr("hvdperf.files.os.fsync", failing)
    with pytest.raises(type(error)):
        write_whole(path, "2")
    assert path.read_text() == "1"
    left = [entry.name for entry in tmp_path.iterdir()]
    assert left == ["case.json"] or isinstance(error, KeyboardInterrupt)


def test_a_file_appears_only_when_it_is_whole(tmp_path, monkeypatch):
    path = tmp_path / "case.json"
    seen = []
    monkeypatch.setattr("hvdperf.files.os.fsync", lambda descriptor: seen.append(path.exists()))
    write_whole(path, "1")
    assert seen == [False]
    assert [entry.name for entry in tmp_path.iterdir()] == ["case.json"]


def test_what_is_no_file_is_left_as_it_is(tmp_path):
    pipe, directory = tmp_path / "pipe", tmp_path / "directory"
    os.mkfifo(pipe)
    directory.mkdir()
    for path, why in (
        (pipe, "is not a regular file"),
        (directory, "Is a directory"),
        (Path(), "Is a dir"),
    ):
        with pytest.raises(OSError, match=why):
            write_whole(path, "1")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["directory", "pipe"]
