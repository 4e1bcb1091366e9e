"""The launches behind cases, each once, because the cases of one workload share launches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hvdperf.plan.arms import Schedule
from hvdperf.results.archive import Case
from hvdperf.verdict import Verdict

# Verdicts of cases whose evidence is unsound, or that could not be run.
_NOT_TO_BE_USED = (Verdict.INVALID, Verdict.NOT_RUN)
# Fields that distinguish the arms of a workload, as hvdperf.results.documents writes them.
_ARM = ("strategy", "world_size", "exchange", "passes", "batch", "precision", "learning_rate")


@dataclass(frozen=True)
class Started:
    """A launch as its document describes it. case: the first case that rests on the launch. round:
    the number of its round. alone: whether no other launch started beside it."""

    case: Case
    round: int
    alone: bool
    document: Mapping[str, Any]

    @property
    def strategy(self) -> str:
        return str(self.document["strategy"])

    @property
    def world_size(self) -> int:
        return int(self.document["world_size"])

    @property
    def arm(self) -> str:
        """Return a name such as `horovod, np 2`, with settings that differ from the workload's."""
        plain = {
            "exchange": "",
            "batch": self.case.workload.batch,
            "precision": self.case.workload.precision,
            "learning_rate": self.case.workload.learning_rate,
        }
        changed = [
            f"batch {self.document[key]}" if key == "batch" else str(self.document[key])
            for key, value in plain.items()
            if self.document[key] != value
        ]
        passes = int(self.document["passes"])
        if passes > 1:
            changed.append(f"{passes} passes")
        return ", ".join((self.strategy, f"np {self.world_size}", *changed))


def trusted(cases: Iterable[Case]) -> list[Case]:
    """Return the cases without those that are INVALID or NOT RUN, unless only a threshold line was
    missing."""
    return [
        case
        for case in cases
        if case.verdict not in _NOT_TO_BE_USED or case.document["verdict"]["threshold_line"]
    ]


def launches(cases: Iterable[Case]) -> list[Started]:
    """Return the launches on the session's own stack without an injected fault, in the order of
    cases, rounds and sides."""
    found: dict[tuple[object, ...], Started] = {}
    for case in cases:
        for measured in case.document["rounds"]:
            beside = measured["schedule"] == Schedule.ALTERNATE.value
            for launch in measured["launches"]:
                if not launch["stack"] and not launch["planted"]:
                    started = Started(case, int(measured["number"]), not beside, launch)
                    found.setdefault(_identity(started), started)
    return list(found.values())


def _identity(started: Started) -> tuple[object, ...]:
    case = started.case
    trained = case.workload
    return (
        case.session,
        *(trained.model, trained.dataset, trained.input_size, trained.batch),
        *(trained.optimizer, trained.precision, trained.learning_rate),
        case.round_group,
        started.round,
        *(started.document[key] for key in _ARM),
    )
