"""Horovod's own diagnosis of a launch that fails: the ranks that others wait for, and the tensors
on which ranks disagree."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

# As Horovod 0.28.1 prints it (common/stall_inspector.cc): a warning with the local time, `Missing
# ranks:`, and a line such as `1!: [gradient_0, gradient_1 ...]` for each; the mark is that of the
# shutdown. Over Gloo this release prints nothing: its list of ranks stays empty there
# (GlooController reserves room for it, and does not resize it).
_WARNING = "submitted to be reduced, gathered or broadcasted by subset of ranks"
_WHEN = re.compile(r"\[([\d-]+ [\d:]+)\.\d+: \w .* for more than (\d+) seconds")
_HEADING = "Missing ranks:"
_MISSING = re.compile(r"(\d+)(!?): \[(.*)\]?$")
# A stall is over if no report has followed for this many intervals of the check.
_INTERVALS = 3
_SHUTDOWN = re.compile(r"One or more rank \(marked by .*Will shutdown")
# As its controller reports it, within an error of TensorFlow's.
_MISMATCH = re.compile(r"Mismatched .*?(?=\s*(?:\[\[|\[Op:|$))")
_NODE = re.compile(r"\bname: (\S+)|\{\{node ([^}]+)\}\}")
# The most tensors that are named.
_NAMED = 3


@dataclass(frozen=True)
class Stall:
    """The stall inspector's last report.

    tensors: those that a rank has not submitted, by the missing rank. gave_up: whether Horovod has
    shut down because of it. ends: time of day, in seconds, after which the stall is over if no
    report has followed; None if the report has no time.
    """

    tensors: dict[int, tuple[str, ...]] = field(default_factory=dict)
    gave_up: bool = False
    ends: float | None = None

    @property
    def lasts(self) -> bool:
        """Return whether the stall is not over. A rank that was only slow has caught up since."""
        return self.gave_up or self.ends is None or time.time() < self.ends

    def rank_at_fault(self, ranks: int) -> int | None:
        """Return the first missing rank. If every rank is missing, return the only one without
        which all others wait for the same tensors; None if there is none."""
        if len(self.tensors) < ranks:
            return min(self.tensors)
        alone = [
            rank
            for rank, names in self.tensors.items()
            if not any(
                set(names) & set(self.tensors[other]) for other in self.tensors.keys() - {rank}
            )
        ]
        return alone[0] if len(alone) == 1 else None

    def __str__(self) -> str:
        parts = []
        for rank, names in sorted(self.tensors.items()):
            more = f" and {len(names) - _NAMED} more" if names[_NAMED:] else ""
            parts.append(f"rank {rank} has not submitted {', '.join(names[:_NAMED])}{more}")
        return f"Horovod reports that {'; '.join(parts)}"


def stall_in(lines: Iterable[str]) -> Stall | None:
    """Return the last report of the stall inspector among the lines of a rank; None without one."""
    tensors: dict[int, tuple[str, ...]] = {}
    gave_up, inside = False, False
    ends: float | None = None
    announced: float | None = None
    for line in lines:
        text = line.strip()
        if _WARNING in text:
            announced = _end_of(text)
        if text.endswith(_HEADING):
            tensors, gave_up, inside, ends = {}, False, True, announced
        elif inside and (missing := _MISSING.match(text)):
            names = missing[3].rstrip("]").removesuffix(" ...").split(", ")
            tensors[int(missing[1])] = tuple(filter(None, names))
            gave_up |= bool(missing[2])
        else:
            inside = False
    return Stall(tensors, gave_up, ends) if tensors else None


def _end_of(warning: str) -> float | None:
    """Return the time after which a stall is over if no warning has followed this one."""
    found = _WHEN.match(warning)
    if found is None:
        return None
    written = datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").astimezone()
    return written.timestamp() + _INTERVALS * int(found[2])


def diagnosis_lines(lines: Sequence[str]) -> list[int]:
    """Return the indices of the lines that are reports of the stall inspector."""
    chosen, inside = [], False
    for i, line in enumerate(lines):
        text = line.strip()
        if text.endswith(_HEADING):
            inside = True
        elif not (inside and _MISSING.match(text)):
            inside = False
        if inside or _WARNING in text or _SHUTDOWN.match(text):
            chosen.append(i)
    return chosen


def mismatch_in(message: str) -> str:
    """Return which tensor the ranks disagree on and how, in words; "" if the message of an error
    does not say that they do."""
    text = " ".join(message.split())
    found = _MISMATCH.search(text)
    if found is None:
        return ""
    named = _NODE.search(text, found.end()) or _NODE.search(text)
    tensor = f" (tensor {named[1] or named[2]})" if named else ""
    return f"{found[0].rstrip(' .')}{tensor}"
