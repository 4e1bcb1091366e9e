"""The history: throughput by release, one small document a session.

The files results/history/<machine>/<session>.json are tracked by git and never change. All other
files of the history are generated from them, and their places are here. asv shows them, and lists
the releases that look slower. A machine that differs between sessions looks like a change, too;
`hvdperf bisect` separates the two.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from datetime import date
from enum import Enum
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from hvdperf.errors import UserError
from hvdperf.json_records import Unreadable
from hvdperf.machine.host import parse_cpu_list
from hvdperf.paths import ROOT, shown
from hvdperf.plan.arms import Workload
from hvdperf.records.archive import read_document, read_session, results_of, summary_of
from hvdperf.records.documents import SUMMARY_FORMAT, Summary
from hvdperf.records.fingerprinting import METHOD
from hvdperf.records.outcome import Measure
from hvdperf.timeline import store
from hvdperf.toml_file import as_record, read_toml

_FILE = Path(__file__).with_name("releases.toml")
# Fields that a release of Horovod or TensorFlow changes. packages_sha256 and python belong to the
# stack, too; both are in every raw result.
STACK = (
    *("python", "tensorflow", "tensorflow_git", "keras", "numpy", "cuda", "cudnn", "tf32"),
    *("horovod", "horovod_built_with", "nccl", "packages_sha256", "horovod_sha256"),
)
# Fields that each series records.
_OF_SERIES = ("data_sets", "rank_cores")
_DIGITS = 6


class Axis(Enum):
    """The package whose releases are on the x-axis; each version of the other package is a line."""

    HOROVOD = "horovod"
    TENSORFLOW = "tensorflow"

    @property
    def other(self) -> Axis:
        return Axis.TENSORFLOW if self is Axis.HOROVOD else Axis.HOROVOD


# Everything in .asv/ can be generated again. The files in results/ are tracked by git, except the
# sessions in results/runs/.
SESSIONS = ROOT / "results" / "runs"
RAW = ROOT / "results" / "history"
GENERATED = ROOT / ".asv"
# Results of the sessions that a back-fill or `asv run` starts.
MEASURED = GENERATED / "sessions"

CONFIGURATION = {
    Axis.HOROVOD: ROOT / "asv.conf.json",
    Axis.TENSORFLOW: ROOT / "hvdperf" / "timeline" / "asv" / "by_tensorflow.conf.json",
}
RESULTS = {
    Axis.HOROVOD: ROOT / "results" / "asv",
    Axis.TENSORFLOW: ROOT / "results" / "asv-tensorflow",
}
SITE = GENERATED / "site"
HTML = {axis: SITE / axis.value for axis in Axis}


@cache
def releases(package: Axis) -> Mapping[str, date]:
    """Return the day of each known release of a package, in UTC, by version, oldest first."""
    return as_record(_FILE, read_toml(_FILE), dict[Axis, dict[str, date]])[package]


@cache
def order(package: Axis) -> dict[str, int]:
    """Return the position of each version on the axis, from 0 for the oldest."""
    return {version: place for place, version in enumerate(releases(package))}


def check_known(package: Axis, option: str, version: str) -> None:
    """Raise UserError for a release that is not known. option: the one that gave the version."""
    if version not in order(package):
        raise UserError(
            f"{option} {version}: known releases of {package.value} are "
            f"{', '.join(order(package))} (hvdperf/timeline/releases.toml)"
        )


def machine_label(fingerprint: Mapping[str, Any]) -> str:
    """Return a short name for a machine with its settings, under which figures are comparable, such
    as `amd-epyc-2-cores-24-gib-3fa9c1`: words for people, and six hexadecimal digits of a hash of
    all fields, also of those that the words leave out.

    It is made of the fingerprint without the stack, which the history is about, and without what
    each series records (data, cores of a replica)."""
    fields = {k: value for k, value in fingerprint.items() if k not in (*STACK, *_OF_SERIES)}
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:_DIGITS]
    gpus = fingerprint["gpus"]
    models = "-".join(fingerprint.get("gpu_model") or ["gpu"])
    cpu = "{cpu_model} {cores} cores {memory_gib} gib".format_map(fingerprint)
    device = f"{gpus} {models}" if gpus else cpu
    words = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")
    return f"{words}-{digest}"


def replica_label(identity: str, cores: int, on_gpu: bool, workload: Workload) -> str:
    """Return what each replica trains on, such as `cifar10 f133a46ad75d38ed, size 32, batch 32,
    float32, 1 core`; size is pixels a side, or words a sequence. identity: text that distinguishes
    the data set from other copies, "" for none."""
    # The digest is the last part of the identity: "6 files, 18.4 MB, f133a46ad75d38ed".
    digest = identity.rpartition(", ")[2]
    parts = (
        f"{workload.dataset} {digest}".strip(),
        f"size {workload.input_size}",
        f"batch {workload.batch}",
        workload.precision,
        "1 GPU" if on_gpu else f"{cores} core" if cores == 1 else f"{cores} cores",
    )
    return ", ".join(parts)


def replica_of(fingerprint: Mapping[str, Any], workload: Workload) -> str:
    """Return the replica_label of a workload, from the fingerprint of a session."""
    identities = dict(line.split(": ", 1) for line in fingerprint["data_sets"])
    # The cores of rank 0, since every rank has as many: "0: 0-1,8" are three.
    cores = parse_cpu_list(fingerprint["rank_cores"][0].partition(": ")[2])
    identity = identities.get(workload.dataset, "")
    return replica_label(identity, len(cores), fingerprint["gpus"] > 0, workload)


class RawResult(Summary):
    """The summary of a session with one replica_label for each of its results."""

    @cached_property
    def machine(self) -> str:
        return machine_label(self.fingerprint)

    def version(self, package: Axis) -> str:
        """Return the installed version of Horovod or TensorFlow."""
        fingerprint: Mapping[str, object] = self.fingerprint
        return str(fingerprint[package.value])

    def build(self, results: Iterable[RawResult]) -> str:
        """Return the beginning of the hash of Horovod's files if the first result of the same
        releases that has one is of another build; else "". results: oldest first."""
        alike = (r for r in results if all(r.version(a) == self.version(a) for a in Axis))
        known = (each for r in alike if (each := r.fingerprint.get("horovod_sha256")))
        own = self.fingerprint.get("horovod_sha256", "")
        return "" if own in ("", next(known, "")) else own[:_DIGITS]


class Refused(Unreadable):
    """A document that does not belong in the history; the message says why."""


def extract(directory: Path) -> RawResult:
    """Return the raw result of a session that has ended. directory: results/runs/<session>.

    Raises Refused if the session has not ended, had a fault injected, has measured no throughput,
    or measured an unknown release; UserError if there is no such session.
    """
    archive = read_session(directory)
    session = archive.session
    if archive.unfinished:
        raise Refused("the session has not ended")
    if session.asked.inject:
        raise Refused(f"it has an injected fault: {session.asked.inject}")
    if not session.fingerprint["rank_cores"]:
        raise Refused("its fingerprint has no cores of ranks")
    found = results_of(archive, Measure.SPEED, partial(replica_of, session.fingerprint))
    if not (results := tuple(sorted(found, key=lambda each: each.key))):
        raise Refused(f"{shown(directory)} has no valid case that measured a throughput")
    # Hosts, and what else is known of the session, are nobody's affair.
    own = {"hosts": (), "asked": {}, "cases": (), "disturbed": "", "results": results}
    result = RawResult(**{**vars(summary_of(archive)), **own})
    _check_releases(result)
    return result


def path_of(root: Path, result: RawResult) -> Path:
    """Return the file of a raw result. root: results/history."""
    return root / result.machine / f"{result.session}.json"


def keep(result: RawResult, root: Path) -> bool:
    """Write a raw result unless its session is there; return whether it was new. Raises UserError
    if it cannot be written."""
    if any(root.glob(f"*/{result.session}.json")):
        return False
    store.write(path_of(root, result), result)
    return True


def keep_sessions(sessions: Path, root: Path) -> list[str]:
    """Keep the throughput of every session below `sessions` as a raw result below `root`. Return
    one line for each session that is new, or that has no throughput to keep."""
    told = []
    for directory in sorted(path for path in sessions.glob("*") if path.is_dir()):
        try:
            result = extract(directory)
        except (Refused, UserError) as error:
            told.append(f"{shown(directory)}: not in the history: {error}")
            continue
        if keep(result, root):
            told.append(f"{shown(directory)}: {len(result.results)} series of {result.machine}")
    return told


def read_history(root: Path) -> tuple[list[RawResult], list[str]]:
    """Return all raw results below root, by machine and session, and one line for each file that is
    left out. A document is taken whole, or not at all."""
    machines: dict[str, str] = {}

    def read(path: Path) -> RawResult:
        result = read_raw(path)
        if machines.setdefault(result.session, result.machine) != result.machine:
            raise Refused(f"a duplicate: {machines[result.session]} has that session")
        return result

    return store.read_all(store.documents(root), read)


def read_raw(path: Path) -> RawResult:
    """Read one raw result. Raises Unreadable if it is broken or incomplete, holds a series twice,
    or is of another machine or session than its path, of another method, or of an unknown
    release."""
    result = read_document(path, RawResult, SUMMARY_FORMAT)
    if result.fingerprint["method"] != METHOD:
        raise Refused(f"measured by method {result.fingerprint['method']}, not by {METHOD}")
    if result.machine != path.parent.name:
        raise Refused(
            f"a foreign fingerprint: it is of machine {result.machine}, not of {path.parent.name}"
        )
    if path.stem != result.session:
        raise Refused(f"not the file of its session, {result.session}")
    keys = [each.key for each in result.results]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise Refused(f"a duplicate: {twice[0]} at {twice[2]} replicas stands in it twice")
    _check_releases(result)
    return result


def _check_releases(result: RawResult) -> None:
    """Raise Refused for a version that is not in releases.toml."""
    for package in Axis:
        if result.version(package) not in order(package):
            raise Refused(
                f"{package.value} {result.version(package)} is not in "
                "hvdperf/timeline/releases.toml; append it there, with its date"
            )
