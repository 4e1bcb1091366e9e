"""Shows a session's figures beside those of an earlier session, if the two can be compared.

There is no verdict, because the difference includes what changed on the machine between the two
sessions. A change of the stack is judged by --against, in one session.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hvdperf.columns import Columns, listed, number, wrapped
from hvdperf.errors import UserError
from hvdperf.paths import shown
from hvdperf.plan.question import LaunchMode
from hvdperf.records.archive import Archive
from hvdperf.records.fingerprint import Fingerprint, differences
from hvdperf.records.outcome import Outcome
from hvdperf.session.terminal.cases import by_question, label
from hvdperf.stats import Interval, NotMeasurable, shift
from hvdperf.verdict import ALPHA, as_ratio

_CHANGE = Columns(
    ("case", -27),
    ("then", 6),
    ("", 2),
    ("now", -6),
    ("change", 8),
    ("interval", -15),
    ("direction", 0),
)
_LENGTH_OF_BLOCKS = ("sampling.min_block_seconds", "sampling.min_block_steps")
# Settings (hvdperf.session.resume.asked) that change the meaning of a figure, by launch mode. The
# deadline of a run does not change it.
_SETTINGS: Mapping[LaunchMode, Sequence[str]] = {
    LaunchMode.BLOCKS: ("schedule", *_LENGTH_OF_BLOCKS),
    LaunchMode.STARTUP: (),
    LaunchMode.EPOCHS: ("runs.epochs", "runs.steps_max"),
    LaunchMode.TIME: ("runs.seconds",),
    LaunchMode.ENDURANCE: ("runs.endurance_steps",),
    LaunchMode.WALL_TIME: ("runs.wall_time_steps", "runs.ablation_turns", *_LENGTH_OF_BLOCKS),
    LaunchMode.COLLECTIVES: _LENGTH_OF_BLOCKS,
}
# Settings that begin a new series.
_ANOTHER = ("inject", "against", *_SETTINGS[LaunchMode.BLOCKS])


@dataclass(frozen=True)
class Change:
    """The change of one case. then, now: the figures of the earlier session and of this one. ratio:
    this session's figure over the earlier one's, with its interval."""

    outcome: Outcome
    then: float
    now: float
    ratio: Interval

    @property
    def word(self) -> str:
        """Return the direction of the change, as `direction` does."""
        return direction(self.ratio)


def baseline_session(archive: Archive, asked_by: str = "--baseline ") -> Archive:
    """Return the archive. Raises UserError if it has no case. asked_by: the option that gave its
    directory, for the message."""
    if not archive.cases:
        why = f": {archive.left_out[0]}" if archive.left_out else ""
        raise UserError(f"{asked_by}{shown(archive.directory)}: there is no case in it{why}")
    return archive


def ratio(now: Sequence[float | None], then: Sequence[float | None]) -> Interval | None:
    """Return the ratio of two sessions' figures with its interval. now, then: ln of the figure, one
    a round. Return None if one of them is without a value, or a number cannot hold the ratio."""
    ours, theirs = ([x for x in side if x is not None and math.isfinite(x)] for side in (now, then))
    try:
        return as_ratio(shift(ours, theirs, ALPHA))
    except NotMeasurable:
        return None


def direction(of: Interval) -> str:
    """Return "lower" or "higher" if a ratio differs from 1 with the confidence of its bounds, which
    is 97.5 % each for `ratio`; else ""."""
    if of.upper < 1:
        return "lower"
    return "higher" if of.lower > 1 else ""


def new_series(archive: Archive, fingerprint: Fingerprint, asked: Mapping[str, str]) -> list[str]:
    """Return the differences from an earlier session that begin a new series, one line each; [] if
    there are none. asked: this session's settings, from hvdperf.session.resume.asked."""
    changed = differences(archive.fingerprint, fingerprint)
    return changed + differences(_another(asked_of(archive)), _another(asked))


def asked_of(archive: Archive) -> Mapping[str, str]:
    """Return the settings of a session; {} if its session.json cannot be read."""
    return archive.session.asked.texts if archive.session is not None else {}


def _another(asked: Mapping[str, str]) -> dict[str, str]:
    return {name: asked[name] or "(nothing)" for name in _ANOTHER if name in asked}


def settings_of(asked: Mapping[str, str], work: LaunchMode) -> dict[str, str]:
    """Return the settings that change the meaning of figures of this launch mode. asked: all
    settings of a session."""
    return {name: asked[name] for name in _SETTINGS[work] if name in asked}


def changes(
    archive: Archive, outcomes: Sequence[Outcome], asked: Mapping[str, str]
) -> list[Change]:
    """Return the change of every case that has a figure here and a sound one in the earlier
    session, with the same plan and the same settings of its launches. asked: this session's
    settings."""
    earlier = {case.name: case for case in archive.cases if case.is_sound}
    then = asked_of(archive)
    found = []
    for outcome in outcomes:
        case = earlier.get(outcome.comparison.name)
        if (
            case is None
            or outcome.judgement.figure is None
            or case.comparison != outcome.comparison
        ):
            continue
        work = outcome.comparison.question.mode
        if settings_of(then, work) != settings_of(asked, work):
            continue
        changed = ratio(outcome.observations, case.outcome.observations)
        if changed is not None and case.figure is not None:
            now = outcome.judgement.figure.estimate
            found.append(Change(outcome, case.figure.estimate, now, changed))
    return found


def compared(
    archive: Archive,
    fingerprint: Fingerprint,
    asked: Mapping[str, str],
    outcomes: Sequence[Outcome],
) -> list[str]:
    """Return lines that compare a session's outcomes with an earlier session. fingerprint, asked:
    this session's, as in `new_series`."""
    series = new_series(archive, fingerprint, asked)
    found = [] if series else changes(archive, outcomes, asked)
    return lines(archive.directory, series, found)


def lines(directory: Path, series: Sequence[str], found: Sequence[Change]) -> list[str]:
    """Return lines of at most 80 columns: the changes, or why there are none."""
    name = shown(directory)
    if series:
        why = "a new series begins, because these differ:"
        return listed(f"not compared with {name}: {why}", series)
    result = wrapped(f"compared with {name}, of the same machine and stack:", others="")
    if not found:
        result.append("  no case has a figure in both sessions")
    for question, group in by_question(found, lambda change: change.outcome.comparison).items():
        result += [question, *map(_line, group)]
    return result


def _line(change: Change) -> str:
    told = change.ratio
    bounds = (
        f"[{_percent(told.lower)}, {_percent(told.upper)}]"
        if math.isfinite(told.upper)
        else "[-, -]"
    )
    return _CHANGE.row(
        label(change.outcome.comparison),
        number(change.then, 6, 3),
        "->",
        number(change.now, 6, 3),
        f"{_percent(told.estimate)} %",
        bounds,
        change.word,
    )


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}"
