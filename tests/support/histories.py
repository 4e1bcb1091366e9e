"""Raw results that sessions on one machine would have left if stacks had run at given speeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from hvdperf.machine.placement import Offer, place
from hvdperf.records.documents import SUMMARY_FORMAT, Kind, Result
from hvdperf.records.fingerprint import Fingerprint
from hvdperf.records.fingerprinting import fingerprint
from hvdperf.records.outcome import Measure
from hvdperf.timeline.history import RawResult, machine_label, path_of
from hvdperf.timeline.store import write
from tests.support.stores import MACHINE, STACK

SLOTS = place([Offer(0, "host", (0,)), Offer(1, "host", (1,))])
FACTS = {
    **fingerprint(MACHINE, STACK, "mpirun", SLOTS),
    "cpu_model": "AMD EPYC",
    "memory_gib": 24,
    "kernel": "6.1.0",
}
MACHINE_LABEL = machine_label(FACTS)
REPLICA = "cifar10 0f3a5c7e9b1d2f48, size 32, batch 32, float32, 1 core"
BEGAN = datetime(2026, 1, 31, 12, tzinfo=UTC)


def raw_result(
    horovod: str = "0.28.1",
    tensorflow: str = "2.18.1",
    speeds: Mapping[tuple[str, int], Sequence[float]] | None = None,
    number: int = 0,
    **metadata: object,
) -> RawResult:
    """Return a raw result. speeds: samples per second of each launch, by network and world size.
    number: of the session, an hour after the one before."""
    chosen = {("vgg_16_s", 1): [100.0, 101.0, 99.0]} if speeds is None else speeds
    told = cast(Fingerprint, {**FACTS, "horovod": horovod, "tensorflow": tensorflow, **metadata})
    at = BEGAN + timedelta(hours=number)
    return RawResult(
        format=SUMMARY_FORMAT,
        session=f"{at:%Y%m%dT%H%M%SZ}-4711",
        written_at=at,
        kind=Kind.OWN,
        exit_status=0,
        minutes=1.0,
        hosts=(),
        fingerprint=told,
        asked={},
        cases=(),
        results=tuple(
            Result(Measure.SPEED, model, world_size, tuple(figures), REPLICA)
            for (model, world_size), figures in chosen.items()
        ),
    )


def written(root: Path, result: RawResult) -> Path:
    """Write a raw result below root; return its file."""
    return write(path_of(root, result), result)
