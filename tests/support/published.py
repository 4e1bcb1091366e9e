"""Projects for asv, made of raw results in the way in which the history makes its own; and a small
site that asv itself has published, with the figures that its graphs must show."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hvdperf.timeline import history
from hvdperf.timeline.asv_site import BENCHMARK, write_repository, write_tree
from hvdperf.timeline.history import Axis, RawResult, releases
from tests.support.histories import raw_result

# Between the two lies a release without results.
HOROVOD = ("0.27.0", "0.28.1")
TENSORFLOW = ("2.15.1", "2.16.2", "2.18.1")
MODELS = ("resnet_50_s", "vgg_16_s")
SPEEDUPS = {1: 1.0, 2: 1.74}
WORLD_SIZES = tuple(SPEEDUPS)
SECONDS = BENCHMARK.format("seconds_per_sample")
SAMPLES = BENCHMARK.format("samples_per_second")


def samples_per_second(horovod: str, tensorflow: str, model: str, world_size: int) -> float | None:
    """Return the measured throughput; return None if nothing was measured."""
    if (tensorflow, model, world_size) == (TENSORFLOW[0], MODELS[1], WORLD_SIZES[1]):
        return None
    speed = 2400.0 if model == MODELS[0] else 1350.0
    speed *= 1 + 0.1 * TENSORFLOW.index(tensorflow) + 0.04 * HOROVOD.index(horovod)
    return speed * SPEEDUPS[world_size]


def published_site(directory: Path, axis: Axis = Axis.HOROVOD) -> Path:
    """Make a project of asv below the directory and publish it; return the site's directory."""
    results = []
    for number, (horovod, tensorflow) in enumerate(itertools.product(HOROVOD, TENSORFLOW)):
        speeds = {
            (model, world_size): [speed]
            for model, world_size in itertools.product(MODELS, WORLD_SIZES)
            if (speed := samples_per_second(horovod, tensorflow, model, world_size)) is not None
        }
        results.append(raw_result(horovod, tensorflow, speeds, number))
    asv(asv_project(directory, results, axis), "publish")
    return directory / "html"


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
