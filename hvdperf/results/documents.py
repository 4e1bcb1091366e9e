"""Writes results to disk: a JSON document a case, one a session and a summary, each in one piece.

The documents conform to results/schema/*.json. Figures that do not exist are null, never NaN.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

from hvdperf.files import write_whole
from hvdperf.judge.outcome import Outcome
from hvdperf.judge.scaling_breakdown import ScalingBreakdown
from hvdperf.machine.disturbance import Disturbance, together
from hvdperf.machine.placement import Slot, replicas_per_node
from hvdperf.measure.records import Block, Launch, Round
from hvdperf.plan.arms import Arm, Comparison, Side
from hvdperf.plan.collectives import Series, algbw, busbw
from hvdperf.stats import Interval
from hvdperf.verdict import Band, Ceiling, Floor, Rule, smallest_visible_change

FORMAT = 2
# How many other programs are kept of a round, and of a session: those that used the CPU most.
CULPRITS_KEPT = 5
SESSION_FILE = "session.json"
SUMMARY_FILE = "summary.json"

Document = dict[str, Any]


class Store:
    """Writes the documents of one session into results/runs/<session>/."""

    def __init__(
        self,
        directory: Path,
        session: str,
        fingerprint: Mapping[str, Any],
        slots: Sequence[Slot],
    ) -> None:
        """directory: the session's, which exists. slots: all slots of the session."""
        self.directory = directory
        self._session = session
        self._fingerprint = fingerprint
        self._slots = slots

    def write_case(self, outcome: Outcome) -> Path:
        """Write the document of a case, as far as its outcome is known."""
        document = {
            "format": FORMAT,
            "session": self._session,
            "written_at": now(),
            "fingerprint": dict(self._fingerprint),
            "replicas_per_node": replicas_per_node(self._slots, outcome.comparison.world_size),
            **case_document(outcome),
        }
        return write_json(self.directory / f"{file_name(outcome.comparison)}.json", document)

    def write_session(self, document: Document) -> Path:
        return write_json(
            self.directory / SESSION_FILE,
            {
                "format": FORMAT,
                "session": self._session,
                "written_at": now(),
                "fingerprint": dict(self._fingerprint),
                **document,
            },
        )

    def write_summary(self, document: Document) -> Path:
        """Write the summary of all cases, in one document."""
        return write_json(
            self.directory / SUMMARY_FILE,
            {"format": FORMAT, "session": self._session, "written_at": now(), **document},
        )


def session_name() -> str:
    """Return a name that sorts by time and is unique on this host: 20260131T235959Z-4711."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}"


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def file_name(comparison: Comparison) -> str:
    return f"{comparison.topic}-{comparison.case}"


def write_json(path: Path, document: Document) -> Path:
    """Write a document as JSON. If it cannot be written, raise OSError and leave what was there."""
    return write_whole(path, json.dumps(plain(document), indent=1, allow_nan=False) + "\n")


def plain(value: Any) -> Any:
    """Return a value as JSON has it: enums by value, NaN and infinities as null."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value


def case_document(outcome: Outcome) -> Document:
    """Return everything about a case except where and when it was measured."""
    comparison, judgement, failure = outcome.comparison, outcome.judgement, outcome.failure
    return {
        "case": comparison.name,
        "plan": plan_document(comparison),
        "verdict": {
            "word": judgement.verdict,
            "figure": _interval(judgement.figure),
            "fail_alpha": judgement.fail_alpha,
            "early": None if judgement.early is None else asdict(judgement.early),
            "threshold": _rule(judgement.rule),
            "rounds": judgement.rounds,
            "visible_change": _visible_change(outcome),
            "reason": judgement.reason,
            "threshold_line": outcome.threshold_line,
        },
        "observations": list(outcome.observations),
        "failure": None
        if failure is None
        else {
            "arm": failure.arm,
            "rank": failure.rank,
            "phase": failure.phase,
            "cause": failure.cause,
            "stderr_tail": list(failure.tail),
        },
        "account": _account(outcome.account),
        "noticed": None if outcome.noticed is None else asdict(outcome.noticed),
        "rounds": [_round(measured, outcome.comparison) for measured in outcome.rounds],
    }


def disturbance_document(disturbances: Sequence[Disturbance]) -> Document | None:
    """Return what other programs did to the session's cores, and which programs; None if the CPU
    usage was not read."""
    whole = together(disturbances)
    if whole is None:
        return None
    return {
        "foreign_share": whole.foreign_share,
        "taken_share": whole.taken_share,
        "wait_share": whole.wait_share,
        "steal_share": whole.steal_share,
        "throttled_seconds": whole.usage.throttled_seconds,
        "mhz": whole.mhz,
        "reason": whole.reason() if whole.is_disturbed else "",
        "culprits": [
            {**asdict(culprit), "core_share": whole.core_share(culprit)}
            for culprit in whole.culprits[:CULPRITS_KEPT]
        ],
        "rounds": [
            {**asdict(each), "culprits": [asdict(c) for c in each.culprits[:CULPRITS_KEPT]]}
            for each in disturbances
        ],
    }


def plan_document(comparison: Comparison) -> Document:
    """Return what a comparison asks: its question, workload and sides."""
    return {
        "question": comparison.question,
        "workload": asdict(comparison.workload),
        "world_size": comparison.world_size,
        "collective": comparison.collective,
        "candidate": _side(comparison.candidate),
        "reference": _side(comparison.reference),
        "ideal_ratio": comparison.ideal_ratio,
    }


def _account(account: ScalingBreakdown | None) -> Document | None:
    if account is None:
        return None
    return {
        **asdict(account),
        "hidden_seconds": account.hidden_seconds,
        "explained": account.explained,
    }


def _visible_change(outcome: Outcome) -> float | None:
    """Return the smallest visible change; None if the rounds give no finite interval."""
    figure = outcome.judgement.figure
    visible = math.inf if figure is None else smallest_visible_change(figure)
    return visible if math.isfinite(visible) else None


def _side(side: Side) -> Document:
    return {**_arm(side.arm), "block_kind": side.kind}


def _arm(arm: Arm) -> Document:
    """Return the fields that distinguish an arm from the other arms of its case."""
    return {
        "strategy": arm.strategy,
        "world_size": arm.world_size,
        "stack": arm.stack,
        "planted": arm.planted,
        "exchange": arm.exchange,
        "passes": arm.passes,
        "batch": arm.workload.batch,
        "precision": arm.workload.precision,
        "learning_rate": arm.workload.learning_rate,
    }


def _interval(interval: Interval | None) -> Document | None:
    return None if interval is None else asdict(interval)


def _rule(rule: Rule | None) -> Document | None:
    if isinstance(rule, Floor):
        return {"kind": "floor", **asdict(rule)}
    if isinstance(rule, Band):
        return {"kind": "band", **asdict(rule)}
    if isinstance(rule, Ceiling):
        return {"kind": "ceiling", **asdict(rule)}
    return None


def _round(measured: Round, comparison: Comparison) -> Document:
    return {
        "number": measured.number,
        "schedule": measured.schedule,
        "launches": [_launch(measured.launches[arm], comparison) for arm in comparison.arms],
    }


def _launch(launch: Launch, comparison: Comparison) -> Document:
    return {
        **_arm(launch.arm),
        "startup_seconds": [dict(rank) for rank in launch.startup_seconds],
        "facts": [dict(rank) for rank in launch.facts],
        "warm_up": [_block(block) for block in launch.warm_up],
        "blocks": [_block(block) for block in launch.blocks],
        # A sweep's launches also hold the series of other cases, which are many.
        "series": [
            _series(series, launch.arm.world_size)
            for series in launch.series
            if comparison.collective in (None, series.transfer.collective)
        ],
        "run": [dict(rank) for rank in launch.run],
        "evidence": [dict(rank) for rank in launch.evidence],
        "correctness": [dict(rank) for rank in launch.correctness],
        "marks": None if launch.marks is None else asdict(launch.marks),
        "met_run": [dict(rank) for rank in launch.met_run],
        "timeline": [dict(rank) for rank in launch.timeline],
    }


def _block(block: Block) -> Document:
    return {
        "kind": block.kind,
        "turn": block.turn,
        "visit": block.visit,
        "steps": block.steps,
        "seconds": block.seconds,
        "samples": block.samples,
        "samples_per_second": block.samples_per_second if block.seconds > 0 else None,
        "usage": None if block.usage is None else asdict(block.usage),
        "ranks": [dict(rank) for rank in block.ranks],
    }


def _series(series: Series, world_size: int) -> Document:
    """Return a series with the time and the bandwidths of a typical repeat."""
    collective, size_bytes, seconds = series.transfer.collective, series.size_bytes, series.seconds
    return {
        "collective": collective,
        "turn": series.turn,
        "bytes": size_bytes,
        "seconds": seconds,
        "algbw_gb_per_s": algbw(size_bytes, seconds),
        "busbw_gb_per_s": busbw(collective, world_size, size_bytes, seconds),
        "ranks": [dict(rank) for rank in series.ranks],
    }
