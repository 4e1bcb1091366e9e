"""In which order the arms of a turn take their blocks.

A shared machine is slow for seconds and then fast again, so what is compared is measured one right
after the other: an arm that is compared with many is visited again. Pure, but for the chance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from hvdperf.plan.arms import Arm, BlockKind, Side

Pair = tuple[Side, Side]
# Between two arms: of each, the kinds of blocks that are compared with the other's.
Links = dict[Arm, dict[Arm, set[BlockKind]]]


@dataclass(frozen=True)
class Position:
    """An arm's place in a turn, and the kinds of blocks that it takes there."""

    arm: Arm
    kinds: frozenset[BlockKind]


def walk(
    kinds: Mapping[Arm, Collection[BlockKind]], pairs: Sequence[Pair], order: Random
) -> list[Position]:
    """Visits in which every pair of arms that is compared is next to each other once, in as few as
    trees allow, and in which every arm takes all its kinds; otherwise in random order.

    kinds: those wanted of every arm. pairs: what is compared; of arms without kinds they do not
    count.
    """
    links = _links(kinds, pairs)
    trails = []
    # From where an odd number of pairs is left: such an arm begins or ends a trail anyway.
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
    """From pair to pair until there is none left; they are taken out of `links`."""
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
    """What an arm takes beside what is compared with others', on its first visit."""
    result: list[Position] = []
    for visit in visits:
        wanted = set(kinds[visit.arm])
        first = all(visit.arm != earlier.arm for earlier in result)
        elsewhere = {kind for each in visits if each.arm == visit.arm for kind in each.kinds}
        own = visit.kinds | (wanted - elsewhere) if first else visit.kinds
        result.append(Position(visit.arm, frozenset(own & wanted)))
    return result
