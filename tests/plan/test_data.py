"""The training data of a session, found and told from other copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.plan.data import open_data


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
