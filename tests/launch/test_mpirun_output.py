"""Whose line is whose in what mpirun passes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hvdperf.launch.mpirun import MpirunJob
from hvdperf.launch.processes import TAIL_LINES


def job(scratch: Path, stderr: str) -> MpirunJob:
    process: Any = None  # is not asked
    (scratch / "stderr").write_text(stderr)
    return MpirunJob(process, scratch)


def test_lines_that_were_tagged_in_pieces_are_whole_again(tmp_path):
    found = job(
        tmp_path,
        "mpirun has a word\n"
        "[1,0]<stderr>:# Size\n"
        "[1,1]<stderr>:other[1,0]<stderr>:65536   \n"
        "[1,0]<stderr>:1048576 [1,0]<stderr>:  10.5[1,0]<stderr>:\n"
        "[1,1]<stderr>:'s\n"
        "[1,10]<stderr>:rank 10\n",
    )
    assert found.tail(0) == ["# Size", "65536   ", "1048576   10.5"]
    assert found.tail(1) == ["other's"]
    assert found.tail(10) == ["rank 10"]


def test_what_a_rank_writes_behind_words_of_mpirun_is_its_own(tmp_path):
    found = job(tmp_path, "mpirun is inter[1,1]<stderr>:no such [1,0]<stderr>:file\nrupted\n")
    assert found.tail(0) == ["file"]
    assert found.tail(1) == ["no such "]


def test_a_rank_that_has_written_nothing_has_mpiruns_last_words(tmp_path):
    found = job(tmp_path, "[1,1]<stderr>:no such luck\n-----\nterminated\n")
    assert found.tail(1) == ["no such luck"]
    assert found.tail(0) == ["[1,1]<stderr>:no such luck", "-----", "terminated"]


def test_only_the_last_lines_are_shown(tmp_path):
    numbers = [str(number) for number in range(TAIL_LINES + 1)]
    of_rank = job(tmp_path, "".join(f"[1,0]<stderr>:{number}\n" for number in numbers))
    assert of_rank.tail(0) == numbers[1:]
    of_mpirun = job(tmp_path, "".join(f"{number}\n" for number in numbers))
    assert of_mpirun.tail(0) == numbers[1:]


class Ended:
    """A process that has ended."""

    def wait(self, seconds: float) -> int:
        return 1


@pytest.mark.parametrize(
    ("signum", "name"), [(9, "SIGKILL"), (36, "which has no name"), (99, "which has no name")]
)
def test_the_signal_that_mpirun_reports_is_told(tmp_path, signum, name):
    process: Any = Ended()
    told = f"mpirun noticed that process rank 1 with PID 4711 on node x exited on signal {signum}"
    (tmp_path / "stderr").write_text(told)
    found = MpirunJob(process, tmp_path)
    assert found.fate(1) == f"(killed by signal {signum}, {name})"
    assert found.fate(0) == ""
