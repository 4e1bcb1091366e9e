"""Tries a network of the user's own in a process of its stack, before anything is measured."""

from __future__ import annotations

import json
import subprocess

from hvdperf.machine.rank_environment import rank_environment
from hvdperf.machine.stack import Stack
from hvdperf.models.registry import Network
from hvdperf.paths import ROOT
from hvdperf.plan.arms import Workload
from hvdperf.plan.data import DataSource
from hvdperf.worker.strategies.trial import APART_AT_MOST

# Seconds that building the network and two steps may take.
DEADLINE_S = 300.0


def problem(workload: Workload, network: Network, data: DataSource, stack: Stack) -> str:
    """Return why the network cannot be measured with a stack; "" if it can."""
    config = {
        "model": network.name,
        "own_network": network.origin,
        "dataset": workload.dataset,
        "data_dir": data.directory,
        "input_size": workload.input_size,
        "batch": workload.batch,
        "precision": workload.precision,
        "classes": network.classes or data.classes,
        "seed": 1,
        "data_seed": 1,
        "input_threads": 1,
    }
    command = [stack.interpreter, "-m", "hvdperf.worker.strategies.trial", json.dumps(config)]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=rank_environment(stack.interpreter) | {"CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
        )
    except subprocess.TimeoutExpired:
        return f"network {network.name!r}: no step within {DEADLINE_S:.0f} s"
    try:
        found = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        said = done.stderr.strip().splitlines()[-1:] or ["it printed nothing"]
        return f"network {network.name!r}: its first step ended with {done.returncode}: {said[0]}"
    if "error" in found:
        return str(found["error"])
    if found["apart"] > APART_AT_MOST:
        return (
            f"network {network.name!r}: the gradients of two equal steps differ by "
            f"{100 * found['apart']:.2g} %, so no comparison of it can be trusted; draw nothing at "
            "random in the loss and the network, or seed it"
        )
    return ""
