"""Measures one stack: the figures of a back-fill, and of `asv run`."""

from __future__ import annotations

import sys
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.machine.host import local_machine
from hvdperf.machine.placement import is_oversubscribed, local_offers, place
from hvdperf.machine.stack import probe
from hvdperf.paths import CACHE, cases, shown
from hvdperf.plan.options import Options
from hvdperf.plan.session_plan import plan_session
from hvdperf.records.fingerprinting import fingerprint
from hvdperf.timeline import places
from hvdperf.timeline.releases.label import machine_label, replica_label
from hvdperf.timeline.releases.raw import RawResult, Refused, extract
from hvdperf.timeline.sessions import run_session

PROFILE = "history"


def parameters() -> tuple[list[str], list[str], list[int]]:
    """Return the values of asv's parameters: the networks, replicas and world sizes that the
    profile measures on this machine. Raises UserError if this machine cannot measure it."""
    machine = local_machine()
    session_plan = plan_session(Options(profile=PROFILE), machine, local_offers(machine))
    slots = session_plan.slots
    labels = [
        replica_label(
            session_plan.data[workload.dataset].identity,
            len(slots[0].cores),
            bool(machine.gpus),
            workload,
        )
        for workload in session_plan.workloads
    ]
    return (
        [workload.model for workload in session_plan.workloads],
        list(dict.fromkeys(labels)),
        [size for size in session_plan.world_sizes if not is_oversubscribed(slots, size)],
    )


def this_machine() -> str:
    """Return the label of this machine for sessions with everything at its default."""
    machine = local_machine()
    stack = probe(sys.executable, CACHE)
    slots = place(local_offers(machine))
    return machine_label(fingerprint(machine, stack, Options().launcher, slots))


def measure(stack: Path, quiet: bool) -> RawResult:
    """Measure the throughput of a stack in one session. stack: its interpreter. quiet: as in
    `run_session`.

    Raises UserError if there was no session, or if it measured nothing soundly.
    """
    lost = f"nothing was measured of {stack}"
    results = places.MEASURED / stack.absolute().parent.parent.name
    arguments = [*cases(), f"--profile={PROFILE}", f"--stack={stack}"]
    directory = run_session(arguments, results, lost, quiet)
    try:
        return extract(directory)
    except Refused as error:
        raise UserError(f"{lost}: {shown(directory)}: {error}") from None
