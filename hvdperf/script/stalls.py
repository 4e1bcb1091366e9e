"""Which ranks wait for which, where no rank comes to the end of a step."""

from __future__ import annotations

from collections.abc import Sequence

from hvdperf.script.recorded import Rank

# A wait is a stall if it takes so many times as long as the mean step, and as the slowest one: a
# checkpoint is waited for, too.
_LONGER, _SLOWER = 10.0, 2.0


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
            whom = _listed(others, left, waits)
            told.append(f"{what}{where} waits for {whom} ({seconds:.0f} s so far)")
    return "; ".join(told)


def _listed(others: Sequence[int], left: set[int], waits: dict[int, tuple[str, float, str]]) -> str:
    """Return ranks with the place at which the first of them is."""
    more = len(others) - 1
    told = f"rank {others[0]}" + f" and {more} more" * bool(more)
    if others[0] in left:
        return f"{told}, which has ended"
    _, _, place = waits.get(others[0], ("", 0.0, ""))
    return f"{told}, which is at {place}" if place else told


def _is_long(rank: Rank) -> bool:
    assert rank.waits is not None
    if rank.steps is None:
        return True
    slowest = max((each.row.period for each in rank.steps.slowest), default=0.0)
    return rank.waits[1] >= max(_LONGER * (rank.steps.period or 0.0), _SLOWER * slowest)
