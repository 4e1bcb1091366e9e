"""What is known of a collective operation that another tool has timed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hvdperf.plan.collectives import Collective, algbw, busbw

# What a 64-bit machine can address.
_MOST_BYTES = 2**64


class Figure(NamedTuple):
    """One size. size_bytes: of the whole buffer, as plan/collectives.py has it, whatever the tool
    calls the size; seconds: of one operation; busbw in GB/s of 10^9 bytes."""

    collective: Collective
    size_bytes: int
    seconds: float
    busbw: float

    @property
    def algbw(self) -> float:
        """In GB/s of 10^9 bytes."""
        return algbw(self.size_bytes, self.seconds)


def figure(collective: Collective, world_size: int, size_bytes: int, seconds: float) -> Figure:
    return Figure(
        collective, size_bytes, seconds, busbw(collective, world_size, size_bytes, seconds)
    )


@dataclass(frozen=True)
class ToolRun:
    """One run of a tool on the slots of a world size. tool: its short name; program: what was
    started. problem: why there are no figures, in words; else empty."""

    tool: str
    program: str
    collective: Collective
    world_size: int
    figures: tuple[Figure, ...] = ()
    problem: str = ""


class NotUnderstood(ValueError):
    """An output that is not of the form that the tool is known to print. The message names the
    line."""


def not_understood(row: int, line: str, why: str) -> NotUnderstood:
    """row: its number, from 1."""
    return NotUnderstood(f"line {row} of its output, {line[:60]!r}: {why}")


def numbered(text: str) -> Iterator[tuple[int, str]]:
    """Its lines that are not empty, with their numbers."""
    for row, line in enumerate(map(str.strip, text.splitlines()), start=1):
        if line:
            yield row, line


def size(text: str) -> int:
    """Bytes of a buffer, at least one, and no more than any machine has. Raises ValueError."""
    value = int(text)
    if not 0 < value <= _MOST_BYTES:
        raise ValueError(text[:20])
    return value


def number(text: str) -> float:
    """A finite number that is not negative. Raises ValueError."""
    value = float(text)
    if not math.isfinite(value) or value < 0:
        raise ValueError(text)
    return value
