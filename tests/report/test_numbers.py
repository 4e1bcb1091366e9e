"""Quantiles are numpy's, and what is no number is left out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdperf.report.numbers import finite, quantiles

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50)


@given(VALUES, st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_quantiles_are_numpys(values, shares):
    expected = np.quantile(values, shares)
    assert quantiles(values, shares) == pytest.approx(list(expected), rel=1e-9, abs=1e-6)


def test_no_values_have_no_quantiles():
    with pytest.raises(ValueError, match="no values"):
        quantiles([], [0.5])


def test_what_is_no_number_is_left_out():
    assert finite([1.0, None, math.nan, math.inf, 0.0]) == [1.0, 0.0]
