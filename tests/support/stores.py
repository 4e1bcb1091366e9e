"""A store of a session that was measured on given nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hvdperf.machine.host import Machine
from hvdperf.machine.placement import Offer, place
from hvdperf.machine.stack import Stack
from hvdperf.plan.arms import Schedule
from hvdperf.results.documents import Store
from hvdperf.results.fingerprint import fingerprint
from hvdperf.session.terminal.cases import EXIT_STATUS
from hvdperf.verdict import Verdict

# The fields that documents of older sessions lack.
LATER = {"visit", "usage", "disturbance", "fail_alpha", "early"}
SESSION = "20260131T235959Z-4711"
# A machine and a stack of which as little is known as possible.
MACHINE = Machine("host", (0, 1))
STACK = Stack(
    interpreter="python",
    mpirun="mpirun",
    mpirun_version="mpirun (Open MPI) 4.1.8",
    python="3.11.7",
    tensorflow="2.18.1",
    tensorflow_git="v2.18.0-14-gcb64295ec73",
    keras="3.15.1",
    numpy="2.0.2",
    horovod="0.28.1",
    horovod_flags=("mpi", "gloo"),
    packages_sha256="0072b31e",
    settings={},
)


def make_store(
    runs: Path, slots: int = 2, slots_per_node: int = 2, session: str = SESSION
) -> Store:
    """Return the store of a session below runs. slots: their number, with a core each."""
    cores = tuple(range(slots_per_node))
    offers = [Offer(rank, f"host{rank // slots_per_node}", cores) for rank in range(slots)]
    placed = place(offers)
    directory = runs / session
    directory.mkdir(parents=True)
    return Store(directory, session, fingerprint(MACHINE, STACK, "mpirun", placed, {}), placed)


def session_document(case: str, verdict: Verdict) -> dict[str, Any]:
    """Return what a session writes of itself, with one case."""
    return {
        "profile": "smoke",
        "seed": 1,
        "world_sizes": [1, 2],
        "oversubscribed_sizes": [],
        "launcher": "mpirun",
        "schedule": Schedule.FRESH,
        "exit_status": EXIT_STATUS[verdict],
        "elapsed_seconds": 12.5,
        "timed_seconds": 3.5,
        "against": None,
        "changed": [],
        "asked": {"plant": ""},
        "budget_spent_seconds": 11.0,
        "resumed_at": [],
        "taken_over": [],
        "verdicts": {case: verdict},
    }
