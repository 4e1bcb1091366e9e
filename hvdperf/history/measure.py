"""Runs one session of the suite for one stack: the figures of a back-fill, and of `asv run`."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.history import places
from hvdperf.history.extract import extract
from hvdperf.history.label import machine_label, replica_label
from hvdperf.history.raw import RawResult, Refused
from hvdperf.machine.host import local_machine
from hvdperf.machine.placement import is_oversubscribed, local_offers, place
from hvdperf.machine.stack import probe
from hvdperf.paths import CACHE, ROOT, shown
from hvdperf.plan.options import Options
from hvdperf.plan.session_plan import plan_session
from hvdperf.results.fingerprint import fingerprint

PROFILE = "history"
CASES = "perf/"
# Exit statuses of pytest: interrupted, broken, bad input. Any other status is a verdict, on which
# neither a throughput nor the log of detections depends, or says that no case was judged: the
# session's documents say why.
NO_SESSION = (2, 3, 4)


@dataclass(frozen=True)
class Parameters:
    """The values of asv's parameters: the networks, replicas and world sizes that the profile
    measures on this machine."""

    models: tuple[str, ...]
    replicas: tuple[str, ...]
    world_sizes: tuple[int, ...]


def parameters() -> Parameters:
    """Return what the profile measures on this machine. Raises UserError if it cannot be measured
    here."""
    machine = local_machine()
    session_plan = plan_session(
        Options(profile=PROFILE), machine, local_offers(machine, None, False)
    )
    labels = [
        replica_label(
            session_plan.data[workload.dataset].identity,
            len(session_plan.slots[0].cores),
            bool(machine.gpus),
            workload,
        )
        for workload in session_plan.workloads
    ]
    return Parameters(
        tuple(workload.model for workload in session_plan.workloads),
        tuple(dict.fromkeys(labels)),
        tuple(
            size
            for size in session_plan.world_sizes
            if not is_oversubscribed(session_plan.slots, size)
        ),
    )


def this_machine() -> str:
    """Return the label of this machine for sessions with everything at its default."""
    machine = local_machine()
    offers = local_offers(machine, None, False)
    stack = probe(sys.executable, CACHE)
    return machine_label(fingerprint(machine, stack, Options().launcher, place(offers)))


def is_without_session(status: int) -> bool:
    """Return whether pytest with this exit status, negative for a signal, did not end a session."""
    return status < 0 or status in NO_SESSION


def measure(stack: Path, quiet: bool) -> RawResult:
    """Measure the throughput of a stack in one session. stack: its interpreter. quiet: pytest's
    output goes to stderr, and not to the caller's stdout.

    Raises UserError if there was no session, or if it measured nothing soundly.
    """
    results = places.MEASURED / stack.absolute().parent.parent.name
    command = [sys.executable, "-m", "pytest", CASES, "--profile", PROFILE]
    command += ["--stack", str(stack), "--results", str(results)]
    before = set(results.glob("runs/*"))
    status = subprocess.run(
        command, cwd=ROOT, stdout=sys.stderr if quiet else None, check=False
    ).returncode
    new = sorted(set(results.glob("runs/*")) - before)
    if is_without_session(status) or not new:
        raise UserError(
            f"nothing was measured of {stack}: {' '.join(command[1:4])} ended with {status}"
        )
    try:
        return extract(new[-1])
    except Refused as error:
        raise UserError(f"nothing was measured of {stack}: {shown(new[-1])}: {error}") from None
