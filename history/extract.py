"""From the documents of a session to its raw result: the throughput of Horovod as it is.

Only blocks count in which Horovod trained with everything at its default on the session's own
stack, and only of cases whose evidence is sound. A launch that several cases share counts once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from harness.archive import Case, read_session
from harness.plan import BlockKind, Strategy
from harness.tomlfile import shown
from history.label import machine_label, replica_of
from history.raw import RawResult, Refused, Series, check_releases

# Of an arm, as harness.store writes it: what makes it Horovod as it is.
_AS_IT_IS: Mapping[str, object] = {
    "strategy": Strategy.HOROVOD.value,
    "stack": "",
    "planted": "",
    "exchange": "",
    "passes": 1,
    "learning_rate": "constant",
}


def extract(directory: Path) -> RawResult:
    """The raw result of a session that has ended. directory: results/runs/<session>.

    Raises Refused where it has not ended, had a fault planted, is broken, or has measured no
    throughput; UserError if there is no such directory.
    """
    archive = read_session(directory)
    if archive.session is None:
        why = archive.left_out[0] if archive.left_out else "there is no session.json"
        raise Refused(why)
    if archive.unfinished:
        raise Refused("the session has not ended")
    if archive.session["asked"].get("plant"):
        raise Refused(f"{archive.session['asked']['plant']} was planted into it")
    fingerprint: Mapping[str, Any] = archive.session["fingerprint"]
    launches: dict[tuple[str, str, int], dict[int, float]] = {}
    for case in archive.cases:
        if not case.is_sound:
            continue
        for world_size, number, speed in _speeds(case):
            key = (case.workload.model, replica_of(fingerprint, case.workload), world_size)
            launches.setdefault(key, {})[number] = speed
    if not launches:
        raise Refused(f"{shown(directory)} has no case that measured a throughput soundly")
    result = RawResult(
        session=archive.session["session"],
        measured_at=datetime.fromisoformat(archive.session["written_at"]),
        machine=machine_label(fingerprint),
        fingerprint=fingerprint,
        series=tuple(
            Series(*key, tuple(speed for _, speed in sorted(of_rounds.items())))
            for key, of_rounds in sorted(launches.items())
        ),
    )
    check_releases(result)
    return result


def _speeds(case: Case) -> Iterator[tuple[int, int, float]]:
    """World size, round, and samples per second of each launch that counts."""
    for measured in case.document["rounds"]:
        for launch in measured["launches"]:
            if any(launch[name] != value for name, value in _AS_IT_IS.items()):
                continue
            speeds = [
                float(block["samples_per_second"])
                for block in launch["blocks"]
                if block["kind"] == BlockKind.FULL.value and block["samples_per_second"]
            ]
            if speeds:
                yield int(launch["world_size"]), int(measured["number"]), median(speeds)
