"""Numbers of a sample, for tables."""

from __future__ import annotations

import math

from hvdperf.report.cases import finite, quantiles


def test_quantiles_lie_between_values():
    assert quantiles([4.0, 1.0, 2.0, 3.0], [0.0, 0.5, 0.75, 1.0]) == [1.0, 2.5, 3.25, 4.0]


def test_what_is_no_number_is_left_out():
    assert finite([1.0, None, math.nan, math.inf, 0.0]) == [1.0, 0.0]
