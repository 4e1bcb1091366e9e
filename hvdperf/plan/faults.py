"""Faults that a user plants to see whether the suite notices (--plant)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from hvdperf.plan.arms import TWIN, Arm, Strategy

_NUMBERS: Mapping[str, type[int] | type[float]] = {
    "rank": int,
    "world_size": int,
    "factor": float,
    "ms": float,
}


def _number(key: str, value: str) -> float:
    """Raises ValueError, which says what to give."""
    try:
        return _NUMBERS[key](value)
    except ValueError:
        kind = "a whole number" if _NUMBERS[key] is int else "a number"
        raise ValueError(f"{key}={value} is no number; give {kind}, such as {key}=1") from None


@dataclass(frozen=True)
class Fault:
    """Something that one rank does wrong on purpose, or all of them do, to see whether the suite
    notices.

    kind: raise, exit, kill or hang, in the given Phase (worker/protocol.py); longer: that phase of
    the start takes `factor` times as long; slow, delay, input: every step, or its batch, is late by
    `ms` milliseconds and `factor` - 1 times the step; busy: a process beside it computes on its
    core; data: it trains on other data; stray: its learning rate is `factor` times the others';
    leak: every step keeps a megabyte; corrupt: what it hands to a collective operation is off by
    one. Of all ranks: nofuse: Horovod fuses no tensors; cycle: it collects them for 25 ms; skip:
    the first gradient of a step is not exchanged.
    """

    kind: str
    rank: int
    phase: str = "block"
    factor: float = 1.0
    ms: float = 0.0
    model: str = ""
    world_size: int = 0

    # What may be said of each, besides which model and which world size is meant.
    KINDS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **dict.fromkeys(("raise", "exit", "kill", "hang"), ("rank", "phase")),
        "longer": ("rank", "phase", "factor", "ms"),
        **dict.fromkeys(("slow", "delay", "input"), ("rank", "factor", "ms")),
        **dict.fromkeys(("busy", "data", "leak", "corrupt"), ("rank",)),
        "stray": ("rank", "factor"),
        **dict.fromkeys(("nofuse", "cycle", "skip"), ()),
    }
    # What a kind does where nothing else is said.
    DEFAULTS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "longer": {"phase": "trace", "factor": 2.0},
        "slow": {"factor": 2.0},
        "delay": {"ms": 50.0},
        "input": {"ms": 50.0},
        "stray": {"factor": 2.0},
    }

    @classmethod
    def parse(cls, text: str) -> Fault:
        """From `slow:rank=1,factor=2`. Raises ValueError with one line that says what is wrong."""
        kind, _, rest = text.partition(":")
        if kind not in cls.KINDS:
            raise ValueError(f"unknown fault {kind!r}; known: {', '.join(cls.KINDS)}")
        given: dict[str, Any] = {}
        for item in filter(None, rest.split(",")):
            key, _, value = item.partition("=")
            known = (*cls.KINDS[kind], "model", "world_size")
            if key not in known:
                raise ValueError(f"unknown key {key!r} of {kind}; known: {', '.join(known)}")
            given[key] = _number(key, value) if key in _NUMBERS else value
        # A lateness that is given is all there is of it.
        late = {"factor", "ms"} & set(given)
        defaults = cls.DEFAULTS.get(kind, {})
        values = {k: v for k, v in defaults.items() if not (late and k in ("factor", "ms"))} | given
        if not 0 <= values.get("ms", 0.0) < math.inf:
            raise ValueError(f"ms {values['ms']} is no delay; give 0 or more")
        if not 1.0 <= values.get("factor", 1.0) < math.inf:
            raise ValueError(f"factor {values['factor']} is below 1 or no number; give 1 or more")
        return cls(kind, **{"rank": 0, **values})

    @property
    def changes_nothing(self) -> bool:
        """Whether what should make it late, or its learning rate another, does not."""
        by_how_much = {"factor", "ms"} & set(self.KINDS[self.kind])
        return bool(by_how_much) and self.factor == 1.0 and self.ms == 0.0

    @property
    def is_of_exchange(self) -> bool:
        """Whether it is of how all ranks exchange gradients, and not of one rank."""
        return "rank" not in self.KINDS[self.kind]

    def strikes(self, arm: Arm) -> bool:
        """Whether that arm is meant: of Horovod and the session's own stack, and of the named model
        and size if any is. An arm on trial has its own."""
        return (
            arm.strategy is Strategy.HOROVOD
            and not arm.stack
            and arm.planted in ("", TWIN)
            and self.model in ("", arm.workload.model)
            and self.world_size in (0, arm.world_size)
        )

    def as_config(self) -> dict[str, Any]:
        """As hvdperf.worker.faults reads it."""
        return {
            "kind": self.kind,
            "rank": self.rank,
            "phase": self.phase,
            "factor": self.factor,
            "ms": self.ms,
        }
