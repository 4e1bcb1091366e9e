"""The sample of every data set: whole or not there, and one that its input takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdperf.models import inputs
from hvdperf.models.inputs import sample_sets
from hvdperf.models.inputs.errors import DataError


def test_every_data_set_has_a_sample():
    assert set(sample_sets.WRITERS) == {s.name for s in inputs.INPUTS.values() if s.needs_data}


@pytest.mark.parametrize("dataset", sample_sets.WRITERS)
def test_a_sample_is_what_its_input_reads(dataset: str, tmp_path: Path) -> None:
    assert sample_sets.write(dataset, tmp_path)
    inputs.locate(dataset, tmp_path / dataset)


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


def test_the_command_says_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert sample_sets.main([]) == 2
    assert sample_sets.main(["somewhere", "mnist"]) == 2
    assert capsys.readouterr().out.count("usage:") == 2
