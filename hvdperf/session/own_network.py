"""Tries a network of the user's own in a process of its stack, before anything is measured."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.machine.rank_environment import rank_environment
from hvdperf.machine.stack import Stack
from hvdperf.models.registry import Network
from hvdperf.paths import ROOT, shown
from hvdperf.plan.arms import Workload
from hvdperf.plan.data import DataSource
from hvdperf.worker.strategies.trial import APART_AT_MOST

# Seconds that building the network and two steps may take.
DEADLINE_S = 300.0


def doubt(workload: Workload, network: Network, data: DataSource, stack: Stack) -> str:
    """Build the network with a stack, and train two equal steps. Return why no comparison of it can
    be trusted; "" if there is no such reason. Raises UserError if it cannot be measured."""
    name = f"{shown(Path(network.origin))}: network {network.name!r}"
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
        raise UserError(f"{name}: no step within {DEADLINE_S:.0f} s") from None
    try:
        found = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        said = done.stderr.strip().splitlines()[-1:] or ["it printed nothing"]
        raise UserError(f"{name}: its first step ended with {done.returncode}: {said[0]}") from None
    if "error" in found:
        raise UserError(f"{name}{found['error']}")
    if found["apart"] > APART_AT_MOST:
        return (
            f"the gradients of two equal steps differ by {100 * found['apart']:.2g} %, so no "
            "comparison can be trusted; draw nothing at random in the loss and the network, or "
            "seed it"
        )
    return ""
