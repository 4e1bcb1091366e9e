"""Publishing to a bare git repository, as several runners do at once."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.programs import run
from hvdperf.timeline.nights.night import (
    BRANCH,
    Accepted,
    Night,
    add_accepted,
    read_nights,
    write_night,
)
from hvdperf.timeline.publish import Place, fetched, publish
from hvdperf.timeline.store import NIGHTS
from tests.support.nights import Year, nights

YEAR = Year(0.01, networks=1, world_sizes=(8,))
SOME = nights(YEAR, 1)[:3]


@pytest.fixture
def repository(tmp_path: Path) -> str:
    path = tmp_path / "published.git"
    subprocess.run(["git", "init", "-q", "--bare", str(path)], check=True)
    return str(path)


def git(repository: str, *words: str) -> str:
    done = run(["git", "-C", repository, *words])
    assert done.status == 0, done.errors
    return done.output


def runner(directory: Path, series: str, made: list[Night]) -> Path:
    """Return the results of a runner with these nights, and a page for each of their sessions."""
    for night in made:
        write_night(directory / NIGHTS, replace(night, series=series))
        for part in night.parts:
            page = directory / "report" / f"{part.session}.html"
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(f"<p>{part.session}</p>")
    return directory


def published(results: Path, repository: str) -> list[str]:
    return publish(Place(repository, results), lambda line: None)


def test_nights_arrive_with_their_pages_and_an_index(tmp_path: Path, repository: str) -> None:
    results = runner(tmp_path / "results", "a100", SOME)
    runner(results, "h100", [replace(SOME[0], ended_at=None)])  # goes on
    added = published(results, repository)
    assert added == [f"a100 {night.night}" for night in SOME]
    files = git(repository, "ls-tree", "-r", "--name-only", BRANCH).split()
    sessions = [night.parts[0].session for night in SOME]
    assert sorted(files) == sorted(
        ["index.html", "nights/a100/index.html"]
        + [f"nights/a100/{night.night}.json" for night in SOME]
        + [f"pages/{session}.html" for session in sessions]
    )
    index = git(repository, "show", f"{BRANCH}:index.html")
    assert f'href="pages/{sessions[-1]}.html"' in index
    own = git(repository, "show", f"{BRANCH}:nights/a100/index.html")
    assert f'href="../../pages/{sessions[0]}.html"' in own
    assert published(results, repository) == [], "once is enough"
    assert git(repository, "rev-list", "--count", BRANCH).strip() == "2", "documents, and pages"


def test_what_is_accepted_is_published_and_nothing_of_it_is_lost(
    tmp_path: Path, repository: str
) -> None:
    results = runner(tmp_path / "results", "a100", SOME)
    published(results, repository)
    for night in (SOME[0].night, SOME[2].night):
        add_accepted(results / NIGHTS / "a100", Accepted(night, "a new driver"))
        assert published(results, repository) == [f"a100 accepted up to {night}"]
    assert published(results, repository) == []
    other = runner(tmp_path / "other", "a100", SOME)
    add_accepted(other / NIGHTS / "a100", Accepted(SOME[1].night, ""))
    published(other, repository)
    elsewhere = fetched(Place(repository, tmp_path / "elsewhere"))
    assert read_nights(elsewhere).accepted["a100"] == (
        Accepted(SOME[0].night, "a new driver"),
        Accepted(SOME[2].night, "a new driver"),
        Accepted(SOME[1].night, ""),
    )


def test_runners_that_publish_at_once_all_arrive(tmp_path: Path, repository: str) -> None:
    runners = [runner(tmp_path / f"{i}", f"class-{i}", SOME[:2]) for i in range(3)]
    with ThreadPoolExecutor(len(runners)) as pool:
        added = list(pool.map(lambda results: published(results, repository), runners))
    assert [len(each) for each in added] == [2] * 3
    found = read_nights(fetched(Place(repository, tmp_path / "elsewhere")))
    assert {series: len(each) for series, each in found.of.items()} == {
        f"class-{i}": 2 for i in range(3)
    }
    assert git(repository, "rev-list", "--count", "--merges", BRANCH).strip() == "0"
    index = git(repository, "show", f"{BRANCH}:index.html")
    assert all(f"class-{i}" in index for i in range(3)), "the last one knew of all"


def test_a_published_night_never_changes(tmp_path: Path, repository: str) -> None:
    one = runner(tmp_path / "one", "a100", SOME[:1])
    published(one, repository)
    other = runner(tmp_path / "other", "a100", [replace(SOME[0], reason="another machine")])
    said: list[str] = []
    assert publish(Place(repository, other), said.append) == []
    assert f"another one of a100 is published as {SOME[0].night}; give each machine" in said[0]
    found = read_nights(fetched(Place(repository, tmp_path / "elsewhere")))
    assert found.of["a100"][0].reason == ""


def test_what_an_interrupted_publishing_left_does_not_matter(
    tmp_path: Path, repository: str
) -> None:
    results = runner(tmp_path / "results", "a100", SOME[:1])
    published(results, repository)
    place = Place(repository, results)
    (place.clone / "nights/a100/rubbish.json").write_text("{")
    (place.clone / "index.html").write_text("half")
    subprocess.run(["git", "-C", place.clone, "add", "-A"], check=True)
    runner(results, "a100", SOME[1:2])
    assert published(results, repository) == [f"a100 {SOME[1].night}"]
    assert "rubbish" not in git(repository, "ls-tree", "-r", "--name-only", BRANCH)


@pytest.mark.parametrize("name", [".published", ".published.lock"])
def test_a_clone_or_lock_that_cannot_be_made_is_one_line(
    tmp_path: Path, repository: str, name: str
) -> None:
    place = tmp_path / NIGHTS / name
    place.parent.mkdir()
    if name.endswith("lock"):
        place.mkdir()
    else:
        place.write_text("")
    with pytest.raises(UserError, match=rf"/{name} cannot be made: "):
        fetched(Place(repository, tmp_path))


def test_a_repository_that_fails_or_refuses_is_one_line(tmp_path: Path, repository: str) -> None:
    results = runner(tmp_path / "results", "a100", SOME[:1])
    with pytest.raises(UserError, match=r"nowhere\.git: git ls-remote: fatal: "):
        published(results, str(tmp_path / "nowhere.git"))
    hook = Path(repository) / "hooks/pre-receive"
    hook.write_text("#!/bin/sh\necho 'no more room' >&2\nexit 1\n")
    hook.chmod(0o755)
    with pytest.raises(UserError, match=r"git push: error: failed to push some refs"):
        published(results, repository)
