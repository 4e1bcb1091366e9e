"""Injected faults (--inject), and fault cases: the report that the suite must give of a fault."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hvdperf.plan.arms import AA, Arm
from hvdperf.plan.comparisons import Comparison, Question
from hvdperf.verdict import Verdict
from hvdperf.worker.rank_config import FaultConfig

_NUMBERS: Mapping[str, type[int] | type[float]] = {
    "rank": int,
    "world_size": int,
    "factor": float,
    "ms": float,
}


def _number(key: str, value: str) -> float:
    """Parse the number of a key. Raises ValueError with a message that says what to give."""
    try:
        return _NUMBERS[key](value)
    except ValueError:
        kind = "a whole number" if _NUMBERS[key] is int else "a number"
        raise ValueError(f"{key}={value} is not a number; give {kind}, such as {key}=1") from None


@dataclass(frozen=True)
class Fault:
    """An injected fault: something that goes wrong on purpose, on one rank or on all ranks.

    rank: the faulty rank. phase: a Phase (worker/protocol.py). model, world_size: of the arms that
    get the fault; "" and 0 for all. Kinds of one rank:

    raise: the rank raises an error in `phase`. exit: the rank exits in `phase`.
    kill: the rank is killed in `phase`. hang: the rank hangs in `phase`.
    longer: `phase` of the start takes `factor` times as long, and `ms` milliseconds more.
    slow, delay: every step is late by `ms` milliseconds and `factor` - 1 times the step.
    input: the batch of every step is late by `ms` milliseconds and `factor` - 1 times the step.
    busy: another process computes on the rank's cores.
    data: the rank trains on other data.
    stray: the rank's learning rate is `factor` times that of the others.
    leak: the rank keeps a megabyte of every step.
    corrupt: the numbers that the rank hands to a collective operation are off by one.

    Kinds of all ranks:

    nofuse: Horovod fuses no tensors.
    cycle: Horovod collects tensors for 25 ms.
    skip: the first gradient of a step is not exchanged.
    """

    kind: str
    rank: int
    phase: str = "block"
    factor: float = 1.0
    ms: float = 0.0
    model: str = ""
    world_size: int = 0

    # The keys that each kind takes, besides model and world_size.
    KINDS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **dict.fromkeys(("raise", "exit", "kill", "hang"), ("rank", "phase")),
        "longer": ("rank", "phase", "factor", "ms"),
        **dict.fromkeys(("slow", "delay", "input"), ("rank", "factor", "ms")),
        **dict.fromkeys(("busy", "data", "leak", "corrupt"), ("rank",)),
        "stray": ("rank", "factor"),
        **dict.fromkeys(("nofuse", "cycle", "skip"), ()),
    }
    # The values of a kind's keys that are not given.
    DEFAULTS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "longer": {"phase": "trace", "factor": 2.0},
        "slow": {"factor": 2.0},
        "delay": {"ms": 50.0},
        "input": {"ms": 50.0},
        "stray": {"factor": 2.0},
    }

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Parse `slow:rank=1,factor=2`. Raises ValueError with one line that says what is wrong."""
        kind, _, rest = text.partition(":")
        if kind not in cls.KINDS:
            raise ValueError(f"unknown fault {kind!r}; known: {', '.join(cls.KINDS)}")
        given: dict[str, Any] = {}
        for item in filter(None, rest.split(",")):
            key, _, value = item.partition("=")
            known = (*cls.KINDS[kind], "model", "world_size")
            if key not in known:
                raise ValueError(f"unknown key {key!r} of {kind}; known: {', '.join(known)}")
            if key in given:
                raise ValueError(f"{key}= is given twice; give it once")
            given[key] = _number(key, value) if key in _NUMBERS else value
        # A given factor or ms replaces the defaults of both, so that the delay is the given one.
        late = {"factor", "ms"} & set(given)
        defaults = cls.DEFAULTS.get(kind, {})
        values = {k: v for k, v in defaults.items() if not (late and k in ("factor", "ms"))} | given
        if not 0 <= values.get("ms", 0.0) < math.inf:
            raise ValueError(f"ms {values['ms']} is not a delay; give 0 or more")
        if not 1.0 <= values.get("factor", 1.0) < math.inf:
            raise ValueError(
                f"factor {values['factor']} is below 1 or not a number; give 1 or more"
            )
        return cls(kind, **{"rank": 0, **values})

    @property
    def changes_nothing(self) -> bool:
        """True if the kind takes a factor or ms, and the values given cause no change."""
        by_how_much = {"factor", "ms"} & set(self.KINDS[self.kind])
        return bool(by_how_much) and self.factor == 1.0 and self.ms == 0.0

    @property
    def is_of_exchange(self) -> bool:
        """True if the fault is in the exchange of gradients by all ranks, and not in one rank."""
        return "rank" not in self.KINDS[self.kind]

    def strikes(self, arm: Arm) -> bool:
        """Return whether the fault is injected into that arm.

        The arm must run Horovod on the session's own stack, and have the named model and world
        size, if these are given. The arm of a fault case has its own fault instead.
        """
        return (
            arm.strategy.spec.horovod
            and not arm.stack
            and arm.injected in ("", AA)
            and self.model in ("", arm.workload.model)
            and self.world_size in (0, arm.world_size)
        )

    def as_config(self) -> FaultConfig:
        """Return the fault as the ranks get it."""
        return FaultConfig(self.kind, self.rank, self.phase, self.factor, self.ms)


@dataclass(frozen=True)
class FaultCase:
    """A fault, and the report that the suite must give of it.

    fault: as --inject takes it; "" for none. question: the question that has to notice it. verdict:
    the expected verdict. term: the expected attribution of a step or a start that takes longer, as
    a term (hvdperf.plan.terms), or "memory"; "" if nothing takes longer. rank: the expected rank;
    None for all ranks. says: a text that the reason of an expected INVALID must contain.
    """

    fault: str
    question: Question = Question.WEAK_SCALING
    verdict: Verdict = Verdict.FAIL
    term: str = ""
    rank: int | None = 1
    says: str = ""

    @property
    def injected(self) -> Fault | None:
        return Fault.parse(self.fault) if self.fault else None


# Fault cases by name. A name never gets another fault, because sessions are counted by name
# (records/detections.py).
TRIALS = {
    AA: FaultCase("", verdict=Verdict.PASS, rank=None),
    "slow5": FaultCase("slow:rank=1,factor=1.05", term="between steps"),
    "slow10": FaultCase("slow:rank=1,factor=1.10", term="between steps"),
    "slow15": FaultCase("slow:rank=1,factor=1.15", term="between steps"),
    "late15": FaultCase("input:rank=1,factor=1.15", term="input wait"),
    "busy": FaultCase("busy:rank=1", term="compute"),
    "nofuse": FaultCase("nofuse", term="exposed communication", rank=None),
    "cycle": FaultCase("cycle", term="exposed communication", rank=None),
    "skip": FaultCase("skip", verdict=Verdict.INVALID, rank=None, says="+skip: replicas differ"),
    "data": FaultCase(
        "data:rank=1", verdict=Verdict.INVALID, says="+data: rank 1 reads other data"
    ),
    "leak": FaultCase("leak:rank=1", Question.MEMORY, term="memory"),
    "trace": FaultCase(
        "longer:rank=1,phase=trace,factor=1.15", Question.STARTUP_TRACE, term="trace"
    ),
    "long50": FaultCase(
        "longer:rank=1,phase=trace,factor=1.5", Question.STARTUP_TRACE, term="trace"
    ),
    "bcast": FaultCase(
        "longer:rank=1,phase=broadcast,factor=1.5", Question.STARTUP_BROADCAST, term="broadcast"
    ),
}


def trial_of(comparison: Comparison) -> FaultCase | None:
    """Return the fault case of a comparison, or None if it is no fault case."""
    return TRIALS[comparison.candidate.arm.injected] if comparison.is_trial else None
