"""A commit a release, with the same hashes everywhere."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.timeline.asv.export import write_repository
from hvdperf.timeline.releases.raw import Axis, Release, order, releases

HOROVOD = releases(Axis.HOROVOD)


def git(directory: Path, *arguments: str) -> list[str]:
    command = ["git", "--git-dir", str(directory), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_each_release_is_a_commit_of_its_date_with_its_tag(tmp_path):
    commits = write_repository(tmp_path / "r", HOROVOD)
    # Hashes are the same on every machine: results that are tracked name them.
    assert commits["0.28.0"] == "54648aa796bc790d176bce1bc8062d5a5134fdcf"
    assert commits["0.28.1"] == "212b918de25f4e332c6c489f74ab885d04e6f206"
    told = git(tmp_path / "r", "log", "--reverse", "--format=%H %as %cs %s", "main")
    assert told == [
        f"{commits[each.version]} {each.released} {each.released} horovod {each.version}"
        for each in HOROVOD
    ]
    for release in HOROVOD:
        assert git(tmp_path / "r", "rev-parse", release.tag) == [commits[release.version]]
        content = git(tmp_path / "r", "show", f"{release.tag}:release.txt")
        assert content == [f"horovod=={release.version}"]


def test_releases_are_appended(tmp_path):
    older = write_repository(tmp_path / "r", HOROVOD[:3])
    newer = write_repository(tmp_path / "r", HOROVOD)
    assert {version: newer[version] for version in older} == older
    assert write_repository(tmp_path / "r", HOROVOD) == newer, "again changes nothing"


@pytest.mark.parametrize(
    "changed",
    [
        HOROVOD[:-1],
        (replace(HOROVOD[0], released=date(2020, 1, 1)), *HOROVOD[1:]),
        (Release(Axis.HOROVOD, "0.24.3", date(2022, 4, 21)), *HOROVOD),
    ],
    ids=["one is gone", "another date", "one before"],
)
def test_what_is_there_cannot_change(tmp_path, changed):
    there = write_repository(tmp_path / "r", HOROVOD)
    with pytest.raises(UserError, match="append only"):
        write_repository(tmp_path / "r", changed)
    assert write_repository(tmp_path / "r", HOROVOD) == there


@pytest.mark.parametrize("axis", Axis)
def test_releases_stand_in_order_of_date_and_of_version(axis):
    known = releases(axis)
    numbers = [tuple(map(int, each.version.split("."))) for each in known]
    assert numbers == sorted(numbers)
    assert [each.released for each in known] == sorted(each.released for each in known)
    assert list(order(axis)) == [each.version for each in known]


def test_a_place_or_a_git_that_is_missing_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be made"):
        write_repository(tmp_path / "file" / "r", HOROVOD)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="apt-get install git"):
        write_repository(tmp_path / "r", HOROVOD)
