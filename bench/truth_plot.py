"""The plot of the truth table, as SVG: a row for each rule, a panel for each way to err, and one
for the time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

from bench.truth_data import SAME
from bench.truth_score import Score, Share

_LABELS, _PANEL, _GAP, _ROW, _TOP, _FOOT = 250, 110, 18, 22, 46, 34
_OURS, _OTHERS, _GRID, _TEXT = "#b3261e", "#33507a", "#dddddd", "#222222"
# Seconds at the marks of the panel of times.
_MARKS_S = (3, 10, 30, 100, 300, 1000)


def drawn(scores: Sequence[Score], titles: Mapping[str, str]) -> str:
    """Return the SVG. titles: of the panels of arms, by arm."""
    panels = [*titles, ""]
    width = _LABELS + len(panels) * (_PANEL + _GAP)
    height = _TOP + _ROW * len(scores) + _FOOT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for row, score in enumerate(scores):
        at = _TOP + _ROW * (row + 0.5)
        lines.append(_text(_LABELS - 10, at + 4, score.rule.name.replace("`", ""), "end"))
    for number, arm in enumerate(panels):
        left = _LABELS + number * (_PANEL + _GAP)
        if arm:
            lines += _of_shares(left, titles[arm], scores, arm)
        else:
            lines += _of_times(left, scores)
    return "\n".join([*lines, "</svg>", ""])


def _of_shares(left: float, title: str, scores: Sequence[Score], arm: str) -> list[str]:
    def place(share: float) -> float:
        return left + _PANEL * share

    bottom = _TOP + _ROW * len(scores)
    lines = _frame(
        left, title, [(place(mark), f"{100 * mark:.0f}") for mark in (0, 0.5, 1)], bottom
    )
    lines.append(_text(left + _PANEL / 2, bottom + 28, "% of trials", "middle"))
    for row, score in enumerate(scores):
        if (found := score.arms.get(arm)) is not None:
            share: Share = found.slower if arm == SAME else found.not_found
            lines += _mark(row, score, share.share, (share.low, share.high), place)
    return lines


def _of_times(left: float, scores: Sequence[Score]) -> list[str]:
    first, last = math.log(_MARKS_S[0]), math.log(_MARKS_S[-1])

    def place(seconds: float) -> float:
        share = (math.log(max(seconds, _MARKS_S[0])) - first) / (last - first)
        return left + _PANEL * min(share, 1.0)

    bottom = _TOP + _ROW * len(scores)
    marks = [(place(mark), f"{mark}") for mark in _MARKS_S[1::2]]
    lines = _frame(left, "time to verdict", marks, bottom)
    lines.append(_text(left + _PANEL / 2, bottom + 28, "seconds", "middle"))
    for row, score in enumerate(scores):
        if score.arms:
            middle, low, high = score.seconds
            lines += _mark(row, score, middle, (low, high), place)
    return lines


def _frame(left: float, title: str, marks: Sequence[tuple[float, str]], bottom: float) -> list[str]:
    lines = [
        _text(left + _PANEL / 2, _TOP - 24 + 12 * row, words, "middle")
        for row, words in enumerate(title.split("\n"))
    ]
    for at, words in marks:
        lines.append(f'<path d="M{at:.1f} {_TOP}V{bottom}" stroke="{_GRID}"/>')
        lines.append(_text(at, bottom + 14, words, "middle"))
    return lines


def _mark(
    row: int,
    score: Score,
    value: float,
    bounds: tuple[float, float],
    place: Callable[[float], float],
) -> list[str]:
    at, colour = _TOP + _ROW * (row + 0.5), _OURS if score.rule.ours else _OTHERS
    low, high = map(place, bounds)
    return [
        f'<path d="M{low:.1f} {at}H{high:.1f}" stroke="{colour}" stroke-width="2" '
        'stroke-opacity="0.5"/>',
        f'<circle cx="{place(value):.1f}" cy="{at}" r="4" fill="{colour}"/>',
    ]


def _text(x: float, y: float, words: str, anchor: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {place} fill="{_TEXT}">{escape(words)}</text>'
