"""What can be measured, listed from wherever the user is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hvdperf.paths import ROOT

PROFILE = """\
models = ["alexnet_s"]
dataset = "cifar10"
batch = 8
budget_s = 60
world_sizes = [1]
"""


def hvdperf(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hvdperf", *words],
        cwd=cwd,
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        check=False,
    )


def listed(*options: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return hvdperf("list", "cases", *options, cwd=cwd)


def thresholds(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return hvdperf("thresholds", *words, cwd=cwd)


def test_a_profile_is_found_in_the_users_directory(tmp_path):
    (tmp_path / "mine.toml").write_text(PROFILE)
    done = listed("--profile", "mine.toml", "--np", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cases = [line for line in done.stdout.splitlines() if "::" in line]
    assert cases
    assert all("alexnet_s" in line for line in cases)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


HEAD = 'label = "mine"\n[match]\ndevice = "cpu"\n[thresholds]\n'


def test_cases_without_a_threshold_are_named(tmp_path):
    (tmp_path / "mine.toml").write_text(HEAD + '"weak_scaling/*/np*/*" = 0.5\n')
    asked = "--profile=smoke", "--models=vgg_16_s", "--np=2"
    done = thresholds("check", *asked, "--thresholds=mine.toml", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "thresholds: mine.toml: mine" in done.stdout
    told = " ".join(done.stdout.split())
    assert "cases without a threshold: parity[vgg_16_s-np2], strong_scaling[vgg_16_s" in told
    whole = thresholds("check", *asked, cwd=tmp_path)
    assert (whole.returncode, whole.stdout.splitlines()[-1]) == (0, "every case has a threshold")


def test_a_diff_says_what_is_tightened_and_what_is_loosened(tmp_path):
    old = (
        '"weak_scaling/*/np*/*" = 0.5\n"parity/*/np*/*" = [0.8, 1.25]\n"aa/*/np*/*" = [0.9, 1.1]\n'
    )
    new = '"weak_scaling/*/np*/*" = 0.6\n"parity/*/np*/*" = [0.7, 1.4]\n"memory/*/np*/*" = 1.02\n'
    (tmp_path / "old.toml").write_text(HEAD + old)
    (tmp_path / "new.toml").write_text(HEAD + new)
    done = thresholds("diff", "old.toml", "new.toml", cwd=tmp_path)
    words = {line.split()[0]: line.split()[-1] for line in done.stdout.splitlines()[1:]}
    assert words == {
        "weak_scaling/*/np*/*": "tighter",
        "parity/*/np*/*": "looser",
        "aa/*/np*/*": "removed",
        "memory/*/np*/*": "new",
    }
    same = thresholds("diff", "old.toml", "old.toml", cwd=tmp_path)
    assert same.stdout == "the same thresholds\n"


def test_a_directory_is_not_taken_for_a_profile_of_its_name(tmp_path):
    (tmp_path / "smoke").mkdir()
    done = thresholds("check", "--profile=smoke", "--np=2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
