"""Extracts a session's raw result from its documents: throughput of Horovod with its defaults."""

from __future__ import annotations

from pathlib import Path

from hvdperf.history.label import machine_label, replica_of
from hvdperf.history.raw import FORMAT, RawResult, Refused, Series, check_releases
from hvdperf.paths import shown
from hvdperf.results.archive import read_session
from hvdperf.results.throughput import throughputs


def extract(directory: Path) -> RawResult:
    """Return the raw result of a session that has ended. directory: results/runs/<session>.

    Raises Refused if the session has not ended, had a fault injected, is broken, has measured no
    throughput, or measured an unknown release; UserError if there is no such directory.
    """
    archive = read_session(directory)
    if archive.session is None:
        why = archive.left_out[0] if archive.left_out else "there is no session.json"
        raise Refused(why)
    if archive.unfinished:
        raise Refused("the session has not ended")
    if archive.session.asked.get("plant"):
        raise Refused(f"it has an injected fault: {archive.session.asked['plant']}")
    fingerprint = archive.session.fingerprint
    if not fingerprint["rank_cores"]:
        raise Refused("its fingerprint has no cores of ranks")
    launches = {
        (workload.model, replica_of(fingerprint, workload), world_size): speeds
        for (workload, world_size), speeds in throughputs(archive.cases).items()
    }
    if not launches:
        raise Refused(f"{shown(directory)} has no valid case that measured a throughput")
    result = RawResult(
        format=FORMAT,
        session=archive.session.session,
        measured_at=archive.session.written_at,
        machine=machine_label(fingerprint),
        fingerprint=fingerprint,
        series=tuple(Series(*key, speeds) for key, speeds in sorted(launches.items())),
    )
    check_releases(result)
    return result
