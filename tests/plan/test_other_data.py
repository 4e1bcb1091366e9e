"""Files under each other's names are other data, of the same form."""

from __future__ import annotations

import pytest

from hvdperf.plan.other_data import other_data
from hvdperf.worker.dataset_id import dataset_id
from models.inputs.errors import DataError


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
