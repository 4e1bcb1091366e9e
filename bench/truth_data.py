"""The data set of the truth table: sessions with planted faults, as small documents.

A recording is one network of one session of the profile `truth`: in every round a healthy arm, a
second healthy one, and an arm for each fault, side by side. It holds every step of every rank, and
names neither hosts nor paths. results/truth/README.md explains its fields.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hvdperf.errors import UserError
from hvdperf.files import write_whole
from hvdperf.json_records import Positive, Unreadable, convert, plain
from hvdperf.paths import ROOT, shown
from hvdperf.plan.arms import AA, Arm, BlockKind
from hvdperf.plan.questions import FAULT_CASES, Fault
from hvdperf.records.archive import Archive, read_session
from hvdperf.records.rounds import Block, Launch, Round

DATA = ROOT / "results" / "truth"
ENDING = ".json.xz"
FORMAT = 1
LICENSE = "CC-BY-4.0"
# The arms without a fault: the one that all others are compared with, and one as good.
NONE, SAME = "none", AA
# With fewer rounds, a rule that needs several would only see the same ones again.
FEWEST_ROUNDS = 12
# Times are kept to a microsecond; a step takes milliseconds.
DIGITS = 6
# Fields of blocks, and of the reports of their ranks, that are the same in all of them, or follow
# from others: they are not kept.
_NOT_KEPT = ("kind", "samples", "loss", "not_finite_at", "resumed")
_MACHINE = ("cpu_model", "cores", "memory_gib", "smt", "kernel", "container", "rank_cores")
_STACK = ("python", "tensorflow", "keras", "numpy", "horovod", "mpi_library", "launcher")


@dataclass(frozen=True)
class Planted:
    """What was planted into an arm. kind: as --inject takes it; "" for nothing. rank: None for all
    ranks. factor: 1.05 delays a rank by 5 % of its step; None where a size has no meaning."""

    kind: str = ""
    rank: int | None = None
    factor: float | None = None


@dataclass(frozen=True)
class Run:
    """One launch of an arm. start_seconds: the phases of its start on its slowest rank, and its
    warm-up. blocks: the timed ones, of whole steps."""

    start_seconds: float
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Recording:
    """All rounds of one network of one session.

    session: when it began. elapsed_seconds: of the whole session. launches: their number in the
    whole session. arms: what was planted, by arm. rounds: in the order in which they were measured;
    each has the runs of its arms, which lived side by side.
    """

    format: Positive
    license: str
    session: str
    suite: str
    network: str
    dataset: str
    batch: Positive
    machine: Mapping[str, Any]
    stack: Mapping[str, Any]
    elapsed_seconds: float
    launches: Positive
    arms: Mapping[str, Planted]
    rounds: Sequence[Mapping[str, Run]]

    @property
    def name(self) -> str:
        return f"{self.session}-{self.network}"


# From sessions ----------------------------------------------------------------------------------


def recordings(archive: Archive) -> list[Recording]:
    """Return the recordings of a session, one for each of its networks that had faults. Raises
    UserError if the session has not ended, has too few rounds, or if no fault was planted."""
    session, place = archive.session, shown(archive.directory)
    if session is None or archive.unfinished:
        raise UserError(archive.unfinished or archive.why_no_session)
    facts: Mapping[str, Any] = session.fingerprint
    found = []
    for group, rounds in archive.rounds.items():
        arms = _arms(rounds)
        if not any(arm.injected for arm in arms):
            continue
        whole = [
            {arm.injected or NONE: _run(rounds[number].of(arm)) for arm in arms}
            for number in sorted(rounds)
            if all(rounds[number].has(arm) and rounds[number].of(arm).blocks for arm in arms)
        ]
        if len(whole) < FEWEST_ROUNDS:
            raise UserError(
                f"{place}: {group.workload.model} has {len(whole)} whole rounds, fewer than "
                f"{FEWEST_ROUNDS}"
            )
        recording = Recording(
            FORMAT,
            LICENSE,
            session.session.rpartition("-")[0],
            session.suite,
            group.workload.model,
            group.workload.dataset,
            group.workload.batch,
            {key: facts[key] for key in _MACHINE},
            {key: facts[key] for key in _STACK},
            session.elapsed_seconds,
            sum(len(each.launches) for of in archive.rounds.values() for each in of.values()),
            {arm.injected or NONE: _planted(arm.injected) for arm in arms},
            whole,
        )
        found.append(recording)
    if not found:
        raise UserError(f"{place}: no fault was planted in its rounds")
    return found


def _arms(rounds: Mapping[int, Round]) -> list[Arm]:
    """Return the arms of the most ranks, the healthy one first."""
    arms = {launch.arm for each in rounds.values() for launch in each.launches}
    most = max((arm.world_size for arm in arms), default=0)
    return sorted((arm for arm in arms if arm.world_size == most), key=lambda arm: arm.injected)


def _planted(name: str) -> Planted:
    """Return what was planted into an arm with a fault, or that stands for one without."""
    text = FAULT_CASES[name].fault if name else ""
    if not text:
        return Planted()
    fault = Fault.parse(text)
    has = Fault.KINDS[fault.kind]
    rank = fault.rank if "rank" in has else None
    return Planted(fault.kind, rank, fault.factor if "factor" in has else None)


def _run(launch: Launch) -> Run:
    start = max(sum(phases.values()) for phases in launch.startup_seconds)
    warm_up = sum(block.seconds for block in launch.warm_up)
    return Run(start + warm_up, launch.of_kind(BlockKind.FULL))


# Files ------------------------------------------------------------------------------------------


def packed(recording: Recording) -> bytes:
    """Return the file of a recording."""
    value = plain(recording)
    for block in _blocks(value):
        for record in (block, *block["ranks"]):
            for name in _NOT_KEPT:
                record.pop(name, None)
    text = msgspec.json.encode(_rounded(value))
    return lzma.compress(text + b"\n", preset=9 | lzma.PRESET_EXTREME)


def add(session: Path, data: Path) -> list[str]:
    """Add a session to the data set, and return the names of its recordings. session: its
    directory, such as results/runs/20260131T235959Z-4711. Raises UserError and OSError."""
    found = recordings(read_session(session))
    data.mkdir(parents=True, exist_ok=True)
    for recording in found:
        write_whole(data / f"{recording.name}{ENDING}", packed(recording))
    return [recording.name for recording in found]


def read(data: Path) -> list[Recording]:
    """Return all recordings of a data set, in the order of their names. Raises UserError."""
    paths, found = sorted(data.glob(f"*{ENDING}")), []
    if not paths:
        raise UserError(f"{shown(data)}: there is no recording in it")
    for path in paths:
        try:
            value = json.loads(lzma.decompress(path.read_bytes()))
            for block in _blocks(value):
                block["kind"] = BlockKind.FULL.value
                for rank in block["ranks"]:
                    rank |= {"samples": block["steps"], "loss": None}
            found.append(convert(value, Recording))
        except (lzma.LZMAError, Unreadable, OSError, ValueError, TypeError, LookupError) as error:
            raise UserError(f"{shown(path)}: {error}") from None
    return found


def _blocks(recording: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the blocks of a recording in plain dictionaries and lists."""
    for of_round in recording["rounds"]:
        for run in of_round.values():
            yield from run["blocks"]


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return list(map(_rounded, value)) if isinstance(value, list) else value
