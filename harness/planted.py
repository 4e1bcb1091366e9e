"""Faults that a user plants to see whether the suite notices (--plant)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.plan import Arm, Strategy


@dataclass(frozen=True)
class Fault:
    """Something that one rank does wrong on purpose, to see whether the suite notices.

    kind: raise, exit, kill or hang, in the given phase (harness.wire.Phase); slow: every step takes
    `factor` times as long; delay: it begins `ms` milliseconds later; stray: its learning rate is
    `factor` times the others'; leak: every step keeps a megabyte; corrupt: what it hands to a
    collective operation is off by one.
    """

    kind: str
    rank: int
    phase: str = "block"
    factor: float = 1.0
    ms: float = 0.0
    model: str = ""
    world_size: int = 0

    KINDS: ClassVar = (
        "raise",
        "exit",
        "kill",
        "hang",
        "slow",
        "delay",
        "stray",
        "leak",
        "corrupt",
    )

    @classmethod
    def parse(cls, text: str) -> Fault:
        """From `slow:rank=1,factor=2`. Raises ValueError with one line that says what is wrong."""
        kind, _, rest = text.partition(":")
        if kind not in cls.KINDS:
            raise ValueError(f"unknown fault {kind!r}; known: {', '.join(cls.KINDS)}")
        types = {
            "rank": int,
            "phase": str,
            "factor": float,
            "ms": float,
            "model": str,
            "world_size": int,
        }
        values: dict[str, Any] = {"rank": 0}
        for item in filter(None, rest.split(",")):
            key, _, value = item.partition("=")
            if key not in types:
                raise ValueError(f"unknown key {key!r} of a fault; known: {', '.join(types)}")
            values[key] = types[key](value)
        if kind in ("slow", "stray"):
            values.setdefault("factor", 2.0)
        if kind == "delay":
            values.setdefault("ms", 50.0)
        if not 0 <= values.get("ms", 0.0) < math.inf:
            raise ValueError(f"ms {values['ms']} is no delay; give 0 or more")
        if not values.get("factor", 1.0) >= 1.0:
            raise ValueError(f"factor {values['factor']} is below 1; give 1 or more")
        return cls(kind, **values)

    def strikes(self, arm: Arm) -> bool:
        """Whether that arm is meant: of Horovod and the session's own stack, and of the named model
        and size if any is."""
        return (
            arm.strategy is Strategy.HOROVOD
            and not arm.stack
            and self.model in ("", arm.workload.model)
            and self.world_size in (0, arm.world_size)
        )

    def as_config(self) -> dict[str, Any]:
        """As harness.worker.fault reads it."""
        return {
            "kind": self.kind,
            "rank": self.rank,
            "phase": self.phase,
            "factor": self.factor,
            "ms": self.ms,
        }
