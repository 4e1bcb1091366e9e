"""Restores an outcome from its document: the inverse of documents.py.

Writing the restored outcome gives the same document again. Numbers that are null become NaN.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from hvdperf.judge.attribution import Blame
from hvdperf.judge.detection import Detection
from hvdperf.judge.outcome import Outcome
from hvdperf.judge.scaling_breakdown import account
from hvdperf.launch.group import GroupFailed, NotStarted
from hvdperf.launch.timestamps import Asked, Mark, Marks
from hvdperf.machine.disturbance import Culprit, Disturbance, Usage
from hvdperf.measure.records import Block, Launch, Round
from hvdperf.plan.arms import SWEEP, Arm, BlockKind, Comparison, Schedule
from hvdperf.plan.collectives import SWEEP_BYTES, Collective, Series, Transfer
from hvdperf.results.archive import Case
from hvdperf.results.documents import Document
from hvdperf.scatter import Noise
from hvdperf.verdict import Judgement, Verdict

# The floats of ranks' reports that may have been NaN.
_FLOATS = ("seconds", "loss")

Reports = Sequence[Mapping[str, Any]]


def recall(comparison: Comparison, case: Case) -> Outcome:
    """Return the outcome of a comparison from its case."""
    document = case.document
    verdict, failure = document["verdict"], document["failure"]
    rounds = tuple(_round(measured, comparison) for measured in document["rounds"])
    return Outcome(
        comparison,
        Judgement(
            case.verdict,
            case.figure,
            case.rule,
            verdict["rounds"],
            case.reason,
            # Documents of older sessions have neither `fail_alpha` nor `early`.
            verdict.get("fail_alpha"),
            Noise(**verdict["early"]) if verdict.get("early") else None,
        ),
        observations=tuple(map(_float, document["observations"])),
        rounds=rounds,
        failure=None
        if failure is None
        else (NotStarted if case.verdict is Verdict.NOT_RUN else GroupFailed)(
            failure["arm"],
            failure["rank"],
            failure["phase"],
            failure["cause"],
            failure["stderr_tail"],
        ),
        threshold_line=verdict["threshold_line"],
        account=account(comparison, rounds) if document["account"] else None,
        noticed=_detection(document["noticed"]),
        taken_over=True,
    )


def disturbances(session: Document) -> list[Disturbance]:
    """Return what other programs did in the rounds of a session, from its session.json; [] for
    older sessions, which did not record this."""
    told = session.get("disturbance") or {"rounds": []}
    return [
        Disturbance(
            each["at"],
            Usage(**each["usage"]),
            each["taken_seconds"],
            each["watched_seconds"],
            tuple(Culprit(**{**c, "cores": tuple(c["cores"])}) for c in each["culprits"]),
            each["mhz"],
        )
        for each in told["rounds"]
    ]


def _float(value: float | None) -> float:
    return math.nan if value is None else value


def _detection(document: Document | None) -> Detection | None:
    if document is None:
        return None
    blame = document["blame"]
    return Detection(
        Verdict(document["called"]), Blame(blame["term"], blame["rank"], _float(blame["share"]))
    )


def _round(document: Document, comparison: Comparison) -> Round:
    number = document["number"]
    launches = {
        arm: _launch(launch, arm, number, comparison)
        for arm, launch in zip(comparison.arms, document["launches"], strict=True)
    }
    return Round(number, Schedule(document["schedule"]), launches)


def _launch(document: Document, arm: Arm, number: int, comparison: Comparison) -> Launch:
    return Launch(
        arm,
        number,
        startup_seconds=document["startup_seconds"],
        facts=document["facts"],
        warm_up=[_block(block) for block in document["warm_up"]],
        blocks=[_block(block) for block in document["blocks"]],
        series=[_series(series, comparison) for series in document["series"]],
        run=_reports(document["run"]),
        evidence=document["evidence"],
        correctness=document["correctness"],
        marks=_marks(document["marks"]),
        met_run=_reports(document["met_run"]),
        timeline=document["timeline"],
    )


def _reports(ranks: Reports) -> Reports:
    return [{name: _reported(name, value) for name, value in rank.items()} for rank in ranks]


def _reported(name: str, value: Any) -> Any:
    if name == "curve":
        return [[steps, *map(_float, floats)] for steps, *floats in value]
    return _float(value) if name in _FLOATS else value


def _block(document: Document) -> Block:
    return Block(
        BlockKind(document["kind"]),
        document["turn"],
        document["steps"],
        _reports(document["ranks"]),
        # Older documents have no visit: an arm took its blocks in one place of a turn.
        document.get("visit", 0),
        # Older documents have no CPU usage.
        Usage(**usage) if (usage := document.get("usage")) else None,
    )


def _series(document: Document, comparison: Comparison) -> Series:
    collective, sizes = Collective(document["collective"]), list[int]()
    if comparison.workload == SWEEP:
        # If each rank has a part of the buffer, the ranks exchange equal whole parts, which may be
        # fewer bytes than the nominal size.
        sizes = [min(SWEEP_BYTES, key=lambda size: abs(size - document["bytes"]))]
    return Series(Transfer(collective, tuple(sizes)), document["turn"], document["ranks"])


def _marks(document: Document | None) -> Marks | None:
    if document is None:
        return None
    return Marks(
        document["launched_at"],
        document["ended_at"],
        tuple(tuple(Mark(*mark) for mark in rank) for rank in document["ranks"]),
        tuple(Asked(*asked) for asked in document["asked"]),
    )
