"""A small site that asv itself has published, and the figures that its graphs must show."""

from __future__ import annotations

import itertools
from pathlib import Path

from hvdperf.timeline.asv_site import BENCHMARK
from hvdperf.timeline.history import Axis
from tests.support.asv_projects import asv, asv_project
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
