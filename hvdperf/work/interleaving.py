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
class Visit:
    """A visit to an arm within a turn. kinds: the kinds of blocks that the arm then takes."""

    arm: Arm
    kinds: frozenset[BlockKind]


def walk(
    kinds: Mapping[Arm, Collection[BlockKind]], pairs: Sequence[Pair], order: Random
) -> list[Visit]:
    """Return visits in random order, except that the arms of each pair follow each other once, and
    that every arm takes all its kinds. If the pairs form a tree, there are as few visits as
    possible.

    kinds: the wanted kinds of blocks by arm. pairs: the compared sides; a pair with an arm that is
    not in kinds is ignored.
    """
    links = _links(kinds, pairs)
    trails = []
    # Begin where an odd number of pairs is left, because a trail must begin or end at such an arm.
    while arm := _beginning(links, order):
        trails.append(_trail(links, arm, order))
    met = {visit.arm for trail in trails for visit in trail}
    trails += [[Visit(arm, frozenset())] for arm in kinds if arm not in met]
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


def _trail(links: Links, arm: Arm, order: Random) -> list[Visit]:
    """Return visits from pair to pair until none is left; the pairs are removed from `links`."""
    trail, kinds = [], set[BlockKind]()
    while others := links[arm]:
        following = order.choice(list(others))
        trail.append(Visit(arm, frozenset(kinds | others.pop(following))))
        kinds = links[following].pop(arm)
        arm = following
    return [*trail, Visit(arm, frozenset(kinds))]


def _completed(visits: Sequence[Visit], kinds: Mapping[Arm, Collection[BlockKind]]) -> list[Visit]:
    """Return the visits. On its first visit each arm also takes the kinds that none of its visits
    has."""
    result: list[Visit] = []
    for visit in visits:
        wanted = set(kinds[visit.arm])
        first = all(visit.arm != earlier.arm for earlier in result)
        assigned = {kind for each in visits if each.arm == visit.arm for kind in each.kinds}
        own = visit.kinds | (wanted - assigned) if first else visit.kinds
        result.append(Visit(visit.arm, frozenset(own & wanted)))
    return result
