"""What was measured of the nodes, as it is written to the file of --out."""

from __future__ import annotations

from dataclasses import dataclass, field

from hvdperf.json_records import Figures

# The term of a pair of nodes, in the order in which terms are measured and told.
LINK = "link"
TERMS = ("compute", "memory", "bus", "input", LINK)
# The fewest nodes of which a link can be judged: the pair of a node needs another pair beside it.
FEWEST_LINKED = 4


@dataclass(frozen=True)
class Pair:
    """An exchange of two nodes. rate: the bytes a second that arrived at the one where fewer did;
    0 if they did not connect."""

    nodes: tuple[str, str]
    rate: float


@dataclass(frozen=True)
class Round:
    """What all nodes did at the same time, one term after the other. rates: by term and node, units
    a second of its slowest device. slowest: by term and node, that device. pairs: of the link."""

    rates: dict[str, dict[str, float]]
    slowest: dict[str, dict[str, str]]
    pairs: list[Pair]


@dataclass(frozen=True)
class Measured(Figures):
    """What was measured of an allocation.

    nodes: all names. kinds: by node, its machine class in words. not_run: by node, why it was left
    out. digests: by node, of each comparison, what its devices computed. rounds: in their order.
    seconds: of a term in a round. took_seconds: of everything.
    """

    nodes: tuple[str, ...]
    kinds: dict[str, str]
    not_run: dict[str, str]
    digests: dict[str, list[dict[str, str]]]
    rounds: list[Round]
    seconds: float
    took_seconds: float = 0.0
    load: list[float] = field(default_factory=list)
