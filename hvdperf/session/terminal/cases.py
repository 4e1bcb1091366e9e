"""The summary at the end of a session: one line per case, aligned at 80 columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from hvdperf.columns import Columns, interval, listed, number, wrapped
from hvdperf.explain.long_steps import long_steps
from hvdperf.judge.fails import notes_on_fails
from hvdperf.plan.comparisons import Comparison, JudgedAs
from hvdperf.records.outcome import Outcome
from hvdperf.session.terminal import wall_time
from hvdperf.stats import Interval
from hvdperf.verdict import Ceiling, Floor, Judgement, Verdict, confidence, counted, must_be

Kind = TypeVar("Kind")

_FIGURE = Columns(("figure", 6), ("interval", -14))
_TABLE = Columns(("case", -27), (_FIGURE.header, -21), ("limit", -13), ("n", 3), ("verdict", 0))

# Keywords of pytest's terminal writer.
MARKUP: Mapping[Verdict, Mapping[str, bool]] = {
    Verdict.FAIL: {"red": True, "bold": True},
    Verdict.INVALID: {"yellow": True},
    Verdict.NOT_RUN: {"yellow": True},
    Verdict.INCONCLUSIVE: {"yellow": True},
    Verdict.PASS: {"green": True},
    Verdict.NOT_JUDGED: {},
}
_WORDS = re.compile(rf"\b({'|'.join(verdict.value for verdict in MARKUP)})\b")

# Exit statuses; the worst verdict of a session decides, in the order of hvdperf.verdict.Verdict.
EXIT_STATUS = {
    Verdict.FAIL: 1,
    Verdict.INVALID: 7,
    Verdict.NOT_RUN: 10,
    Verdict.INCONCLUSIVE: 6,
    Verdict.PASS: 0,
}
NOTHING_MEASURED = 5
# Lines of a launch's errors; a launch of many ranks has written more.
MOST_LINES = 25
# The machine is not fit to measure, and --require-fit was given; also that of `hvdperf doctor`.
UNFIT = 9
# Instead of 0, if something could not be written.
NOT_WRITTEN = 8
_MEANINGS = {
    Verdict.FAIL: "missed their limit or crashed",
    Verdict.INVALID: "cannot be trusted",
    Verdict.NOT_RUN: "could not be started",
    Verdict.INCONCLUSIVE: "could not be decided",
}
_STATUSES = {
    1: "something other than a case failed (see above)",
    2: "interrupted; the cases decided so far are kept",
    4: "bad input (see the error)",
    NOTHING_MEASURED: "no case was judged",
    UNFIT: "this machine is not fit to measure, so nothing was measured (--require-fit)",
    NOT_WRITTEN: "all PASS, but some results were not written (see above)",
}


def exit_status(verdicts: Sequence[Verdict], inconclusive_is_ok: bool = False) -> int:
    """Return the exit status of the worst verdict. It is 0 only if at least one case was judged and
    all judged cases PASS, or are INCONCLUSIVE where that is allowed."""
    for verdict, status in EXIT_STATUS.items():
        if verdict in verdicts:
            return 0 if inconclusive_is_ok and verdict is Verdict.INCONCLUSIVE else status
    return NOTHING_MEASURED


def painted(text: str, markup: Callable[..., str]) -> str:
    """Return the text with its verdict words in colour. markup: marks up a text with the keywords
    of MARKUP; returns it unchanged if no colours are shown."""

    def paint(word: re.Match[str]) -> str:
        return markup(word[0], **MARKUP[Verdict(word[0])])

    return _WORDS.sub(paint, text)


def figure_text(figure: Interval | None) -> str:
    """Return estimate and interval, such as ` 0.873 [0.861, 0.884]`."""
    if figure is None:
        return _FIGURE.row("-", "")
    return _FIGURE.row(number(figure.estimate, 6, 3), interval(figure.lower, figure.upper))


def line(outcome: Outcome) -> str:
    """Return the line of a case below its question: variant and network, figure with interval,
    threshold, rounds, verdict."""
    judgement = outcome.judgement
    return _TABLE.row(
        label(outcome.comparison),
        figure_text(judgement.figure),
        must_be(judgement),
        f"{judgement.rounds}{'*' if outcome.taken_over else ''}",
        judgement.verdict.value,
    )


def by_question(cases: Iterable[Kind], of: Callable[[Kind], Comparison]) -> dict[str, list[Kind]]:
    """Return the cases by question and world size, such as "parity, np 2", in the order in which
    they come; the question of fault cases is "trust". of: returns the comparison of a case."""
    found: dict[str, list[Kind]] = {}
    for case in cases:
        comparison = of(case)
        name = comparison.topic if comparison.is_trial else comparison.question.value
        found.setdefault(f"{name}, np {comparison.world_size}", []).append(case)
    return found


def label(comparison: Comparison) -> str:
    """Return the network, after the variant if the question has several."""
    spec = comparison.question.spec
    variant = "" if spec.variant and not comparison.is_trial else comparison.variant
    if spec.variant and spec.has_variants and not comparison.is_trial:
        variant = comparison.reference.arm.strategy.spec.name
    return "  " + " ".join(filter(None, (variant, comparison.workload.model)))


def explanation(outcome: Outcome) -> str:
    """Return the explanation of a case that did not pass: its reason, and the end of the rank's
    stderr if a launch failed."""
    judgement, failure = outcome.judgement, outcome.failure
    parts = [f"{judgement.verdict.value}  {outcome.comparison.name}"]
    if judgement.figure is not None:
        covered = 100 * confidence(judgement.figure, judgement.rule, judgement.fail_alpha)
        held_to = f", limit {must_be(judgement)}" if judgement.rule else ""
        parts.append(
            f"  figure {figure_text(judgement.figure).strip()} ({covered:.0f} % interval, "
            f"{judgement.rounds} rounds){held_to}"
        )
    if judgement.reason:
        parts.append(f"  {judgement.reason}")
    if failure is not None and failure.tail:
        parts.append("  the end of its stderr:")
        parts += [f"    {text}" for text in failure.tail]
    return "\n".join(parts)


def errors_of_ranks(outcomes: Iterable[Outcome]) -> list[str]:
    """Return lines with the end of what failed ranks have written, once for each launch."""
    found: dict[str, Sequence[str]] = {}
    for outcome in outcomes:
        if outcome.failure is not None and outcome.failure.tail:
            found.setdefault(str(outcome.failure), outcome.failure.tail)
    lines = []
    for failure, tail in found.items():
        lines += ["", *wrapped(failure), "The end of its errors:"]
        lines += [f"    {text}" for text in tail[-MOST_LINES:]]
    return lines


def against(interpreter: str, changed: Sequence[str]) -> list[str]:
    """Return lines with the other stack and the differences of the session's own stack from it; []
    without --against."""
    if not interpreter:
        return []
    heading = (
        "Every figure is the speed of this session's stack / the speed of the stack of "
        f"{interpreter}. Differences from that stack to this one:"
    )
    return listed(heading, changed or ["none: both are the same stack"])


def table(
    outcomes: Sequence[Outcome], settings: Callable[[Comparison], str] = lambda _: ""
) -> list[str]:
    """Return the whole table, then each reason for verdicts that the figure does not explain, and
    the time breakdowns of trainings. settings: returns those that touch the figure of a comparison,
    in words; "" if there are none."""
    lines = [_TABLE.header]
    for question, group in by_question(outcomes, lambda outcome: outcome.comparison).items():
        lines.append(question)
        for outcome in group:
            lines.append(line(outcome))
            if touched := settings(outcome.comparison):
                lines += wrapped(touched, "    ", "      ")
    notes: dict[tuple[Verdict, str], dict[str, None]] = {}
    for outcome in outcomes:
        verdict, reason = outcome.judgement.verdict, outcome.judgement.reason
        if reason and verdict is not Verdict.NOT_JUDGED:
            notes.setdefault((verdict, reason), {})[outcome.comparison.name] = None
    for (verdict, reason), names in notes.items():
        lines += wrapped(f"{verdict.value} {', '.join(names)}: {reason}")
    for note in notes_on_fails(outcomes):
        lines += wrapped(note)
    lines += _long_steps(outcomes)
    lines += _breakdowns(outcomes)
    unjudged = (o for o in outcomes if o.judgement.verdict is Verdict.NOT_JUDGED)
    for reason in dict.fromkeys(outcome.judgement.reason for outcome in unjudged):
        lines += wrapped(f"NOT JUDGED: {reason}; shown only")
    if any(outcome.taken_over for outcome in outcomes):
        lines.append("*: measured before the session was resumed")
    return lines


def _long_steps(outcomes: Sequence[Outcome]) -> list[str]:
    """Return lines on the rare long steps of cases whose reason does not tell them, one for each
    arm."""
    found: dict[str, str] = {}
    for outcome in outcomes:
        arm = outcome.comparison.candidate.arm
        if outcome.judgement.verdict is Verdict.FAIL or arm.injected:
            continue
        rare = long_steps([each.of(arm) for each in outcome.rounds if each.has(arm)])
        if rare is not None:
            found.setdefault(arm.name, f"Rare long steps of {arm.name}: {rare}")
    return [line for text in found.values() for line in wrapped(text)]


def meaning_of_pass(outcomes: Sequence[Outcome]) -> list[str]:
    """Return lines on what the PASSes of this session do not exclude; [] if there are none.

    A PASS against a floor or a band allows the figure to fall by its distance from that limit. A
    PASS against another stack may miss what is smaller than the minimum detectable effect. Fault
    cases are left out, because their PASS means a detection.
    """
    passed = [outcome for outcome in outcomes if outcome.passed and not outcome.comparison.is_trial]
    above: dict[float, str] = {}
    effects: dict[float, str] = {}
    for outcome in passed:
        name, judgement = outcome.comparison.name, outcome.judgement
        if outcome.comparison.judged_as is JudgedAs.REGRESSION:
            if judgement.detectable_effect is not None:
                effects[judgement.detectable_effect] = name
        elif (distance := _above_limit(judgement)) is not None:
            above[distance] = name
    lines = []
    if above:
        lines += wrapped(
            "A PASS means that a figure meets its limit, not that nothing has become slower: these "
            f"are {_ends(above)} above theirs"
        )
    if effects:
        lines += wrapped(
            "Minimum detectable effect (a change that such a session finds in 90 %) of the cases "
            f"that PASS: {_ends(effects)}"
        )
    return lines


def _above_limit(judgement: Judgement) -> float | None:
    """Return how far a figure lies above the lowest value that its rule allows, as a share of that
    value; None if the rule has no such value."""
    rule, figure = judgement.rule, judgement.figure
    if figure is None or rule is None or isinstance(rule, Ceiling):
        return None
    lowest = rule.pass_from if isinstance(rule, Floor) else rule.low
    return figure.estimate / lowest - 1


def _ends(shares: Mapping[float, str]) -> str:
    """Return the least and the greatest share, each with the name of its case."""
    ends = dict.fromkeys((min(shares), max(shares)))
    return " to ".join(f"{_percent(share)} ({shares[share]})" for share in ends)


def _percent(share: float) -> str:
    """Return the share in %, with one digit after the point below 10 %, and none above."""
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"


def ending(status: int, verdicts: Sequence[Verdict]) -> str:
    """Return the meaning of the session's exit status, in one line. verdicts: on all of its
    cases."""
    count = Counter(verdicts)
    word = next((word for word, each in EXIT_STATUS.items() if each == status), None)
    told = _STATUSES.get(status, "pytest itself failed")
    if status == 0:
        told = f"{count[Verdict.PASS]} PASS"
        if count[Verdict.INCONCLUSIVE]:
            told += f", {count[Verdict.INCONCLUSIVE]} INCONCLUSIVE, which --inconclusive=ok allows"
    elif word is not None and count[word]:
        judged = sum(count[each] for each in EXIT_STATUS)
        told = f"{word.value}, {count[word]} of {judged} cases {_MEANINGS[word]} (see above)"
    return f"exit status {status}: {told}"


def _breakdowns(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the time breakdowns of trainings. The first case of a launch shows all of it; further
    cases show only what differs."""
    lines: list[str] = []
    told = set()
    for outcome in outcomes:
        comparison, breakdown = outcome.comparison, outcome.breakdown
        if breakdown is not None:
            launches = comparison.round_group, comparison.world_size
            lines += wall_time.lines(comparison, breakdown, briefly=launches in told)
            told.add(launches)
    return lines


def counts(outcomes: Sequence[Outcome]) -> str:
    """Return the number of cases by verdict, such as `3 PASS, 1 FAIL`."""
    return counted(Counter(each.judgement.verdict for each in outcomes)) or "nothing measured"
