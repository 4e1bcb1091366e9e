"""What makes a series slower than it was.

A night FAILs at once if most of its throughputs are far below those of the nights before it. A
change for the worse that lasts makes the series FAIL until it is repaired or accepted. Ratios alone
show neither: what slows every replica alike leaves them as they are.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import Enum
from itertools import accumulate
from math import log, log1p
from statistics import median

from hvdperf.timeline.lines import Change, throughput
from hvdperf.timeline.nights.by_date import UNCERTAIN, UNSOUND, marks
from hvdperf.timeline.nights.night import Night, Part
from hvdperf.timeline.steps import LEAST_CHANGE
from hvdperf.verdict import Verdict, worst

# How many sound nights a throughput is compared with, the fewest, and the share by which it has to
# be below the lowest of them. No quiet night of a simulated year comes near: docs/nightly.md.
EARLIER, FEWEST, FALL = 10, 5, 0.2
# So many lines that change within UNCERTAIN nights confirm each other.
TOGETHER = 3
# So many nights show that a line is back where it was.
BACK = 4
# The number of lines that a text names.
NAMED = 5
_WAITS = (
    "throughputs are not compared yet: that begins with the night after "
    f"{FEWEST} sound ones of this machine, and there are {{}}"
)
# Throughputs by network and world size.
Throughputs = Mapping[tuple[str, int], float]


@dataclass(frozen=True)
class Fall:
    """A night of which most throughputs fell. since: the first such night. usual: the last sound
    night before that. changes: of the lines that fell, the ratio to their median of the nights
    before. compared: the number of lines. disturbed: by what, in words; the night FAILs if it is
    ""."""

    night: Night
    since: Night
    usual: Night
    changes: Mapping[str, float]
    compared: int
    disturbed: str

    def lines(self) -> Iterator[str]:
        """Yield what fell, by how much and since when, and the command that looks closer."""
        told = [
            f"{name} {percent(change)}"
            for name, change in sorted(self.changes.items(), key=lambda each: each[1])
        ]
        yield (
            f"{len(told)} of {self.compared} throughputs fell since the night of "
            f"{self.since.night} by more than {100 * FALL:.0f} % below the lowest of the "
            f"sound nights up to {self.usual.night}: {named(told)}"
        )
        if self.disturbed:
            yield f"this is no FAIL, because the night was disturbed: {self.disturbed}"
        changed = marks([self.usual, self.since]).get(1)
        if changed:
            yield f"changed since {self.usual.night}: {'; '.join(changed)}"
        usual, own = self.usual.part(), self.night.part()
        if usual is not None and own is not None:
            yield (
                "look closer, where it was measured: hvdperf compare "
                f"results/runs/{usual.session} results/runs/{own.session}"
            )


def verdict_of(night: Night, fall: Fall | None) -> Verdict:
    """Return the verdict of a night, given its fall."""
    fell = fall is not None and not fall.disturbed
    return worst([night.verdict, Verdict.FAIL]) if fell else night.verdict


class Standing(Enum):
    """Whether a lasting change makes its series FAIL, and why not."""

    OPEN = "worse"
    BETTER = "better"
    REPAIRED = "worse, repaired"
    ACCEPTED = "worse, accepted"
    FASTER = "worse, as its network became faster"
    UNCONFIRMED = "worse, not confirmed yet"


def falls(nights: Sequence[Night], accepted: date = date.min) -> tuple[dict[int, Fall], str]:
    """Return the falls by index of their nights, and why the last night was not compared, or "".
    A night that fell is none that later ones are compared with, unless it was accepted."""
    earlier: dict[object, deque[tuple[Night, Throughputs]]] = defaultdict(lambda: deque(maxlen=EARLIER))
    found: dict[int, Fall] = {}
    since: Night | None = None
    waits = ""
    for index, night in enumerate(nights):
        part = night.part()
        if part is None or not part.speeds:
            continue
        before = earlier[_kind(part)]
        own = {
            (each.model, each.world_size): median(each.samples_per_second) for each in part.speeds
        }
        changes, compared = _fallen(own, [speeds for _, speeds in before])
        if 2 * len(changes) > compared:
            disturbed = part.disturbed
            since = since if since is not None or disturbed else night
            found[index] = Fall(night, since or night, before[-1][0], changes, compared, disturbed)
            if night.night > accepted:
                continue
        elif compared:
            since = None
        if night.verdict not in UNSOUND and not part.disturbed:
            before.append((night, own))
        waits = "" if compared else _WAITS.format(len(before))
    return found, waits


def _kind(part: Part) -> object:
    """Return the kind of machine and hosts. Drivers, clocks and settings are no part of it: they
    are what makes a series slower."""
    known = part.fingerprint
    names = (known["method"], known["cpu_model"], known["cores"], known["gpus"])
    return (*names, tuple(known["gpu_model"]), len(part.hosts))


def _fallen(own: Throughputs, before: Sequence[Throughputs]) -> tuple[dict[str, float], int]:
    """Return the changes of the lines that fell, and the number of lines that were compared."""
    found, compared = {}, 0
    for (model, size), speed in own.items():
        usual = [speeds[model, size] for speeds in before if (model, size) in speeds]
        if len(usual) < FEWEST:
            continue
        compared += 1
        if speed < (1 - FALL) * min(usual):
            found[throughput(model, size)] = speed / median(usual)
    return found, compared


def standings(changes: Sequence[Change], accepted: date = date.min) -> list[Standing]:
    """Return for each lasting change of a series whether it makes the series FAIL."""
    return [_standing(change, changes, accepted) for change in changes]


def _standing(change: Change, changes: Sequence[Change], accepted: date) -> Standing:
    if not change.is_worse:
        return Standing.BETTER
    if change.since <= f"{accepted}":
        return Standing.ACCEPTED
    later = [each for each in changes if each.line is change.line and each.at >= change.at]
    sign = -1 if change.line.lower_is_better else 1
    reached = accumulate(sign * log(each.step.change) for each in later)
    if any(level >= -log1p(LEAST_CHANGE) for level in reached) or _is_back(change):
        return Standing.REPAIRED
    together = [each for each in changes if abs(each.at - change.at) <= UNCERTAIN]
    # An efficiency falls, too, when one replica becomes faster.
    is_ratio = bool(change.line.verdicts) and not change.line.lower_is_better
    if is_ratio and any(
        not each.is_worse and not each.line.verdicts and each.line.model == change.line.model
        for each in together
    ):
        return Standing.FASTER
    worse = sum(each.is_worse for each in together)
    is_confirmed = change.step.is_confirmed or worse >= TOGETHER
    return Standing.OPEN if is_confirmed else Standing.UNCONFIRMED


def _is_back(change: Change) -> bool:
    """Return whether the last nights are all better than three quarters of the others since the
    change, and no worse than those before it. To find a change back takes many more nights."""
    line, step = change.line, change.step
    sign = -1 if line.lower_is_better else 1
    levels = [sign * log(figure) for figure in line.figures]
    since, last = levels[step.at : -BACK], levels[-BACK:]
    if step.until < len(levels) or len(since) < BACK:
        return False
    before = median(levels[max(0, step.at - EARLIER) : step.at])
    # The change may be placed a night too early, so not all of the others need to be worse.
    most = sorted(since)[3 * len(since) // 4 - 1]
    return min(last) > most and median(last) >= before - log1p(LEAST_CHANGE)


def named(told: Sequence[str]) -> str:
    more = len(told) - NAMED
    return ", ".join(told[:NAMED]) + (f", and {more} more" if more > 0 else "")


def percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"
