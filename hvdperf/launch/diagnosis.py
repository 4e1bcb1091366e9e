"""Horovod's own diagnosis of a launch that fails: the ranks that others wait for, and the tensors
on which ranks disagree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# As Horovod 0.28.1 prints it (common/stall_inspector.cc): a warning, `Missing ranks:`, and a line
# such as `1!: [gradient_0, gradient_1 ...]` for each; the mark is that of the shutdown.
_WARNING = "submitted to be reduced, gathered or broadcasted by subset of ranks"
_HEADING = "Missing ranks:"
_MISSING = re.compile(r"(\d+)!?: \[(.*)\]?$")
_SHUTDOWN = re.compile(r"One or more rank \(marked by .*Will shutdown")
# As its controller reports it, within an error of TensorFlow's.
_MISMATCH = re.compile(r"Mismatched .*?(?=\s*(?:\[\[|\[Op:|$))")
_NODE = re.compile(r"\bname: (\S+)|\{\{node ([^}]+)\}\}")
# The most tensors that are named.
_NAMED = 3


@dataclass(frozen=True)
class Stall:
    """The stall inspector's last report. tensors: those that a rank has not submitted, by the
    missing rank."""

    tensors: dict[int, tuple[str, ...]]

    def rank_at_fault(self, ranks: int) -> int | None:
        """Return the first missing rank; None if each of them misses tensors of the others."""
        return min(self.tensors) if len(self.tensors) < ranks else None

    def __str__(self) -> str:
        parts = []
        for rank, names in sorted(self.tensors.items()):
            more = f" and {len(names) - _NAMED} more" if names[_NAMED:] else ""
            parts.append(f"rank {rank} has not submitted {', '.join(names[:_NAMED])}{more}")
        return f"Horovod reports that {'; '.join(parts)}"


def stall_in(lines: Iterable[str]) -> Stall | None:
    """Return the last report of the stall inspector among the lines of a rank; None without one."""
    found: dict[int, tuple[str, ...]] = {}
    inside = False
    for line in lines:
        text = line.strip()
        if text.endswith(_HEADING):
            found, inside = {}, True
        elif inside and (missing := _MISSING.match(text)):
            names = missing[2].rstrip("]").split(", ")
            found[int(missing[1])] = tuple(filter(None, names))
        else:
            inside = False
    return Stall(found) if found else None


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
