"""The launches of cases, for sections about launches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hvdperf.plan.arms import Schedule
from hvdperf.records.documents import Case
from hvdperf.records.outcome import each_launch
from hvdperf.records.rounds import Launch
from hvdperf.verdict import Verdict

# Verdicts of cases whose evidence is unsound, or that could not be run.
_UNTRUSTED = (Verdict.INVALID, Verdict.NOT_RUN)


@dataclass(frozen=True)
class Started:
    """A launch with its case. case: the first case that uses the launch. alone: whether it started
    with no other launch beside it."""

    case: Case
    alone: bool
    launch: Launch

    @property
    def strategy(self) -> str:
        return self.launch.arm.strategy.spec.name

    @property
    def world_size(self) -> int:
        return self.launch.arm.world_size

    @property
    def arm(self) -> str:
        """Return a name such as `horovod, np 2`, with settings that differ from the workload's."""
        arm, usual = self.launch.arm, self.case.workload
        changed = [arm.exchange] if arm.exchange else []
        if arm.workload.batch != usual.batch:
            changed.append(f"batch {arm.workload.batch}")
        for own, of_case in (
            (arm.workload.precision, usual.precision),
            (arm.workload.learning_rate, usual.learning_rate),
        ):
            if own != of_case:
                changed.append(own)
        if arm.passes > 1:
            changed.append(f"{arm.passes} passes")
        return ", ".join((self.strategy, f"np {self.world_size}", *changed))


def trusted(cases: Iterable[Case]) -> list[Case]:
    """Return the cases without those that are INVALID or NOT RUN, unless only a threshold line was
    missing."""
    return [case for case in cases if case.verdict not in _UNTRUSTED or case.outcome.threshold_line]


def launches(cases: Iterable[Case]) -> list[Started]:
    """Return the launches on the session's own stack without an injected fault, in the order of
    cases, rounds and sides."""
    return [
        Started(case, measured.schedule is not Schedule.ALTERNATE, launch)
        for case, measured, launch in each_launch(cases)
        if not launch.arm.stack and not launch.arm.injected
    ]
