"""Proposes a file of thresholds whose lines together mean one false FAIL a year at most."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping, Sequence

from hvdperf.errors import UserError, refusing
from hvdperf.machine.host import Machine
from hvdperf.plan.comparisons import Question
from hvdperf.plan.false_fails import (
    NIGHTS,
    Scatter,
    Year,
    distance_for,
    false_fail,
    scatter,
    year,
)
from hvdperf.plan.thresholds import (
    NAME_OF,
    Case,
    ceiling,
    class_of,
    floor,
    key,
    proposed_rule,
    rounded_down,
    rounded_up,
    three_digits_up,
    written,
)
from hvdperf.stats import NotMeasurable
from hvdperf.verdict import Band, Ceiling, Floor, Rule

# The most false FAILs a year that a proposed file may mean, with the confidence of
# hvdperf.plan.false_fails; and by what factor, and how often, the share of a case becomes smaller
# to get there.
MOST_A_YEAR, _SMALLER, _TRIALS = 1.0, 0.7, 40
# From fewer sessions, a limit that holds lies more than twice as far as one from many.
FEWEST_SESSIONS = 8


def propose(
    observations: Mapping[Case, Sequence[Sequence[float]]], looks: Sequence[int], machine: Machine
) -> str:
    """Return a file of thresholds for machines like this one, which unchanged builds PASS
    (proposed_rule), and which mean MOST_A_YEAR false FAILs at most, all lines together
    (hvdperf.plan.false_fails). Its first lines tell their number.

    observations: ln ratios of each case, by session. looks: the full looks of a session. Raises
    UserError for a case with fewer than FEWEST_SESSIONS sessions or with an observation that is not
    finite, if the rounds of a session are too few for finite bounds, and if the sessions of a case
    differ so much that no limit holds.
    """
    cases = list(observations)
    narrow, known = [], []
    for case, sessions in observations.items():
        if len(sessions) < FEWEST_SESSIONS:
            raise UserError(
                f"{key(case)}: {len(sessions)} sessions are too few; measure at least "
                f"{FEWEST_SESSIONS}"
            )
        values = [value for each in sessions for value in each]
        with refusing(f"{key(case)}: no threshold can be proposed: ", NotMeasurable):
            narrow.append(proposed_rule(case.question, values, looks[0]))
            known.append(scatter(sessions))
    rules, of_year = _held(cases, narrow, known, looks)
    kind, name = class_of(machine)
    sessions_read = max(map(len, observations.values()), default=0)
    lines = [
        *(f"# {line}" for line in textwrap.wrap(f"{of_year}, all cases together.", 98)),
        f"# Read from up to {sessions_read} sessions of a case; full looks of a night after "
        f"{', '.join(map(str, looks))} rounds.",
        f"label = {json.dumps(f'{machine.description} (proposed)', ensure_ascii=False)}",
        "",
        "[match]",
        f'device = "{kind}"',
        f"{NAME_OF[kind]} = {json.dumps(name, ensure_ascii=False)}",
        "",
        "[thresholds]",
    ]
    for case, rule, noise in zip(cases, rules, known, strict=True):
        count = sum(map(len, observations[case]))
        lines.append(
            f"# {math.exp(noise.centre):.3g}; rounds differ by {100 * noise.rounds:.1f} %, "
            f"sessions by {100 * noise.between:.1f} % more; {noise.sessions} sessions, "
            f"{count} rounds"
        )
        lines.append(written(case, rule))
    return "\n".join(lines) + "\n"


def _held(
    cases: Sequence[Case],
    narrow: Sequence[Rule],
    known: Sequence[Scatter],
    looks: Sequence[int],
) -> tuple[list[Rule], Year]:
    """Return the rules, as wide as they have to be for MOST_A_YEAR, and the false FAILs of a year.

    Every case gets the same share of them. It becomes smaller as long as the upper limit is too
    high.
    """
    share = MOST_A_YEAR / NIGHTS / max(len(cases), 1)
    for _ in range(_TRIALS):
        rules = [
            holding_rule(rule, case.question, noise, distance_for(share, rule.alpha, noise, looks))
            for case, rule, noise in zip(cases, narrow, known, strict=True)
        ]
        found = year(list(zip(rules, known, strict=True)), looks)
        if found.at_most <= MOST_A_YEAR:
            return rules, found
        share *= _SMALLER
    worst = max(
        zip(cases, rules, known, strict=True), key=lambda each: false_fail(each[1], each[2], looks)
    )
    raise UserError(
        f"{key(worst[0])}: its sessions differ by {100 * worst[2].between:.0f} %, so no limit "
        "holds; find out why, or leave its network out"
    )


def holding_rule(rule: Rule, question: Question, known: Scatter, distance: float) -> Rule:
    """Return the rule with limits at least this far from the case's centre, on the scale of
    logarithms. They are rounded as those of proposed_rule."""
    if isinstance(rule, Band):
        high = max(rule.high, rounded_up(math.exp(abs(known.centre) + distance)))
        return Band(rounded_down(1 / high), high)
    if isinstance(rule, Ceiling):
        highest = three_digits_up(math.exp(known.centre + distance))
        return ceiling(question, max(rule.at_most, highest))
    return floor(question, min(rule.pass_from, math.exp(known.centre - distance)))


def holding_line(
    case: Case, kind: type[Rule], known: Scatter, looks: Sequence[int], of: int
) -> str:
    """Return the line of a case with the nearest limits of this kind that mean no more false FAILs
    than its share of MOST_A_YEAR. of: number of cases that share it."""
    narrowest: Rule = Floor.at(math.inf)
    if not issubclass(kind, Floor):
        narrowest = Band(1.0, 1.0) if kind is Band else ceiling(case.question, 0.0)
    share = MOST_A_YEAR / NIGHTS / of
    distance = distance_for(share, narrowest.alpha, known, looks)
    return written(case, holding_rule(narrowest, case.question, known, distance))
