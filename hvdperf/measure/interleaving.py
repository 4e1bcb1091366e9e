"""The order in which the arms of a turn take their blocks.

A shared machine is slow for seconds and then fast again, so blocks that are compared are timed one
right after the other: an arm that is compared with many is visited again. Pure, except that the
order is random.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from hvdperf.plan.arms import Arm, BlockKind, Side

Pair = tuple[Side, Side]
# Links[a][b]: the kinds of blocks of arm a that are compared with blocks of arm b.
Links = dict[Arm, dict[Arm, set[BlockKind]]]


@dataclass(frozen=True)
class Position:
    """An arm's place in a turn. kinds: the kinds of blocks that the arm takes there."""

    arm: Arm
    kinds: frozenset[BlockKind]


def walk(
    kinds: Mapping[Arm, Collection[BlockKind]], pairs: Sequence[Pair], order: Random
) -> list[Position]:
    """Return visits in which every pair of arms that is compared is next to each other once, and in
    which every arm takes all its kinds; apart from that in random order. If the pairs form a tree,
    there are as few visits as possible.

    kinds: those wanted of every arm. pairs: what is compared; a pair with an arm that is not in
    kinds is ignored.
    """
    links = _links(kinds, pairs)
    trails = []
    # An arm of which an odd number of pairs is left begins or ends a trail anyway.
    while arm := _beginning(links, order):
        trails.append(_trail(links, arm, order))
    met = {visit.arm for trail in trails for visit in trail}
    trails += [[Position(arm, frozenset())] for arm in kinds if arm not in met]
    order.shuffle(trails)
    return _completed([visit for trail in trails for visit in trail], kinds)


def _links(kinds: Mapping[Arm, Collection[BlockKind]], pairs: Sequence[Pair]) -> Links:
    links: Links = {arm: {} for arm in kinds}
    for one, other in pairs:
        if one.arm == other.arm or not {one.arm, other.arm} <= kinds.keys():
            continue
        links[one.arm].setdefault(other.arm, set()).add(one.kind)
        links[other.arm].setdefault(one.arm, set()).add(other.kind)
    return links


def _beginning(links: Links, order: Random) -> Arm | None:
    left = [arm for arm, others in links.items() if others]
    odd = [arm for arm in left if len(links[arm]) % 2]
    return order.choice(odd or left) if left else None


def _trail(links: Links, arm: Arm, order: Random) -> list[Position]:
    """Return visits from pair to pair until none is left; the pairs are removed from `links`."""
    trail, kinds = [], set[BlockKind]()
    while others := links[arm]:
        following = order.choice(list(others))
        trail.append(Position(arm, frozenset(kinds | others.pop(following))))
        kinds = links[following].pop(arm)
        arm = following
    return [*trail, Position(arm, frozenset(kinds))]


def _completed(
    visits: Sequence[Position], kinds: Mapping[Arm, Collection[BlockKind]]
) -> list[Position]:
    """Return the visits. On its first one, each arm also takes the kinds that no visit holds."""
    result: list[Position] = []
    for visit in visits:
        wanted = set(kinds[visit.arm])
        first = all(visit.arm != earlier.arm for earlier in result)
        elsewhere = {kind for each in visits if each.arm == visit.arm for kind in each.kinds}
        own = visit.kinds | (wanted - elsewhere) if first else visit.kinds
        result.append(Position(visit.arm, frozenset(own & wanted)))
    return result
