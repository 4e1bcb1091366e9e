"""Tonight's figures beside those of an earlier session, as far as the two can be compared.

Shown, and no verdict: what changed on the machine between two nights is in the difference, too. A
change of the stack is judged by --against, in one session.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.archive import Archive
from harness.errors import UserError
from harness.fingerprint import differences
from harness.outcome import Outcome
from harness.stats import Interval, NotMeasurable, shift
from harness.store import plain
from harness.summary import WIDTH, label
from harness.tomlfile import shown
from harness.verdict import as_ratio

# Of both sides: 95 % intervals where there are four rounds each or more.
ALPHA = 0.025


@dataclass(frozen=True)
class Change:
    """Of one case: ratio of tonight's figure to the earlier one's, with its interval."""

    outcome: Outcome
    then: float
    now: float
    ratio: Interval

    @property
    def word(self) -> str:
        """Whether it is surely another figure."""
        return direction(self.ratio)


def baseline_session(archive: Archive, asked_by: str = "--baseline ") -> Archive:
    """The archive itself. Raises UserError if it has no case to compare with. asked_by: what the
    directory was the value of."""
    if not archive.cases:
        why = f": {archive.left_out[0]}" if archive.left_out else ""
        raise UserError(f"{asked_by}{shown(archive.directory)}: there is no case in it{why}")
    return archive


def ratio(now: Sequence[float | None], then: Sequence[float | None]) -> Interval | None:
    """Of two sessions' figures, from their logarithms, a round each, with its interval; None where
    one of them has none, or a number cannot hold it."""
    ours, theirs = ([x for x in side if x is not None and math.isfinite(x)] for side in (now, then))
    try:
        return as_ratio(shift(ours, theirs, ALPHA))
    except NotMeasurable:
        return None


def direction(of: Interval) -> str:
    """Whether a ratio is surely not 1: "lower", "higher" or empty."""
    if of.upper < 1:
        return "lower"
    return "higher" if of.lower > 1 else ""


def new_series(archive: Archive, fingerprint: Mapping[str, Any]) -> list[str]:
    """What is otherwise than it was in that session, a line each; empty if nothing is."""
    earlier: Mapping[str, Any] = archive.cases[0].fingerprint
    return differences(earlier, plain(fingerprint))


def changes(archive: Archive, outcomes: Sequence[Outcome]) -> list[Change]:
    """Of every case that both sessions have measured soundly, asked alike."""
    earlier = {case.name: case for case in archive.cases if case.is_sound}
    found = []
    for outcome in outcomes:
        case = earlier.get(outcome.comparison.name)
        if case is None or outcome.judgement.figure is None or not case.asks(outcome.comparison):
            continue
        changed = ratio(outcome.observations, case.document["observations"])
        if changed is not None and case.figure is not None:
            now = outcome.judgement.figure.estimate
            found.append(Change(outcome, case.figure.estimate, now, changed))
    return found


def lines(directory: Path, series: Sequence[str], found: Sequence[Change]) -> list[str]:
    """For people, at most 80 columns."""
    name = shown(directory)
    if series:
        said = f"not compared with {name}: a new series begins, for there is now"
        wrapped = textwrap.wrap(said, WIDTH, break_long_words=False)
        for text in series:
            wrapped += textwrap.wrap(
                text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False
            )
        return wrapped
    result = textwrap.wrap(
        f"compared with {name}, of the same machine and stack:", WIDTH, break_long_words=False
    )
    if not found:
        result.append("  no case of both sessions has a figure")
    for change in found:
        told = change.ratio
        bounds = (
            f"[{_percent(told.lower)}, {_percent(told.upper)}]"
            if math.isfinite(told.upper)
            else "[-, -]"
        )
        result.append(
            f"  {label(change.outcome)} {change.then:>6.3f} -> {change.now:<6.3f} "
            f"{_percent(told.estimate):>6} % {bounds:<15} {change.word}".rstrip()
        )
    return result


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}"
