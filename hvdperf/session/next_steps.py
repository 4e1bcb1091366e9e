"""What to type next, at the end of a session that has cases which did not PASS."""

from __future__ import annotations

import math
import shlex
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from hvdperf.cli import WIDTH
from hvdperf.interim import looks_after
from hvdperf.judge.outcome import Outcome
from hvdperf.judge.speedup import TOO_SHORT
from hvdperf.plan.arms import Comparison
from hvdperf.session.terminal.cases import label
from hvdperf.session.workload_run import STARTS_OF_A_RUN, starts_of
from hvdperf.verdict import Band, Ceiling, Judgement, Rule, Verdict, is_bounded

# More rounds than any session measures: the estimate is on its limit.
NEVER = 100
# Of a way to decide: how far the estimate is from a limit, and the bound that has to keep it.
_Way = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class CommandLine:
    """What a session was started with. before: such as `mpirun -np 4`. places: the files and
    directories among the arguments."""

    arguments: Sequence[str]
    places: Sequence[str] = ()
    before: Sequence[str] = ()

    def resumed(self, directory: str, minutes: int) -> list[str]:
        """The session goes on, in so many minutes."""
        kept = self._without("--budget", "--resume")
        return _lines([*self.before, "pytest", *kept, "--resume", directory, "--budget", minutes])

    def alone(self, node: str) -> list[str]:
        """One of its cases, in a session of its own. node: as pytest names it."""
        kept = self._without("--resume", "-k", "-m")
        others = [each for each in kept if each not in self.places]
        return _lines([*self.before, "pytest", node, *others])

    def _without(self, *options: str) -> list[str]:
        """Without these options, each of which takes a value."""
        kept, is_value = [], False
        joined = tuple(option + "=" * option.startswith("--") for option in options)
        for each in self.arguments:
            if each in options:
                is_value = True
            elif is_value or each.startswith(joined):
                is_value = False
            else:
                kept.append(each)
        return kept


def _lines(words: Iterable[object]) -> list[str]:
    """A command that can be pasted, on as many lines as it takes."""
    quoted = [shlex.quote(str(word)) for word in words]
    lines, line = [], " "
    for word in quoted:
        if line.strip() and len(line) + len(word) + len(" " + " \\") > WIDTH:
            lines.append(f"{line} \\")
            line = "   "
        line += f" {word}"
    return [*lines, line]


# How many rounds, and how long they take ---------------------------------------------------------


def rounds_needed(judgement: Judgement) -> float:
    """After how many rounds like these the interval would lie on one side of its limit: it shrinks
    as 1 / sqrt(rounds). Infinite where the estimate is on the limit; 0 where that is not known."""
    figure, rule = judgement.figure, judgement.rule
    if figure is None or rule is None or not is_bounded(figure):
        return 0.0
    below, above = (
        math.log(figure.estimate / figure.lower),
        math.log(figure.upper / figure.estimate),
    )

    def factor(way: _Way) -> float:
        if any(distance <= 0 for distance, _ in way):
            return math.inf
        return max((half / distance) ** 2 for distance, half in way)

    return judgement.rounds * min(map(factor, _ways(rule, figure.estimate, below, above)))


def _ways(rule: Rule, estimate: float, below: float, above: float) -> list[_Way]:
    """To PASS and to FAIL. below, above: the halves of the interval."""
    if isinstance(rule, Band):
        low, high = math.log(estimate / rule.low), math.log(rule.high / estimate)
        return [[(low, below), (high, above)], [(-low, above)], [(-high, below)]]
    if isinstance(rule, Ceiling):
        left = math.log(rule.at_most / estimate)
        return [[(left, above)], [(-left, below)]]
    return [
        [(math.log(estimate / rule.pass_from), below)],
        [(math.log(rule.fail_below / estimate), above)],
    ]


def rounds_to_go(judgement: Judgement, looks: Sequence[int]) -> float:
    """Until the look that is likely to decide; infinite where none is."""
    needed = rounds_needed(judgement)
    if needed > NEVER:
        return math.inf
    at_least = max(math.ceil(needed), judgement.rounds + 1)
    further = looks_after(at_least - 1, looks)
    return next(look for look in further if look >= at_least) - judgement.rounds


def seconds_of_a_start(outcomes: Sequence[Outcome], seconds: float) -> float | None:
    """What the launches of a session took per process, with all that they did. seconds: that it
    measured. None where it launched nothing."""
    launches = {
        (outcome.comparison.round_group, measured.number, arm)
        for outcome in outcomes
        for measured in outcome.rounds
        for arm in measured.launches
    }
    starts = sum(arm.processes + STARTS_OF_A_RUN * work.is_run for (_, work, _), _, arm in launches)
    return seconds / starts if starts else None


# In words ----------------------------------------------------------------------------------------


def lines(
    outcomes: Sequence[Outcome],
    looks: Sequence[int],
    seconds: float,
    resumed: Callable[[int | None], list[str]],
    alone: Callable[[Comparison], list[str]],
) -> list[str]:
    """A few lines, with commands to paste; none where every case passed or is not judged.

    looks: of the profile. seconds: that were measured. resumed: the command that goes on with this
    session for so many minutes, or for as many as the profile has; alone: the one for a single
    case."""
    undecided = [
        outcome
        for outcome in outcomes
        if outcome.judgement.verdict in (Verdict.INCONCLUSIVE, Verdict.NOT_RUN)
        and not outcome.judgement.reason.startswith(TOO_SHORT)
    ]
    to_go = [(each, rounds_to_go(each.judgement, looks)) for each in undecided]
    reachable = [(each, int(rounds)) for each, rounds in to_go if math.isfinite(rounds)]
    on_limit = [each for each, rounds in to_go if math.isinf(rounds)]
    found: list[str] = []
    if reachable:
        found += _to_decide(reachable, seconds_of_a_start(outcomes, seconds), resumed)
    if on_limit:
        names = ", ".join(" ".join(label(each).split()) for each in on_limit)
        found += _wrapped(
            f"No number of rounds decides what is on its limit: {names}. Change the limit, or what "
            "is measured"
        )
    for verdict in (Verdict.FAIL, Verdict.INVALID):
        found += _to_see_again([o for o in outcomes if o.judgement.verdict is verdict], alone)
    return found


def _to_decide(
    to_go: Sequence[tuple[Outcome, int]],
    seconds_of_start: float | None,
    resumed: Callable[[int | None], list[str]],
) -> list[str]:
    count = Counter(outcome.judgement.verdict for outcome, _ in to_go)
    words = " and ".join(f"{count[word]} {word.value}" for word in Verdict if count[word])
    most = max(rounds for _, rounds in to_go)
    minutes, took = None, ""
    if seconds_of_start is not None:
        minutes = max(1, math.ceil(_starts(to_go) * seconds_of_start / 60))
        took = f", about {minutes} min"
    of_each = f"up to {most} more rounds" if most > 1 else "one more round"
    return [*_wrapped(f"To decide {words} ({of_each}{took}):"), *resumed(minutes)]


def _starts(to_go: Sequence[tuple[Outcome, int]]) -> int:
    """Of all rounds to go; cases share their launches."""
    groups: dict[tuple[object, ...], dict[Comparison, int]] = {}
    for outcome, rounds in to_go:
        groups.setdefault(outcome.comparison.round_group, {})[outcome.comparison] = rounds
    return sum(max(group.values()) * starts_of(group) for group in groups.values())


def _to_see_again(
    outcomes: Collection[Outcome], alone: Callable[[Comparison], list[str]]
) -> list[str]:
    """The first of them. Where only a threshold is missing the table says what to do."""
    of_use = [outcome for outcome in outcomes if not outcome.threshold_line]
    if not of_use:
        return []
    first = of_use[0]
    many = f" (the first of {len(of_use)})" if len(of_use) > 1 else ""
    text = f"To measure what is {first.judgement.verdict.value} again, alone{many}:"
    return [*_wrapped(text), *alone(first.comparison)]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_long_words=False)
