"""Documents of sessions that were measured on given nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hvdperf.files import write_record
from hvdperf.machine.host import Machine
from hvdperf.machine.placement import Offer, Slot, place, replicas_per_node
from hvdperf.machine.stack import Stack
from hvdperf.plan.arms import Schedule
from hvdperf.records.archive import Store
from hvdperf.records.documents import (
    FORMAT,
    SESSION_FILE,
    Asked,
    Case,
    SessionDocument,
    now,
    own_round,
)
from hvdperf.records.fingerprint import Fingerprint
from hvdperf.records.fingerprinting import fingerprint
from hvdperf.records.outcome import Outcome
from hvdperf.verdict import EXIT_STATUS, worst

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
)


def placed(slots: int = 2, slots_per_node: int = 2) -> list[Slot]:
    """Return slots with a core each. slots: their number."""
    cores = tuple(range(slots_per_node))
    return list(
        place([Offer(rank, f"host{rank // slots_per_node}", cores) for rank in range(slots)])
    )


def fingerprint_of(slots: Sequence[Slot]) -> Fingerprint:
    return fingerprint(MACHINE, STACK, "mpirun", slots, {})


def of_the_case(outcome: Outcome) -> Outcome:
    """Return the outcome as it is read back, without what its rounds have of other cases."""
    rounds = tuple(own_round(outcome.comparison, each) for each in outcome.rounds)
    return replace(outcome, rounds=rounds)


def case_of(
    outcome: Outcome, slots: int = 2, slots_per_node: int = 2, session: str = SESSION
) -> Case:
    """Return the document of a case that was measured on that many slots."""
    nodes = placed(slots, slots_per_node)
    world_size = outcome.comparison.world_size
    return Case(
        format=FORMAT,
        session=session,
        written_at=now(),
        fingerprint=fingerprint_of(nodes),
        replicas_per_node=tuple(replicas_per_node(nodes, world_size)),
        name=outcome.comparison.name,
        outcome=of_the_case(outcome),
    )


def session_of_cases(*cases: Case, **other: Any) -> SessionDocument:
    """Return the document of an ended session with these cases."""
    verdicts = {case.name: case.verdict for case in cases}
    document = SessionDocument(
        format=FORMAT,
        session=cases[0].session if cases else SESSION,
        began_at=datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC),
        written_at=now(),
        fingerprint=cases[0].fingerprint if cases else fingerprint_of(placed()),
        profile="smoke",
        seed=1,
        world_sizes=(1, 2),
        oversubscribed_sizes=(),
        launcher="mpirun",
        schedule=Schedule.FRESH,
        against=None,
        changed=(),
        asked=Asked(),
        suite="0.2.0",
        command="pytest perf/",
        label="",
        launched="mpirun",
        hosts=("host0",),
        made_up_data=(),
        exit_status=EXIT_STATUS.get(worst([*verdicts.values()]), 0),
        elapsed_seconds=12.5,
        timed_seconds=3.5,
        budget_spent_seconds=11.0,
        verdicts=verdicts,
    )
    return replace(document, **other)


def write_session(runs: Path, *cases: Case, **other: Any) -> Path:
    """Write an ended session with these cases below runs, and return its directory. other: fields
    of its document that differ."""
    document = session_of_cases(*cases, **other)
    directory = runs / document.session
    directory.mkdir(parents=True)
    store = Store(directory)
    for case in cases:
        store.write(case)
    write_record(directory / SESSION_FILE, document)
    return directory
