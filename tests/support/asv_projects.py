"""Projects for asv, made of raw results in the way in which the history makes its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hvdperf.timeline import history
from hvdperf.timeline.asv_site import write_repository, write_tree
from hvdperf.timeline.history import Axis, RawResult, releases


def asv_project(root: Path, results: Sequence[RawResult], axis: Axis = Axis.HOROVOD) -> Path:
    """Write the configuration, repository and tree below root; return the configuration. asv
    publishes to root/html."""
    commits = write_repository(root / "releases", axis, releases(axis))
    write_tree(axis, root / "results", commits, results)
    text = history.CONFIGURATION[axis].read_text()
    for key, value in (("repo", "releases"), ("results_dir", "results"), ("html_dir", "html")):
        text = re.sub(rf'"{key}": "[^"]*"', f'"{key}": "{root / value}"', text)
    (root / "asv.conf.json").write_text(text)
    return root / "asv.conf.json"


def asv(configuration: Path, *arguments: str) -> str:
    """Run asv and return its output."""
    command = [sys.executable, "-m", "asv", *arguments, "--config", str(configuration)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
