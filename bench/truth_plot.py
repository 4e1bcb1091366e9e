"""The plot of the truth table, as SVG: a row for each rule, a panel for each way to err, and one
for the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import vl_convert

from bench.truth_data import SAME
from bench.truth_score import Score
from hvdperf.report.formats.figures import VEGA_LITE

_OURS, _OTHERS = "#b3261e", "#33507a"
_SHARE = {"domain": [0, 1]}
# Seconds, of which less than the first counts as that.
_TIME = {"type": "log", "domain": [3, 1000], "clamp": True, "nice": False}


def drawn(scores: Sequence[Score], titles: Mapping[str, str]) -> str:
    """Return the SVG. titles: of the panels of arms, by arm."""
    names = [_name(score) for score in scores]
    panels = []
    for arm, title in titles.items():
        rows = []
        for score in scores:
            if (found := score.arms.get(arm)) is not None:
                share = found.slower if arm == SAME else found.not_found
                rows.append(_row(score, share.share, share.low, share.high))
        axis = {"format": ".0%", "values": [0, 0.5, 1], "title": "of trials"}
        panels.append(_panel(title, rows, names, _SHARE, axis))
    rows = [_row(score, *score.seconds) for score in scores if score.arms]
    axis = {"values": [10, 100, 1000], "format": "d", "title": "seconds"}
    panels.append(_panel("time to verdict", rows, names, _TIME, axis))
    # The names of the rules stand once.
    del panels[0]["encoding"]["y"]["axis"]
    spec = {"hconcat": panels, "config": {"axis": {"labelLimit": 250, "title": None}}}
    return str(vl_convert.vegalite_to_svg(spec, VEGA_LITE, allowed_base_urls=[])) + "\n"


def _name(score: Score) -> str:
    return score.rule.name.replace("`", "")


def _row(score: Score, value: float, low: float, high: float) -> dict[str, Any]:
    colour = _OURS if score.rule.ours else _OTHERS
    return {"rule": _name(score), "colour": colour, "value": value, "low": low, "high": high}


def _panel(
    title: str,
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    scale: Mapping[str, Any],
    axis: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a panel. names: of all rules, in their order."""
    low = {"field": "low", "type": "quantitative", "scale": scale, "axis": axis}
    y = {"field": "rule", "type": "nominal", "scale": {"domain": names}, "axis": None}
    return {
        "title": {"text": title.split("\n"), "fontSize": 11},
        "width": 110,
        "height": {"step": 22},
        "data": {"values": rows},
        "encoding": {"y": y, "color": {"field": "colour", "type": "nominal", "scale": None}},
        "layer": [
            {
                "mark": {"type": "rule", "opacity": 0.5},
                "encoding": {"x": low, "x2": {"field": "high"}},
            },
            {
                "mark": {"type": "circle", "size": 50, "opacity": 1},
                "encoding": {"x": {"field": "value", "type": "quantitative"}},
            },
        ],
    }
