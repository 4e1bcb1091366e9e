"""Reports which release changed a figure, from stored figures: change points of all lines, as text.

Both directions are reported: a slow-down is a regression, and a speed-up that nobody can explain is
suspicious. Pure: lines and their change points in, text out. docs/changes.md says how often the
report errs. A machine that differs between sessions looks like a change, too; `hvdperf bisect`
separates the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median

from hvdperf.columns import Columns, wrapped
from hvdperf.history.lines import Line
from hvdperf.history.otava import ChangePoint
from hvdperf.history.releases import Axis

# For a simulated step of 5 %, 85 % of the change points lie within this distance at a noise of 3 %,
# and 94 % at a noise of 2 %. For a step of 10 % all do.
NEAR_LAUNCHES = 3
NAMES = {Axis.HOROVOD: "Horovod", Axis.TENSORFLOW: "TensorFlow"}
_TABLE = Columns(
    ("  model", -17),
    ("np", 3),
    ("since", -8),
    ("before", -8),
    ("size", 7),
    ("p", 9),
    ("what", 0),
)


@dataclass(frozen=True)
class Change:
    """A change between two sessions of a line, or within one session.

    before, since: the releases of the earlier and the later session, which may be the same. size:
    the relative change of the two sessions' medians, or the size that was found within a session;
    negative if it got slower. p_value: of the change point.
    """

    line: Line
    before: str
    since: str
    size: float
    p_value: float

    @property
    def is_of_release(self) -> bool:
        """Return whether a release may have caused the change. If not, the machine caused it."""
        return self.before != self.since

    @property
    def word(self) -> str:
        if not self.is_of_release:
            return "the machine"
        return "slower: regression" if self.size < 0 else "faster: explain it"


def change_of(line: Line, found: ChangePoint) -> Change:
    """Return the change that a change point stands for.

    Noise may shift a change point by NEAR_LAUNCHES: within this distance it belongs to the nearest
    beginning of a session. Farther away it lies within a session, which is of one release."""
    sessions = [(point.version, point.session) for point in line.points]
    beginnings = [i for i in range(1, len(sessions)) if sessions[i] != sessions[i - 1]]

    def distance(index: int) -> tuple[int, bool]:
        within_release = sessions[index][0] == sessions[index - 1][0]
        return abs(index - found.index), within_release

    index = min(beginnings, key=distance)
    if abs(index - found.index) > NEAR_LAUNCHES:
        return Change(line, found.version, found.version, found.size, found.p_value)
    earlier, later = (
        median(p.samples_per_second for p in line.points if (p.version, p.session) == session)
        for session in (sessions[index - 1], sessions[index])
    )
    return Change(
        line, sessions[index - 1][0], sessions[index][0], later / earlier - 1, found.p_value
    )


def can_change(line: Line) -> bool:
    """Return whether the line has two releases or more to change between."""
    return len(line.versions) > 1


def report(lines: Sequence[Line], found: Sequence[Sequence[ChangePoint]]) -> list[str]:
    """Return the report for people, in at most 80 columns. lines: those that can change. found: the
    change points of each line."""
    changes = [
        change_of(line, point)
        for line, points in zip(lines, found, strict=True)
        for point in points
    ]
    text: list[str] = []
    for heading, alike in groupby(sorted(changes, key=_heading), key=_heading):
        text += [*wrapped(heading), _TABLE.header, *map(_row, alike), ""]
    text += wrapped(_summary(len(lines), changes))
    of_releases = [change for change in changes if change.is_of_release]
    if of_releases:
        text += _advice(max(of_releases, key=lambda change: abs(change.size)))
    return text


def _heading(change: Change) -> str:
    line = change.line
    return (
        f"{line.machine}: releases of {NAMES[line.axis]}, with {NAMES[line.axis.other]} {line.at}; "
        f"{line.replica}"
    )


def _row(change: Change) -> str:
    line = change.line
    p_value = f"{change.p_value:.6f}" if change.p_value else "<0.000001"
    return _TABLE.row(
        f"  {line.model}",
        line.world_size,
        change.since,
        change.before,
        f"{100 * change.size:+.1f} %",
        p_value,
        change.word,
    )


def _summary(lines: int, changes: Sequence[Change]) -> str:
    of_releases = [change for change in changes if change.is_of_release]
    slower = sum(change.size < 0 for change in of_releases)
    said = f"{lines} lines of two releases or more: {slower} changes to slower, "
    said += f"{len(of_releases) - slower} to faster"
    within = len(changes) - len(of_releases)
    return f"{said}; {within} by the machine" if within else said


def _advice(change: Change) -> list[str]:
    line = change.line
    return [
        *wrapped(
            "A change of the machine between two sessions looks the same. To be sure, compare "
            "the releases side by side, for example:"
        ),
        f"  hvdperf bisect --along {line.axis.value} --at {line.at} \\",
        f"    --from {change.before} --to {change.since} --model {line.model} "
        f"--np {line.world_size}",
    ]
