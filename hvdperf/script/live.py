"""A command while it runs, with the recorder in each of its ranks: which ranks wait for which,
where no rank comes to the end of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hvdperf.cli import complain
from hvdperf.script.recorded import Rank, last_job, read_ranks

# A wait is a stall if it takes so many times as long as the mean step, and as the slowest one: a
# checkpoint is waited for, too.
_LONGER, _SLOWER = 10.0, 2.0


@dataclass
class Live:
    """Says once that a command has stopped. directory: where its ranks write. stall: which exchange
    waits for which ranks; "" before."""

    directory: Path
    stall: str = ""

    def look(self) -> None:
        if not self.stall and any(self.directory.glob("stalled-*")):
            ranks, _ = read_ranks(self.directory)
            self.stall = stall_of(last_job(ranks)[0])
            if self.stall:
                complain(f"no step finishes any more: {self.stall}")


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
