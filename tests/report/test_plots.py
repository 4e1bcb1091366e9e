"""Parts of plots that every section uses."""

from __future__ import annotations

from hvdperf.report import plots


def test_a_row_without_both_bounds_has_no_interval():
    rule = plots.interval("low", "high")
    assert rule["transform"] == [{"filter": "isValid(datum['low']) && isValid(datum['high'])"}]
    assert (rule["encoding"]["y"]["field"], rule["encoding"]["y2"]["field"]) == ("low", "high")
