"""The command `hvdperf vet`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from hvdperf.columns import Columns, figure_text, interval, number, wrapped
from hvdperf.errors import UserError, refusing
from hvdperf.files import write_record
from hvdperf.launch.slots import check_network
from hvdperf.stats import fewest_bounded
from hvdperf.vet import nodes as vet_nodes
from hvdperf.vet.judge import FALSE_NAMES, SLOW, TERMS, Finding, Measured, State, judge

ROUNDS = 20
# Rounds from which on more would not be decided otherwise.
_MOST_ROUNDS = 1000
# Exit statuses by what is known of the worst node: those of a session with FAIL, NOT RUN and so on.
_EXIT_STATUS = {
    State.SLOW: 1,
    State.OTHER_RESULT: 1,
    State.NOT_RUN: 10,
    State.UNDECIDED: 6,
    State.NOT_COMPARED: 6,
    State.OK: 0,
}
# Figures that are shown, beside those that are not as others.
_MOST_SHOWN = 12


def vet(
    *,
    hosts: str | None = None,
    network: str = "",
    rounds: int = ROUNDS,
    out: Path | None = None,
) -> int:
    """Find slow or faulty nodes in an allocation. All nodes in the Slurm allocation, or in --hosts,
    run the same work simultaneously: train, copy memory, read files; then pairs of nodes test the
    network. Any node that is slower than the others, or whose results differ, is reported with the
    reason. Exit status: 0 if no node is bad, 1 if one is, 10 if one could not be measured, 6 if the
    measurement is inconclusive.

    --hosts A,B: Compare these hosts, over ssh. Default: the nodes of the allocation.
    --network NET: Use this network between the nodes, such as 10.0.0.0/24. Default: any.
    --rounds N: Number of rounds.
    --out FILE: Write measurements and findings to this new file, as JSON. Default: no file.
    """
    nodes = vet_nodes.find_nodes(hosts)
    check_network(network)
    if out is not None and os.path.lexists(out):
        raise UserError(f"--out {out}: already exists; give the name of a new file")
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
    if out is not None:
        with refusing(f"--out {out}: ", OSError):
            write_record(out, measured)
    findings = judge(measured)
    for line in told(measured, findings):
        print(line)
    return _EXIT_STATUS[findings[0].state]


def told(measured: Measured, findings: Sequence[Finding]) -> Iterator[str]:
    """Return what is known of the nodes, in lines: figures, the lowest first, and sentences."""
    width = max(map(len, measured.nodes))
    table = Columns(("node", -width), ("term", -8), ("speed", 5), ("interval", 14), (" ", 0))
    rows = [(each, term) for each in findings for term in each.figures]
    rows.sort(key=lambda row: row[0].figures[row[1]].estimate)
    shown = [row for place, row in enumerate(rows) if place < _MOST_SHOWN or _word(*row)]
    if shown:
        yield "speed relative to the median of the other nodes, the slowest first"
        yield table.header
    for finding, term in shown:
        figure = finding.figures[term]
        bounds = interval(figure.lower, figure.upper)
        speed = number(figure.estimate, 5, 3)
        yield table.row(finding.node, term, speed, bounds, f" {_word(finding, term)}")
    if len(rows) > len(shown):
        yield f"and {len(rows) - len(shown)} more, all ok"
    for finding in findings:
        yield from _sentences(finding)
    yield from wrapped(_summary(measured, findings), others="")


def _word(finding: Finding, term: str) -> str:
    """Return what is known of a term of a node; "" if it is like that of others."""
    if term in finding.slow:
        return State.SLOW.value
    return State.UNDECIDED.value if term in finding.undecided else ""


def _sentences(finding: Finding) -> Iterator[str]:
    node = finding.node
    if finding.slow:
        reason = ", ".join(_term(finding, term) for term in finding.slow)
        yield from wrapped(f"{node} is slow: {reason}")
        yield f"    {_draining(node, reason)}"
    if finding.state is State.OTHER_RESULT or (finding.slow and finding.reason):
        yield from wrapped(f"{node} has different results: {finding.reason}")
        yield f"    {_draining(node, finding.reason)}"
    if finding.state in (State.NOT_RUN, State.NOT_COMPARED):
        yield from wrapped(f"{node} {finding.state.value}: {finding.reason}")
    if finding.undecided:
        which = ", ".join(_term(finding, term) for term in finding.undecided)
        yield from wrapped(f"{node} may be slow: {which}")


def _draining(node: str, reason: str) -> str:
    """Return the command that takes a node out of service in Slurm."""
    told = shlex.quote(f"hvdperf vet: {reason}")
    return f"scontrol update NodeName={node} State=DRAIN Reason={told}"


def _term(finding: Finding, term: str) -> str:
    device = finding.device.get(term, "")
    where = f" of {device}" if device.startswith("GPU") else ""
    return f"{term}{where} {figure_text(finding.figures[term]).strip()}"


def _summary(measured: Measured, findings: Sequence[Finding]) -> str:
    """Return in words what was looked for, how much it took, and what to do next."""
    terms = {term for finding in findings for term in finding.figures}
    if not terms:
        return "nothing was compared"
    limits = ", ".join(f"{term} below {SLOW[term]:.2f}" for term in TERMS if term in terms)
    said = f"slow: {limits}, with {100 * (1 - FALSE_NAMES):.0f} % confidence"
    took = f"{len(measured.rounds)} rounds, {measured.took_seconds / 60:.1f} min"
    states = {finding.state for finding in findings}
    if states == {State.OK}:
        return f"no node is bad; {said}; {took}"
    if State.UNDECIDED in states:
        return f"{said}; {took}; inconclusive; for a decision: --rounds {3 * len(measured.rounds)}"
    return f"{said}; {took}"
