"""A small site that asv itself has published, and the figures that its graphs must show."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from asv.benchmarks import Benchmarks
from asv.config import Config
from asv.machine import Machine
from asv.results import Results
from asv.runner import BenchmarkResult

HOROVOD = ("0.27.0", "0.28.0", "0.28.1")
# Nothing is known of the oldest release.
MEASURED = HOROVOD[1:]
TENSORFLOW = ("2.15.1", "2.16.2", "2.18.1")
MODELS = ("resnet_50_s", "vgg_16_s")
SPEEDUPS = {1: 1.0, 2: 1.74}
WORLD_SIZES = tuple(SPEEDUPS)
DATA = "cifar10 f133a46ad75d38ed, 32 px, batch 32, float32"
SECONDS = "throughput.Training.track_seconds_per_sample"
SAMPLES = "throughput.Training.track_samples_per_second"
UNITS = {SECONDS: "seconds", SAMPLES: "samples/s"}


def samples_per_second(horovod: str, tensorflow: str, model: str, world_size: int) -> float | None:
    """What was measured; None: nothing was."""
    if (tensorflow, model, world_size) == (TENSORFLOW[0], MODELS[1], WORLD_SIZES[1]):
        return None
    speed = 2400.0 if model == MODELS[0] else 1350.0
    speed *= 1 + 0.1 * TENSORFLOW.index(tensorflow) + 0.04 * HOROVOD.index(horovod)
    return speed * SPEEDUPS[world_size]


def published_site(directory: Path) -> Path:
    """Makes the release repository, asv's results and the site, all below the directory; where the
    site is."""
    commits = _release_repository(directory / "releases")
    settings = {
        "version": 1,
        "project": "horovod",
        "repo": str(directory / "releases"),
        "branches": ["main"],
        "benchmark_dir": str(directory / "benchmarks"),
        "results_dir": str(directory / "results"),
        "html_dir": str(directory / "html"),
    }
    (directory / "asv.conf.json").write_text(json.dumps(settings))
    _write_results(Config.from_json(settings), commits)
    command = [sys.executable, "-m", "asv", "publish", "--no-pull"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    return directory / "html"


def _release_repository(directory: Path) -> Mapping[str, str]:
    """The commit of each release."""
    directory.mkdir()

    def git(*arguments: str, day: int = 1) -> str:
        said = {"NAME": "releases", "EMAIL": "releases@here", "DATE": f"2024-01-{day:02} 00:00Z"}
        given = {f"GIT_{who}_{k}": v for who in ("AUTHOR", "COMMITTER") for k, v in said.items()}
        result = subprocess.run(
            ["git", *arguments],
            cwd=directory,
            env={**os.environ, **given},
            check=True,
            capture_output=True,
            text=True,
        )
        return result.stdout.strip()

    git("init", "--initial-branch=main")
    commits = {}
    for day, release in enumerate(HOROVOD, start=1):
        git("commit", "--allow-empty", "-m", f"horovod=={release}", day=day)
        git("tag", f"v{release}")
        commits[release] = git("rev-parse", "HEAD")
    return commits


def _write_results(config: Config, commits: Mapping[str, str]) -> None:
    benchmarks = [_benchmark(name) for name in UNITS]
    machine = dict.fromkeys(("os", "arch", "cpu", "num_cpu", "ram"), "any")
    machine["machine"] = "two-cores"
    Path(config.results_dir, machine["machine"]).mkdir(parents=True)
    Benchmarks(config, benchmarks).save()
    written = Machine()
    vars(written).update(machine)
    written.save(config.results_dir)
    for release, tensorflow in itertools.product(MEASURED, TENSORFLOW):
        results = Results(
            {**machine, "python": "3.11", "tensorflow-cpu": tensorflow},
            {"tensorflow-cpu": tensorflow},
            commits[release],
            0,
            "3.11",
            f"virtualenv-py3.11-tensorflow-cpu{tensorflow}",
            {},
        )
        for benchmark in benchmarks:
            values = _values(benchmark["name"], release, tensorflow)
            nothing = [None] * len(values)
            outcome = BenchmarkResult(values, nothing, nothing, 0, "", None)
            results.add_result(benchmark, outcome, started_at=datetime(2026, 1, 1, tzinfo=UTC))
        results.save(config.results_dir)


def _benchmark(name: str) -> dict[str, Any]:
    params = [list(map(repr, values)) for values in (MODELS, (DATA,), WORLD_SIZES)]
    return {
        "name": name,
        "version": "1",
        "type": "track",
        "unit": UNITS[name],
        "params": params,
        "param_names": ["model", "data", "world_size"],
        "code": "",
    }


def _values(name: str, release: str, tensorflow: str) -> list[float]:
    """One for each combination of parameters, NaN for what was not measured."""
    speeds = (
        samples_per_second(release, tensorflow, model, world_size) or float("nan")
        for model, world_size in itertools.product(MODELS, WORLD_SIZES)
    )
    return [1 / speed if name == SECONDS else speed for speed in speeds]
