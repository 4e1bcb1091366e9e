"""The files for CI, whose steps are run in order in a fresh clone."""

from __future__ import annotations

import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from hvdperf.programs import run
from hvdperf.records.documents import Kind
from hvdperf.timeline.nights.night import BRANCH, read_nights
from hvdperf.timeline.publish import Place, fetched
from tests.support.clones import without_this_environment
from tests.support.whole_sessions import BIN, PROFILE, ROOT

GITHUB, GITLAB = ROOT / "ci/github/nightly.yml", ROOT / "ci/gitlab/nightly.yml"
# As the forges start a step: GitHub a `shell: bash`, GitLab with the options that it sets.
SHELLS = {
    "github": ("bash", "--noprofile", "--norc", "-eo", "pipefail"),
    "gitlab": ("bash", "-eo", "pipefail"),
}
MADE_UP = "-p tests.support.made_up_ranks --np=2 --oversubscribe -k weak_scaling"
# The worst verdict of a session of one round.
STATUSES = (0, 6)


def of(path: Path) -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load(path.read_text())
    return loaded


def scripts_of_github() -> Iterator[tuple[str, str]]:
    """Yield the job and the text of every step that runs commands, in order."""
    for name, job in of(GITHUB)["jobs"].items():
        for step in job["steps"]:
            if "run" in step:
                yield name, step["run"]


def scripts_of_gitlab() -> Iterator[tuple[str, str]]:
    for name, job in of(GITLAB).items():
        if isinstance(job, dict) and "script" in job:
            yield name, "\n".join(job["script"])
            if "after_script" in job:
                yield name, "\n".join(job["after_script"])


@pytest.mark.long
@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_the_steps_measure_publish_and_watch(clone: Path, tmp_path: Path, kind: str) -> None:
    repository = tmp_path / "nights.git"
    run(["git", "init", "-q", "--bare", repository])
    # What other tests have measured in the clone.
    shutil.rmtree(clone / "results/runs", ignore_errors=True)
    shutil.rmtree(clone / "results/nights", ignore_errors=True)
    (clone / "tiny.toml").write_text(PROFILE)
    summary = tmp_path / "summary.md"
    environment = {
        **without_this_environment(),
        "GIT_CONFIG_GLOBAL": str(tmp_path / "gitconfig"),
        "SERIES": "mine",
        "PROFILE": "tiny.toml",
        "GPU": "0",
        # Whatever is imported is compiled then.
        "PIP_NO_COMPILE": "1",
        "AGAINST": str(BIN / "python"),
        "OPTIONS": f"-- {MADE_UP}",
        "GITHUB_STEP_SUMMARY": str(summary),
        # What the places of the forges are here.
        "REPOSITORY": str(repository),
        "NIGHTS": str(repository),
        "TOKEN": "secret",
        "SERVER": "https://github.example",
    }
    scripts = scripts_of_github() if kind == "github" else scripts_of_gitlab()
    done = []
    for job, script in scripts:
        if "rolling_issues" in script:
            continue  # tests/timeline/nights/test_run.py runs it, with a stand-in for gh
        (clone / "issues").mkdir(exist_ok=True)
        ended = run([*SHELLS[kind], "-c", script], clone, environment, within_s=600)
        allowed = STATUSES if re.search("nightly (run|watch)", script) else (0,)
        assert ended.status in allowed, f"{job}: {script}\n{ended.output}\n{ended.errors}"
        done.append(job)
    assert list(dict.fromkeys(done)) == ["measure", "publish", "watch"]
    found = read_nights(fetched(Place(str(repository), tmp_path / "elsewhere")))
    (night,) = found.of["mine"]
    assert [part.kind for part in night.parts] == [Kind.OWN, Kind.GATE]
    pages = run(["git", "-C", repository, "ls-tree", "--name-only", f"{BRANCH}:pages"]).output
    assert {f"{part.session}.html" for part in night.parts} == set(pages.split())
    with tarfile.open(clone / "nights.tar.gz") as packed:
        assert not any(".published" in name for name in packed.getnames())
    if kind == "github":
        assert summary.read_text().startswith("    hvdperf: ")


def test_jobs_have_time_limits_and_only_measuring_needs_gpus_and_is_not_cancelled() -> None:
    github: Mapping[str, Any] = of(GITHUB)["jobs"]
    gitlab = {name: job for name, job in of(GITLAB).items() if isinstance(job, dict)}
    for name in ("measure", "publish", "watch"):
        assert github[name]["timeout-minutes"] > 0
        assert "timeout" in gitlab[name]
    assert {name for name, job in github.items() if "gpu" in job["runs-on"]} == {"measure"}
    assert {name for name, job in gitlab.items() if "tags" in job} == {"measure"}
    assert github["measure"]["concurrency"]["cancel-in-progress"] is False
    assert gitlab["measure"]["interruptible"] is False


def test_github_fails_where_a_part_of_a_pipe_fails_and_pins_actions_by_their_commit() -> None:
    assert of(GITHUB)["defaults"]["run"]["shell"] == "bash"
    used = re.findall(r"uses: (\S+)", GITHUB.read_text())
    assert used
    assert all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", each) for each in used)
