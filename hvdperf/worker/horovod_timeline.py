"""The reader of a Horovod timeline: which activity went on when, on rank 0.

The file is an array of Chrome trace events, with one "process" per tensor. A tensor's activities
are pairs of B and E. Tensors in one fused buffer each have events for the same work. So activities
are measured by the union of their intervals, because a sum would count this work once per tensor.
Ticks (X of no duration: which rank had a tensor ready; i: a cycle begins) are not activities.
Source: horovod/common/timeline.cc of Horovod 0.28.1.

Horovod 0.28.1 closes the array after each event and opens it again for the next one, other releases
never close it, and the end of a process may cut the file anywhere. So the end of the array, and of
its last event, may be missing.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, Optional, TextIO

# Begin and end in seconds of the timeline's own clock.
Interval = tuple[float, float]

# The activities that wait for bytes of other ranks, by the library that carries them. They include
# the time from the first rank's entry to the last one's. Not on the wire: NEGOTIATE_*, QUEUE,
# WAIT_FOR_*, INIT_*, ALLOCATE_*, MEMCPY_*, COPY_*, and the operations (ALLREDUCE, BROADCAST, ...)
# that enclose all of these but the negotiation.
WIRE = re.compile(r"(MPI|GLOO|NCCL|CCL)_")

# Characters that are read at once, and the length of the longest event that is accepted.
CHUNK = 1 << 20
_BETWEEN = re.compile(r"[\s,]*")
# The longest rest of a text that ends within a number or a word.
_TAIL = re.compile(r"[\w.+\\-]{0,8}")


@dataclass(frozen=True)
class Timeline:
    """The events of a file.

    activities: name -> the intervals of all its events, in the order of their ends. closed: whether
    the array is closed, as it is when the recording was stopped.
    """

    activities: dict[str, list[Interval]]
    closed: bool

    def after(self, begin_s: float) -> "Timeline":
        """Return this timeline without the events that begin before begin_s."""
        later = {
            name: [interval for interval in intervals if interval[0] >= begin_s]
            for name, intervals in self.activities.items()
        }
        left = {name: intervals for name, intervals in later.items() if intervals}
        return Timeline(left, self.closed)

    def seconds(self) -> dict[str, float]:
        """Return the seconds of the union of every activity's intervals."""
        return {name: length(union(intervals)) for name, intervals in self.activities.items()}

    def wire(self) -> list[Interval]:
        """Return the union of the intervals of all activities that are on the wire (see WIRE)."""
        return union(
            interval
            for name, intervals in self.activities.items()
            if WIRE.match(name)
            for interval in intervals
        )


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the times that are in any of the intervals: disjoint intervals in ascending order."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        else:
            merged.append((begin, end))
    return merged


def length(intervals: Iterable[Interval]) -> float:
    """Return the sum of the intervals' lengths, in seconds."""
    return math.fsum(end - begin for begin, end in intervals)


def read(path: str) -> Timeline:
    """Return the timeline of a file, in time and memory linear in its size.

    An activity whose begin or end is not in the file is left out. Raises ValueError, in one line
    that names the file, if the file cannot be read or is no timeline.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return _Recording().timeline(_Array(stream))
    except OSError as error:
        reason = f"cannot be read ({error.strerror})"
    except ValueError as error:
        reason = f"is no Horovod timeline: {error}"
    raise ValueError(f"{path} {reason}; record it anew")


class _Array:
    """The objects of a JSON array, up to its end or that of the stream. Iterating raises ValueError
    at anything else.

    closed: whether the end of the array has been reached.
    """

    def __init__(self, stream: TextIO) -> None:
        self.closed = False
        self._stream = stream

    def __iter__(self) -> Iterator[dict[str, Any]]:
        decoder = json.JSONDecoder(strict=False, parse_constant=_refuse)
        text = self._stream.read(CHUNK)
        at = len(text) - len(text.lstrip())
        if at == len(text):
            raise ValueError("it is empty")
        if text[at] != "[":
            raise ValueError(f"it begins with {text[at : at + 10]!r}, not with '['")
        at += 1
        number = 0
        while True:
            at = _end_of(_BETWEEN, text, at)
            if at < len(text) and text[at] == "]":
                self._close(text[at + 1 :])
                return
            event = None
            if at < len(text):
                event, at = _decoded(decoder, text, at, number)
            if event is not None:
                yield event
                number += 1
                continue
            more = self._stream.read(CHUNK)
            if not more:
                return
            if len(text) - at > CHUNK:
                raise ValueError(f"event {number} does not end")
            text, at = text[at:] + more, 0

    def _close(self, rest: str) -> None:
        while rest:
            if rest.strip():
                raise ValueError(f"after its end comes {rest.strip()[:10]!r}")
            rest = self._stream.read(CHUNK)
        self.closed = True


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a number")


def _end_of(pattern: "re.Pattern[str]", text: str, at: int) -> int:
    """Return where the pattern's match at `at` ends, or `at` if there is no match."""
    found = pattern.match(text, at)
    return found.end() if found else at


def _decoded(
    decoder: json.JSONDecoder, text: str, at: int, number: int
) -> tuple[Optional[dict[str, Any]], int]:
    """Return the object that begins at `at` and where it ends, or None and `at` if the text ends
    first. number: of the event, for the ValueError that is raised for anything else."""
    if text[at] != "{":
        raise ValueError(f"event {number} is {text[at : at + 10]!r}, not an object")
    try:
        return decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        if error.msg.startswith("Unterminated string") or (
            _end_of(_TAIL, text, error.pos) == len(text)
        ):
            return None, at
        raise ValueError(f"event {number} is damaged ({error.msg})") from error
    except RecursionError:
        raise ValueError(f"event {number} is too deep") from None


class _Recording:
    """A timeline that is put together from the events of a file."""

    def __init__(self) -> None:
        self._activities: dict[str, list[Interval]] = {}
        # Tensor (and thread, which Horovod does not name) -> activities that have not ended yet.
        self._begun: dict[tuple[Any, Any], list[tuple[str, float]]] = {}

    def timeline(self, array: _Array) -> Timeline:
        """Return the timeline. Raises ValueError if an event is not one of a timeline."""
        take = {"B": self._begin, "E": self._end, "X": self._whole}
        for number, event in enumerate(array):
            phase = event.get("ph")
            if not isinstance(phase, str):
                raise ValueError(f"event {number} has no phase ('ph')")
            if phase in take:
                try:
                    take[phase](event)
                except ValueError as error:
                    raise ValueError(f"event {number} {error}") from error
        return Timeline(self._activities, array.closed)

    def _begin(self, event: dict[str, Any]) -> None:
        self._begun.setdefault(_tensor(event), []).append((_name(event), _micros(event, "ts")))

    def _end(self, event: dict[str, Any]) -> None:
        end = _micros(event, "ts")
        begun = self._begun.get(_tensor(event))
        if begun:  # else it began before the recording
            name, begin = begun.pop()
            self._add(name, begin, end)

    def _whole(self, event: dict[str, Any]) -> None:
        name, begin = _name(event), _micros(event, "ts")
        duration = _micros(event, "dur") if "dur" in event else 0
        if duration:
            self._add(name, begin, begin + duration)

    def _add(self, name: str, begin: float, end: float) -> None:
        if end < begin:
            raise ValueError(f"ends before it begins ({name})")
        self._activities.setdefault(name, []).append((begin / 1e6, end / 1e6))


def _name(event: dict[str, Any]) -> str:
    name = event.get("name")
    if not isinstance(name, str):
        raise ValueError("has no name")
    return name


def _tensor(event: dict[str, Any]) -> tuple[Any, Any]:
    key = (event.get("pid"), event.get("tid"))
    if key[0] is None or any(isinstance(part, (dict, list)) for part in key):
        raise ValueError("has no process ('pid')")
    return key


def _micros(event: dict[str, Any], key: str) -> float:
    """Return the microseconds at that key. Raises ValueError if it holds no time."""
    micros = event.get(key)
    # The limit is that of a 64-bit clock.
    if isinstance(micros, bool) or not isinstance(micros, (int, float)) or abs(micros) >= 2**63:
        raise ValueError(f"has no time ('{key}')")
    return micros
