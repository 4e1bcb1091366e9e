"""The command `hvdperf vet`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from functools import partial

from hvdperf.columns import Columns, interval, number, wrapped
from hvdperf.errors import UserError
from hvdperf.launch.slots import check_network
from hvdperf.stats import fewest_bounded
from hvdperf.verdict import EXIT_STATUS, Verdict
from hvdperf.vet import nodes as vet_nodes
from hvdperf.vet.judge import FALSE_NAMES, SLOW, TERMS, Finding, Measured, judge

ROUNDS = 20
# Rounds from which on more would not be decided otherwise.
_MOST_ROUNDS = 1000
# Figures that are shown, beside those that are not as others.
_MOST_SHOWN = 12


def vet(
    *,
    hosts: str | None = None,
    network: str = "",
    rounds: int = ROUNDS,
) -> int:
    """Find slow or faulty nodes in an allocation. All nodes in the Slurm allocation, or in --hosts,
    run the same work simultaneously: train, copy memory, read files; then pairs of nodes test the
    network. Any node that is slower than the others, or whose results differ, is reported with the
    reason. Exit status: 0 if no node is bad, 1 if one is, 10 if one could not be measured, 6 if the
    measurement is inconclusive.

    --hosts A,B: Compare these hosts, over ssh. Default: the nodes of the allocation.
    --network NET: Use this network between the nodes, such as 10.0.0.0/24. Default: any.
    --rounds N: Number of rounds.
    """
    nodes = vet_nodes.find_nodes(hosts)
    check_network(network)
    # On GPUs there is a term more.
    fewest = fewest_bounded(FALSE_NAMES / (len(nodes) * len(TERMS)))
    if not fewest <= rounds <= _MOST_ROUNDS:
        raise UserError(
            f"--rounds {rounds}: {len(nodes)} nodes need {fewest} rounds or more, "
            f"{_MOST_ROUNDS} at most"
        )
    crew = vet_nodes.Crew(nodes, network, by_slurm=hosts is None)
    print(f"vet {len(nodes)} nodes in {rounds} rounds: start", flush=True)
    with crew:
        say = partial(print, flush=True)
        measured = vet_nodes.measure(crew, rounds, say=say)
    findings = judge(measured)
    for line in text_of(measured, findings):
        print(line)
    return EXIT_STATUS[findings[0].verdict]


def text_of(measured: Measured, findings: Sequence[Finding]) -> Iterator[str]:
    """Yield lines: a table of speeds, the lowest first, and a sentence for each finding."""
    width = max(map(len, measured.nodes))
    table = Columns(("node", -width), ("term", -8), ("speed", 5), ("interval", 14), (" ", 0))
    rows = [(each, term) for each in findings for term in each.figures]
    rows.sort(key=lambda row: row[0].figures[row[1]].estimate)
    shown = [
        (finding, term)
        for place, (finding, term) in enumerate(rows)
        if place < _MOST_SHOWN or finding.verdicts[term] is not Verdict.PASS
    ]
    if shown:
        yield "speed relative to the median of the other nodes, the slowest first"
        yield table.header
    for finding, term in shown:
        figure = finding.figures[term]
        bounds = interval(figure.lower, figure.upper)
        speed = number(figure.estimate, 5, 3)
        yield table.row(finding.node, term, speed, bounds, f" {finding.verdicts[term].value}")
    if len(rows) > len(shown):
        yield f"and {len(rows) - len(shown)} more, all PASS"
    for finding in findings:
        if finding.verdict is not Verdict.PASS:
            yield from wrapped(f"{finding.node} {finding.verdict.value}: {finding.reason}")
        if finding.verdict is Verdict.FAIL:
            yield f"    {_draining(finding.node, finding.reason)}"
    yield from wrapped(_summary(measured, findings), others="")


def _draining(node: str, reason: str) -> str:
    """Return the command that takes a node out of service in Slurm."""
    quoted = shlex.quote(f"hvdperf vet: {reason}")
    return f"scontrol update NodeName={node} State=DRAIN Reason={quoted}"


def _summary(measured: Measured, findings: Sequence[Finding]) -> str:
    """Return the limits, the time that it took, and the next step, in words."""
    terms = {term for finding in findings for term in finding.figures}
    if not terms:
        return "nothing was compared"
    limits = ", ".join(f"{term} below {SLOW[term]:.2f}" for term in TERMS if term in terms)
    said = f"slow: {limits}, with {100 * (1 - FALSE_NAMES):.0f} % confidence"
    took = f"{len(measured.rounds)} rounds, {measured.took_seconds / 60:.1f} min"
    if all(finding.verdict is Verdict.PASS for finding in findings):
        return f"no node is bad; {said}; {took}"
    if any(each.verdict is Verdict.INCONCLUSIVE and each.figures for each in findings):
        return f"{said}; {took}; inconclusive; for a decision: --rounds {3 * len(measured.rounds)}"
    return f"{said}; {took}"
