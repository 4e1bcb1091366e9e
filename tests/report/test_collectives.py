"""Bandwidths are medians over what was recorded, and say what the table of a session says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hvdperf.plan.arms import SWEEP_BYTES
from hvdperf.plan.questions import overlap
from hvdperf.records.documents import Case
from hvdperf.report.cases import number
from hvdperf.report.content import Figure
from hvdperf.report.sections.collectives import section
from tests.report.cases import case_with, changed, recorded, rounds_of, told
from tests.support.rounds import WORKLOAD, outcome

SWEPT = "collective_overhead-allreduce-sweep-np2"


def figures(*cases: Case) -> dict[str, Figure]:
    return told(section(cases))


def series(name: str, side: int, size: int) -> list[float]:
    """Return the seconds of one size and side, straight from the file, by round and turn."""
    return [
        float(np.median(np.max([rank["seconds"] for rank in each["ranks"]], axis=0)))
        for measured in rounds_of(name)
        for each in sorted(
            measured["launches"][side]["work"]["series"], key=lambda each: each["turn"]
        )
        if each["ranks"][0]["bytes"] == size
    ]


def test_bandwidths_are_medians_over_the_turns_that_were_recorded():
    found = figures(*recorded(SWEPT))["bandwidth-allreduce-np2"]
    assert [row["bytes"] for row in found.table.rows] == list(SWEEP_BYTES)
    for row in found.table.rows:
        for side, name in enumerate(("horovod", "bare")):
            size = int(row["bytes"] or 0)
            widths = [size / seconds / 1e9 for seconds in series(SWEPT, side, size)]
            for key, share in (("_low", 25), ("", 50), ("_high", 75)):
                assert row[name + key] == pytest.approx(np.percentile(widths, share))
        ours, theirs = (series(SWEPT, side, int(row["bytes"] or 0)) for side in (0, 1))
        ratios = np.array(ours) / np.array(theirs)
        assert row["overhead"] == pytest.approx(np.median(ratios))
        assert row["turns"] == len(ratios)


def test_a_turn_of_one_side_is_no_pair():
    def forget(document: dict[str, Any]) -> None:
        for measured in document["outcome"]["rounds"]:
            bare = measured["launches"][1]["work"]["series"]
            bare[:] = [each for each in bare if each["ranks"][0]["bytes"] > 65536]
            of_size = (each for each in bare if each["ranks"][0]["bytes"] == 262144)
            for rank in next(of_size)["ranks"]:
                rank["seconds"] = []

    (case,) = recorded(SWEPT)
    rows = figures(changed(case, forget))["bandwidth-allreduce-np2"].table.rows
    assert [row["bytes"] for row in rows] == list(SWEEP_BYTES[1:])
    turns = [number(row["turns"]) for row in rows]
    # One of each of the two rounds is gone.
    assert turns == [turns[-1] - 2, *[turns[-1]] * 5]


def test_a_step_lies_where_its_turns_do():
    found = figures(case_with(outcome(overlap(WORKLOAD, 2), [0.9] * 3)))
    (row,) = found["bandwidth-bound"].table.rows
    # 30 ms without exchange, and 10 ms for it.
    assert row["step_ms"] == pytest.approx(0.9 * 40)
    assert (row["all_hidden_ms"], row["nothing_hidden_ms"]) == pytest.approx((30, 40))
    assert row["of_nothing_hidden"] == pytest.approx(0.9)
    assert row["of_all_hidden"] == pytest.approx(36 / 30)
