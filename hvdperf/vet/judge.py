"""Which nodes are slow, and by what: rounds in, findings out.

A figure of a node is its speed relative to the median of the other nodes of its machine class in
the same round; of a link, to the median of the pairs that the node is not part of. The figures of
all rounds give the Hodges-Lehmann estimate with exact bounds (hvdperf.stats). A node is slow if the
whole interval is below the limit of its term (SLOW). The bounds are so far out that one of all
figures of all nodes is missed on that side in at most FALSE_NAMES of all runs (Bonferroni), if
rounds are independent.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from hvdperf.columns import figure_text
from hvdperf.stats import Interval, hodges_lehmann
from hvdperf.verdict import Verdict, as_ratio

# The term of a pair of nodes, in the order in which terms are measured and shown.
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
    """Work that all nodes did at the same time, one term after the other. rates: by term and node,
    units a second of its slowest device. slowest: by term and node, that device. pairs: of the
    link."""

    rates: dict[str, dict[str, float]]
    slowest: dict[str, dict[str, str]]
    pairs: list[Pair]


@dataclass(frozen=True)
class Measured:
    """The measurements of an allocation.

    nodes: all names. kinds: by node, its machine class in words. not_run: by node, why it was left
    out. digests: by node, of each comparison, what its devices computed. rounds: in their order.
    took_seconds: of everything.
    """

    nodes: tuple[str, ...]
    kinds: dict[str, str]
    not_run: dict[str, str]
    digests: dict[str, list[dict[str, str]]]
    rounds: list[Round]
    took_seconds: float = 0.0


# The speed, relative to the others, below which a node is slow. How fast memory is depends on the
# pages that the kernel gives, how fast a file is read on where it is on a disk, and how fast pairs
# exchange bytes on the switches between them.
SLOW = {"compute": 0.95, "memory": 0.90, "bus": 0.95, "input": 0.80, LINK: 0.90}
# The share of runs in which a node may be named that is not slow.
FALSE_NAMES = 0.01
# The speed of what did not take place, relative to the others.
_NONE = 1e-3


@dataclass(frozen=True)
class Finding:
    """The verdict on a node: FAIL if a term is slow, or if it computes another result than others.

    reason: why it does not PASS. figures: by term, its speed relative to the others, with bounds
    that hold for all nodes together. verdicts: by term.
    """

    node: str
    verdict: Verdict
    reason: str = ""
    figures: Mapping[str, Interval] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)


def judge(measured: Measured) -> list[Finding]:
    """Return the finding of each node, the worst first."""
    groups = _groups(measured)
    terms = {*(term for each in measured.rounds for term in each.rates), LINK}
    # The error rate of each bound: FALSE_NAMES, divided among the figures of all nodes.
    alpha = FALSE_NAMES / max(1, len(measured.nodes) * len(terms))
    results = _other_results(measured, groups)
    found = []
    for nodes in groups.values():
        if len(nodes) == 1:
            why = f"no other node is of its kind ({measured.kinds[nodes[0]]})"
            found.append(Finding(nodes[0], Verdict.INCONCLUSIVE, why))
            continue
        for node, figures in _figures(measured.rounds, nodes, alpha).items():
            found.append(_finding(measured, node, figures, results.get(node, "")))
    found += [Finding(node, Verdict.NOT_RUN, why) for node, why in measured.not_run.items()]
    order = list(Verdict)
    return sorted(found, key=lambda each: (order.index(each.verdict), _lowest(each.figures)))


def _groups(measured: Measured) -> dict[str, list[str]]:
    """Return the nodes that were measured, by machine class."""
    groups: dict[str, list[str]] = {}
    for node in measured.nodes:
        if node not in measured.not_run:
            groups.setdefault(measured.kinds[node], []).append(node)
    return groups


def _finding(
    measured: Measured, node: str, figures: Mapping[str, Interval], other_result: str
) -> Finding:
    verdicts = {term: _verdict(figure, SLOW[term]) for term, figure in figures.items()}
    slow, unsure = (
        ", ".join(
            _in_words(measured.rounds, node, term, figures[term])
            for term, verdict in verdicts.items()
            if verdict is word
        )
        for word in (Verdict.FAIL, Verdict.INCONCLUSIVE)
    )
    of_terms = (slow and f"slow: {slow}", unsure and f"may be slow: {unsure}")
    reason = "; ".join(filter(None, (*of_terms, other_result)))
    unlike = Verdict.FAIL if slow or other_result else Verdict.INCONCLUSIVE
    return Finding(node, unlike if reason else Verdict.PASS, reason, figures, verdicts)


def _verdict(figure: Interval, limit: float) -> Verdict:
    if figure.upper < limit:
        return Verdict.FAIL
    return Verdict.INCONCLUSIVE if figure.estimate < limit else Verdict.PASS


def _in_words(rounds: Sequence[Round], node: str, term: str, figure: Interval) -> str:
    """Return a term with its figure, and with the GPU that was most often the node's slowest."""
    devices = Counter(
        each.slowest[term][node] for each in rounds if node in each.slowest.get(term, {})
    )
    (device, _), *_ = devices.most_common(1) or [("", 0)]
    where = f" of {device}" if device.startswith("GPU") else ""
    return f"{term}{where} {figure_text(figure).strip()}"


def _lowest(figures: Mapping[str, Interval]) -> float:
    return min((each.estimate for each in figures.values()), default=1.0)


def _figures(
    rounds: Sequence[Round], nodes: Sequence[str], alpha: float
) -> dict[str, dict[str, Interval]]:
    """Return the figures of each node. The slowest node is taken out as long as one is slow, so
    that it does not change what the others are compared with."""
    left, found = list(nodes), dict[str, dict[str, Interval]]()
    while len(left) > 1:
        figures = {node: _of_node(rounds, node, left, alpha) for node in left}
        found |= figures
        slow = [
            (figure.estimate, node)
            for node, terms in figures.items()
            for term, figure in terms.items()
            if figure.upper < SLOW[term]
        ]
        if not slow:
            break
        left.remove(min(slow)[1])
    return found


def _of_node(
    rounds: Sequence[Round], node: str, nodes: Sequence[str], alpha: float
) -> dict[str, Interval]:
    figures = {}
    for term in TERMS:
        values = [value for each in rounds for value in _relative(each, term, node, nodes)]
        if values:
            figures[term] = as_ratio(hodges_lehmann(values, alpha))
    return figures


def _relative(taken: Round, term: str, node: str, nodes: Sequence[str]) -> Iterable[float]:
    """Yield the ln of a node's speed relative to the others in a round, if it has one."""
    if term != LINK:
        rates = taken.rates.get(term, {})
        others = [rates[each] for each in nodes if each != node and rates.get(each, 0.0) > 0]
        if node in rates and others:
            yield math.log(max(rates[node] / median(others), _NONE))
        return
    if len(nodes) < FEWEST_LINKED:
        return
    pairs = [pair for pair in taken.pairs if set(pair.nodes) <= set(nodes)]
    own = [pair.rate for pair in pairs if node in pair.nodes]
    rates_of_others = [pair.rate for pair in pairs if node not in pair.nodes and pair.rate > 0]
    if own and rates_of_others:
        yield math.log(max(own[0] / median(rates_of_others), _NONE))


def _other_results(measured: Measured, groups: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return by node which device computes something else from the same seeds than it did before,
    or than most devices of its class."""
    found: dict[str, str] = {}
    for nodes in groups.values():
        results: dict[tuple[str, str], set[str]] = {}
        for node in nodes:
            for device, digest in ((d, each[d]) for each in measured.digests[node] for d in each):
                results.setdefault((node, device), set()).add(digest)
        counts = Counter(digest for each in results.values() if len(each) == 1 for digest in each)
        (usual, most), *others = counts.most_common() or [("", 0)]
        for (node, device), each in results.items():
            if len(each) > 1:
                found[node] = f"{device} computed two results from the same seeds"
            elif others and (each != {usual} or 2 * most <= len(results)):
                others_do = "most others" if 2 * most > len(results) else "others"
                found.setdefault(
                    node, f"{device} computes another result from the same seeds than {others_do}"
                )
    return found
