"""A night that an earlier version wrote is read. Nights have no upgrade steps: what is added to the
records inside them (Row, Fingerprint) has to be optional."""

from __future__ import annotations

from pathlib import Path

from hvdperf.timeline.nights.night import read_nights
from hvdperf.timeline.nights.series import findings
from hvdperf.verdict import Verdict

RECORDED = Path(__file__).with_name("recorded")


def test_a_recorded_night_is_read_whole():
    found = read_nights(RECORDED)
    assert found.left_out == ()
    (night,) = found.of["two-cores"]
    assert (night.verdict, night.is_whole) == (Verdict.FAIL, True)
    lines = {line.name for line in findings([night]).lines}
    assert "weak_scaling[vgg_16_s-np2]" in lines
    assert "throughput[vgg_16_s-np2]" in lines
