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

from hvdperf.cli import WIDTH
from hvdperf.errors import UserError
from hvdperf.judge.outcome import Outcome
from hvdperf.results.archive import Archive
from hvdperf.results.documents import plain
from hvdperf.results.fingerprint import differences
from hvdperf.session.terminal.cases import label
from hvdperf.stats import Interval, NotMeasurable, shift
from hvdperf.toml_file import shown
from hvdperf.verdict import ALPHA, as_ratio

# Of what sessions were asked (hvdperf.session.resume.asked), with what any figure is another one.
_ANOTHER = (
    "plant",
    "against",
    "schedule",
    "sampling.min_block_seconds",
    "sampling.min_block_steps",
)
# With what those of whole runs are, but for how long they may take.
_RUNS, _DEADLINE = "runs.", "runs.deadline_s"


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


def new_series(
    archive: Archive, fingerprint: Mapping[str, Any], asked: Mapping[str, str]
) -> list[str]:
    """What is otherwise than it was in that session, a line each; empty if nothing is. asked: as
    from hvdperf.session.resume.asked."""
    earlier: Mapping[str, Any] = archive.cases[0].fingerprint
    changed = differences(earlier, plain(fingerprint))
    return changed + differences(_another(_asked_then(archive)), _another(asked))


def _asked_then(archive: Archive) -> Mapping[str, str]:
    """Nothing where the session does not say."""
    then: Mapping[str, str] = archive.session["asked"] if archive.session is not None else {}
    return then


def _another(asked: Mapping[str, str]) -> dict[str, str]:
    return {name: asked[name] or "(nothing)" for name in _ANOTHER if name in asked}


def _of_runs(asked: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in asked.items() if name.startswith(_RUNS) and name != _DEADLINE
    }


def changes(
    archive: Archive, outcomes: Sequence[Outcome], asked: Mapping[str, str]
) -> list[Change]:
    """Of every case that both sessions have measured soundly, asked alike. asked: as above."""
    earlier = {case.name: case for case in archive.cases if case.is_sound}
    runs_alike = _of_runs(_asked_then(archive)) == _of_runs(asked)
    found = []
    for outcome in outcomes:
        case = earlier.get(outcome.comparison.name)
        if case is None or outcome.judgement.figure is None or not case.asks(outcome.comparison):
            continue
        if outcome.comparison.question.work.is_run and not runs_alike:
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
