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


def listed(*options: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hvdperf", "list", "cases", *options],
        cwd=cwd,
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_profile_is_found_in_the_users_directory(tmp_path):
    (tmp_path / "mine.toml").write_text(PROFILE)
    done = listed("--profile", "mine.toml", "--np", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cases = [line for line in done.stdout.splitlines() if "::" in line]
    assert cases
    assert all("alexnet_s" in line for line in cases)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_an_unknown_profile_is_one_line(tmp_path):
    done = listed("--profile", "mine.toml", cwd=tmp_path)
    assert done.returncode == 4
    assert f"ERROR: {tmp_path / 'mine.toml'}: cannot be read: No such file" in done.stderr
    assert "Traceback" not in done.stderr
