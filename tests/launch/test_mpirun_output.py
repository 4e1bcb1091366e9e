"""Whose line is whose in what mpirun passes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hvdperf.launch.mpirun import MpirunJob


@pytest.fixture
def job(tmp_path: Path) -> MpirunJob:
    process: Any = None  # is not asked
    (tmp_path / "stdout").write_text(
        "mpirun has a word\n"
        "[1,0]<stdout>:# Size\n"
        "[1,1]<stdout>:other[1,0]<stdout>:65536   \n"
        "[1,0]<stdout>:1048576 [1,0]<stdout>:  10.5[1,0]<stdout>:\n"
        "[1,1]<stdout>:'s\n"
        "mpirun: [1,0]<stdout>:is quoted\n"
        "[1,10]<stdout>:rank 10\n"
    )
    (tmp_path / "stderr").write_text("[1,1]<stderr>:no such luck\n-----\nterminated\n")
    return MpirunJob(process, tmp_path, local=True)


def test_lines_that_were_tagged_in_pieces_are_whole_again(job):
    assert job.written(0, "stdout") == ["# Size", "65536   ", "1048576   10.5"]
    assert job.written(1, "stdout") == ["other's"]
    assert job.written(10, "stdout") == ["rank 10"]
    assert job.written(2, "stdout") == []


def test_a_rank_that_has_written_nothing_has_mpiruns_last_words(job):
    assert job.tail(1) == ["no such luck"]
    assert job.tail(0) == ["[1,1]<stderr>:no such luck", "-----", "terminated"]
