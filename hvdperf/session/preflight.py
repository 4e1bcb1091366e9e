"""Looks at this host before a session measures, in a second, without starting ranks."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hvdperf.machine.cpu_usage import make_meter
from hvdperf.machine.fitness import Check, gpu_checks, host_checks, load_check
from hvdperf.machine.host import Machine, local_machine
from hvdperf.machine.placement import Slot, local_offers, place

# Seconds for which the load is watched: the kernel counts in ticks of 10 ms, so half a second shows
# 1 % of two cores.
WATCHED_S = 0.5
# The same, where nobody waits for the session.
WATCHED_AT_LEISURE_S = 2.0


def local_preflight(results: Path) -> list[Check]:
    """Return what was found of this host and all of its slots. results: as in preflight."""
    machine = local_machine()
    return preflight(machine, place(local_offers(machine)), results, WATCHED_AT_LEISURE_S)


def preflight(
    machine: Machine, slots: Sequence[Slot], results: Path, seconds: float = WATCHED_S
) -> list[Check]:
    """Return what was found of this host. slots: the session's. results: the directory of the
    results. seconds: for which the load is watched."""
    here = sum(slot.host == machine.host for slot in slots)
    with ThreadPoolExecutor(1) as pool:
        # nvidia-smi takes up to a second on a node of eight GPUs.
        gpus = pool.submit(gpu_checks, machine.gpus, os.environ)
        meter = make_meter(slots, time.monotonic())
        load = [load_check(meter, seconds)] if meter is not None else []
        return [*host_checks(machine, here, results), *load, *gpus.result()]
