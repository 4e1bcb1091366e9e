"""A command while it runs, with the recorder in each of its ranks: how it goes on, and which ranks
wait for which, where no rank comes to the end of a step."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hvdperf.cli import complain
from hvdperf.script.recorded import Rank, last_job, read_ranks

# Steps of the slowest rank behind the fastest one that are told.
_BEHIND = 2
# A wait is a stall if it takes so many times as long as the mean step, and as the slowest one: a
# checkpoint is waited for, too.
_LONGER, _SLOWER = 10.0, 2.0


@dataclass
class Live:
    """The line that says how the command goes on, on stderr if that is a terminal. directory: where
    ranks write. seen: of each rank, steps, samples and time when the line was written before."""

    directory: Path
    seen: dict[int, tuple[int, int, float]] = field(default_factory=dict)
    shown: int = 0
    stall: str = ""

    def line(self) -> str:
        """Return steps, samples a second since the last line, and who is slowest; "" before the
        first step."""
        found = {}
        for path in self.directory.glob("now-*"):
            with suppress(OSError, ValueError):
                rank, count, samples, at = json.loads(path.read_bytes())
                found[rank] = (count, samples, at)
        if not any(count for count, _, _ in found.values()):
            return ""
        speed = 0.0
        for rank, (_, samples, at) in found.items():
            _, before, then = self.seen.get(rank, (0, samples, at))
            speed += (samples - before) / (at - then) if at > then else 0.0
        self.seen = found
        counts = {rank: count for rank, (count, _, _) in found.items()}
        told = f"step {max(counts.values())}"
        if speed:
            told += f", {speed:.0f} samples/s on {len(found)} ranks"
        slowest = min(counts, key=counts.__getitem__)
        if max(counts.values()) - counts[slowest] > _BEHIND:
            told += f", rank {slowest} is at step {counts[slowest]}"
        return told

    def look(self) -> None:
        """Show how the command goes on, and say once that it has stopped."""
        if sys.stderr.isatty() and (text := self.line()):
            print(f"\r{text:<{self.shown}}", end="", file=sys.stderr, flush=True)
            self.shown = len(text)
        if not self.stall and any(self.directory.glob("stalled-*")):
            ranks, _ = read_ranks(self.directory)
            self.stall = stall_of(last_job(ranks)[0])
            if self.stall:
                self.clear()
                complain(f"no step finishes any more: {self.stall}")

    def clear(self) -> None:
        if self.shown:
            print(f"\r{'':<{self.shown}}\r", end="", file=sys.stderr, flush=True)
            self.shown = 0


def stall_of(ranks: Sequence[Rank]) -> str:
    """Return in words which exchange waits for which ranks; "" unless all ranks had stopped when
    they last wrote. ranks: of one job."""
    left = {rank.rank for rank in ranks if rank.is_over}
    waits = {rank.rank: rank.waits for rank in ranks if rank.waits and _is_long(rank)}
    if not waits or len(left | waits.keys()) < len(ranks):
        return ""
    told = []
    for what in dict.fromkeys(wait[0] for wait in waits.values() if wait[0]):
        within = {rank: wait for rank, wait in waits.items() if wait[0] == what}
        others = [rank for rank in range(ranks[0].size) if rank not in within]
        if others:
            rank, (_, seconds, place) = next(iter(within.items()))
            where = f", which rank {rank} calls at {place}," if place else ""
            whom = f"rank {others[0]}" + f" and {len(others) - 1} more" * bool(others[1:])
            _, _, at = waits.get(others[0], ("", 0.0, ""))
            if others[0] in left:
                whom += ", which has ended"
            elif at:
                whom += f", which is at {at}"
            told.append(f"{what}{where} waits for {whom} ({seconds:.0f} s so far)")
    return "; ".join(told)


def _is_long(rank: Rank) -> bool:
    assert rank.waits is not None
    if rank.steps is None:
        return True
    mean = rank.steps.period or 0.0
    return rank.waits[1] >= max(_LONGER * mean, _SLOWER * rank.steps.longest)
