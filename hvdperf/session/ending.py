"""What the end of a session says: the exit status and its meaning, why a case failed, and the
commands to type next."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hvdperf import verdict
from hvdperf.columns import WIDTH, figure_text, wrapped
from hvdperf.interim import looks_after
from hvdperf.launch.outer_mpirun import INTERRUPTED
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.options import resuming
from hvdperf.records.outcome import Outcome
from hvdperf.verdict import EXIT_STATUS, Judgement, Verdict

NOTHING_MEASURED = 5
# The machine is not fit to measure, and --require-fit was given; also that of `hvdperf doctor`.
UNFIT = 9
# Instead of 0, if something could not be written.
NOT_WRITTEN = 8
_MEANINGS = {
    Verdict.FAIL: "missed their limit or crashed",
    Verdict.INVALID: "cannot be trusted",
    Verdict.NOT_RUN: "were not measured",
    Verdict.INCONCLUSIVE: "could not be decided",
}
_STATUSES = {
    1: "something other than a case failed (see above)",
    INTERRUPTED: "interrupted; the cases decided so far are kept",
    4: "bad input (see the error)",
    NOTHING_MEASURED: "no case was judged",
    UNFIT: "this machine is not ready to measure, so nothing was measured (--require-fit)",
    NOT_WRITTEN: "all PASS, but some results were not written (see above)",
}


def exit_status(verdicts: Sequence[Verdict]) -> int:
    """Return the exit status of the worst verdict. It is 0 only if at least one case was judged and
    all judged cases PASS."""
    found = (status for word, status in EXIT_STATUS.items() if word in verdicts)
    return next(found, NOTHING_MEASURED)


def ending(status: int, verdicts: Sequence[Verdict], *interruptions: str) -> str:
    """Return the meaning of the session's exit status, in one line. verdicts: on all of its
    cases. interruptions: why it was interrupted, the first reason first, if that is known."""
    count = Counter(verdicts)
    worst = next((verdict for verdict, each in EXIT_STATUS.items() if each == status), None)
    if status == 0:
        meaning = f"{count[Verdict.PASS]} PASS"
    elif worst is not None and count[worst]:
        judged = sum(count[each] for each in EXIT_STATUS)
        meaning = f"{worst.value}, {count[worst]} of {judged} cases {_MEANINGS[worst]} (see above)"
    else:
        meaning = _STATUSES.get(status, "pytest itself failed")
        if status == INTERRUPTED and interruptions:
            meaning = meaning.replace("interrupted", f"interrupted by {interruptions[0]}", 1)
    return f"exit status {status}: {meaning}"


def explanation(outcome: Outcome) -> str:
    """Return the explanation of a case that did not pass: its reason, and the end of the rank's
    stderr if a launch failed."""
    judgement, failure = outcome.judgement, outcome.failure
    parts = [f"{judgement.verdict.value}  {outcome.comparison.name}"]
    if judgement.figure is not None:
        covered = 100 * verdict.confidence(judgement.figure, judgement.rule, judgement.fail_alpha)
        held_to = f", limit {verdict.must_be(judgement)}" if judgement.rule else ""
        rounds = "1 round" if judgement.rounds == 1 else f"{judgement.rounds} rounds"
        parts.append(
            f"  figure {figure_text(judgement.figure)} ({covered:.0f} % interval, "
            f"{rounds}){held_to}"
        )
    if judgement.reason:
        parts.append(f"  {judgement.reason}")
    if failure is not None and failure.tail:
        parts.append("  the end of its stderr:")
        parts += [f"    {text}" for text in failure.tail]
    return "\n".join(parts)


# More rounds than any session measures. If a case needs more, its estimate counts as being on its
# limit.
TOO_MANY_ROUNDS = 100


@dataclass(frozen=True)
class CommandLine:
    """The command line that started a session. arguments: pytest's. places: the files and
    directories among them. before: the words before pytest, such as `mpirun -np 4`."""

    arguments: Sequence[str]
    places: Sequence[str] = ()
    before: Sequence[str] = ()

    def __str__(self) -> str:
        """Return the command as it can be pasted into a shell."""
        return shlex.join([*self.before, "pytest", *self.arguments])

    def resumed(self, directory: str, minutes: int) -> list[str]:
        """Return the command that resumes the session for these minutes."""
        more = resuming(directory, minutes)
        return _lines([*self.before, "pytest", *self._without(*more[::2]), *more])

    def alone(self, node: str) -> list[str]:
        """Return the command that measures one case in a session of its own. node: pytest's name
        of the case."""
        kept = self._without("--resume", "-k", "-m")
        others = [each for each in kept if each not in self.places]
        return _lines([*self.before, "pytest", node, *others])

    def _without(self, *options: str) -> list[str]:
        """Return the arguments without these options, each of which takes a value."""
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
    """Return a command that can be pasted, on as many lines as it takes."""
    quoted = [shlex.quote(str(word)) for word in words]
    lines, line = [], " "
    for word in quoted:
        if line.strip() and len(line) + len(word) + len(" " + " \\") > WIDTH:
            lines.append(f"{line} \\")
            line = "   "
        line += f" {word}"
    return [*lines, line]


# Numbers of rounds ------------------------------------------------------------------------------


def rounds_needed(judgement: Judgement) -> float:
    """Return the number of rounds like these after which the interval would lie on one side of its
    limit: rounds (longer side of the interval / distance from the limit)^2, both in ln.

    The number is infinite if the estimate is on the limit, and 0 if there is no limit or no finite
    interval."""
    figure, rule = judgement.figure, judgement.rule
    if figure is None or rule is None or not verdict.is_bounded(figure):
        return 0.0
    at = math.log(figure.estimate)
    if isinstance(rule, verdict.Band):
        distance = min(abs(at - math.log(rule.low)), abs(at - math.log(rule.high)))
    elif isinstance(rule, verdict.Ceiling):
        distance = abs(at - math.log(rule.at_most))
    else:
        distance = max(at - math.log(rule.pass_from), math.log(rule.fail_below) - at)
    side = math.log1p(verdict.longer_side(figure))
    return judgement.rounds * (side / distance) ** 2 if distance > 0 else math.inf


def rounds_to_go(judgement: Judgement, looks: Sequence[int], precision: float = 0.0) -> float:
    """Return the number of rounds until the look that is likely to decide, infinite if none is; or,
    if precision is asked for, until the interval is likely to be as short."""
    rounds = judgement.rounds
    if precision:
        needed = verdict.rounds_until_precise(judgement.figure, rounds, precision)
        return max(math.ceil(needed if math.isfinite(needed) else looks[0]) - rounds, 1)
    needed = rounds_needed(judgement)
    if needed > TOO_MANY_ROUNDS:
        return math.inf
    at_least = max(math.ceil(needed), rounds + 1)
    further = looks_after(at_least - 1, looks)
    return next(look for look in further if look >= at_least) - rounds


# Lines -------------------------------------------------------------------------------------------


def next_steps(
    outcomes: Sequence[Outcome],
    looks: Sequence[int],
    seconds: float,
    resumed: Callable[[int | None], list[str]],
    alone: Callable[[Comparison], list[str]],
    precision: float = 0.0,
) -> list[str]:
    """Return a few lines with commands to paste; [] if no case is worth measuring again.

    looks: the profile's. precision: that is asked for, 0 for none. seconds: how long the session
    took. resumed: returns the command that resumes this session for a number of minutes; None for
    those of the profile. alone: returns the command for a single case.
    """
    cases = [
        outcome
        for outcome in outcomes
        if outcome.needs_rounds(precision) and not outcome.judgement.needs_longer_runs
    ]
    to_go = [(each, rounds_to_go(each.judgement, looks, precision)) for each in cases]
    reachable = [(each, int(rounds)) for each, rounds in to_go if math.isfinite(rounds)]
    on_limit = [each.comparison.name for each, rounds in to_go if math.isinf(rounds)]
    found: list[str] = []
    if reachable:
        most = max(rounds for _, rounds in reachable)
        count = Counter(outcome.judgement.verdict for outcome, _ in reachable)
        text = f"To decide {' and '.join(f'{count[w]} {w.value}' for w in Verdict if count[w])}"
        if precision:
            many = f"{len(reachable)} case{'s' * (len(reachable) > 1)}"
            text = f"For intervals of {100 * precision:g} % to either side in {many} more"
        text += f" (up to {most} more round{'s' * (most > 1)}"
        done = max(outcome.judgement.rounds for outcome in outcomes)
        minutes = math.ceil(seconds / 60 * most / done) if done else None
        text += f", about {minutes} min):" if minutes else "):"
        found += [*wrapped(text), *resumed(minutes)]
    if on_limit:
        found += wrapped(
            "The figures of these cases lie on their limits, so more rounds cannot decide "
            f"them: {', '.join(on_limit)}. Change the limit or the workload"
        )
    for word in (Verdict.FAIL, Verdict.INVALID):
        found += _to_see_again([o for o in outcomes if o.judgement.verdict is word], alone)
    return found


def launch_advice(outcomes: Sequence[Outcome], settings: Mapping[str, str]) -> list[str]:
    """Return what a launch by default costs, and the settings that are the suite's, to paste; [] if
    no case shows that it costs anything."""
    found = [
        (figure.estimate, outcome.comparison)
        for outcome in outcomes
        if outcome.comparison.candidate.arm.launched == "default"
        and (figure := outcome.judgement.figure) is not None
        and figure.upper < 1
    ]
    if not found:
        return []
    speed, slowest = min(found, key=lambda each: each[0])
    text = (
        f"Launched as Open MPI and TensorFlow have it by default, {slowest.workload.model} on "
        f"{slowest.world_size} ranks has {speed:.2f} of its speed here. Settings that launch your "
        "own training as this session does:"
    )
    return [*wrapped(text), "  " + " ".join(f"{name}={value}" for name, value in settings.items())]


def _to_see_again(
    outcomes: Collection[Outcome], alone: Callable[[Comparison], list[str]]
) -> list[str]:
    """Return the command that measures the first of these cases again. Cases that only lack a
    threshold are left out, because the table shows the line to add."""
    of_use = [outcome for outcome in outcomes if not outcome.threshold_line]
    if not of_use:
        return []
    first = of_use[0]
    many = f" (the first of {len(of_use)})" if len(of_use) > 1 else ""
    text = f"To repeat a case that is {first.judgement.verdict.value}, alone{many}:"
    return [*wrapped(text), *alone(first.comparison)]
