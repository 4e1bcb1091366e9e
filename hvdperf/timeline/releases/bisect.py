"""Finds the release that changed a figure by bisection over new comparisons, not stored figures.

Pure: the caller compares two releases (hvdperf/timeline/releases/side_by_side.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


class Answer(Enum):
    """The result of comparing the newer of two releases with the older one."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "the same"
    UNDECIDED = "undecided"
    NOT_BUILT = "not built"

    @property
    def is_change(self) -> bool:
        return self in (Answer.SLOWER, Answer.FASTER)

    @property
    def is_known(self) -> bool:
        return self is Answer.SAME or self.is_change


Compare = Callable[[str, str], Answer]


@dataclass(frozen=True)
class Found:
    """The result of a search.

    answer: the last release compared with the first. If that is a change, changed is the oldest
    release that was found to have it, and unchanged the newest release before it that was found not
    to have it. unknown: the releases between these two without an answer, each with the reason.
    """

    answer: Answer
    unchanged: str
    changed: str
    unknown: Mapping[str, Answer] = field(default_factory=dict)


def bisect(releases: Sequence[str], compare: Compare) -> Found:
    """Return where the change from the first to the last release came. releases: at least two,
    oldest first.

    Each release is compared with the first one, so that no errors add up: first the last release,
    and then at most ceil(log2(n - 1)) of those between, if each gives an answer. If a release gives
    no answer, its neighbour is compared instead.
    """
    low, high = 0, len(releases) - 1
    sought = compare(releases[low], releases[high])
    unknown: dict[int, Answer] = {}
    while sought.is_change:
        between = [place for place in range(low + 1, high) if place not in unknown]
        if not between:
            break
        middle = min(between, key=lambda place: abs(2 * place - low - high))
        answer = compare(releases[0], releases[middle])
        if not answer.is_known:
            unknown[middle] = answer
        elif answer is sought:
            high = middle
        else:
            low = middle
    return Found(
        sought,
        releases[low],
        releases[high],
        {releases[place]: unknown[place] for place in sorted(unknown) if low < place < high},
    )


def conclusion(found: Found) -> str:
    """Return the result for people, in one or two sentences."""
    old, new = found.unchanged, found.changed
    if not found.answer.is_change:
        said = {
            Answer.SAME: f"{new} does not differ from {old}: there is no change to find",
            Answer.UNDECIDED: f"{new} compared with {old} is undecided, so no change can be found",
            Answer.NOT_BUILT: f"{new} cannot be compared with {old}: one of them cannot be built",
        }
        return said[found.answer]
    word = found.answer.value
    if not found.unknown:
        return f"{new} is the release that is {word}; {old}, the one before, is not"
    why = ", ".join(f"{release} is {answer.value}" for release, answer in found.unknown.items())
    return (
        f"{word} since {new} or a release between {old} and {new}; which one is unknown, "
        f"because {why}"
    )
