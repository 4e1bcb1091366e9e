"""Measures this host for a few seconds without TensorFlow and Horovod, so that a night on which all
became slower can tell the machine from the stack."""

from __future__ import annotations

import json
import sys
import timeit
from statistics import median

import numpy as np

from hvdperf.errors import UserError
from hvdperf.machine.starting import rank_environment
from hvdperf.paths import ROOT
from hvdperf.programs import run
from hvdperf.worker.vet import copier

# Each measurement is the median of so many, each of which takes some hundredths of a second.
_REPEATS = 9
_SIDE = 1024
# Seconds that the GPUs may take; TensorFlow starts in five.
_DEADLINE_S = 120.0


def probe() -> dict[str, float]:
    """Return by name how much this host does a second: floating point operations of a matrix
    product in NumPy, and bytes of a copy in memory."""
    factor = np.random.default_rng(1).random((_SIDE, _SIDE), dtype=np.float32)
    product, copy = np.empty_like(factor), copier()

    def multiply() -> float:
        np.matmul(factor, factor, out=product)
        return 2.0 * _SIDE**3

    # The first time warms up, and returns the amount of the work.
    return {
        name: work() / median(timeit.repeat(work, number=1, repeat=_REPEATS))
        for name, work in (("matrix product", multiply), ("copy", copy))
    }


def probe_gpus() -> dict[str, float]:
    """Return by name how much each GPU of this host does a second, as hvdperf.worker.devices
    measures it with the TensorFlow of this environment. Raises UserError."""
    done = run(
        [sys.executable, "-m", "hvdperf.worker.devices"],
        ROOT,
        rank_environment(sys.executable),
        within_s=_DEADLINE_S,
    )
    if done.status != 0:
        raise UserError(f"its GPUs: {done.why}")
    rates: dict[str, float] = json.loads(done.output)
    return rates
