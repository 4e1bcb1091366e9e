"""The table of a sweep: 80 columns, a row a size, a group of three a collective operation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hvdperf.columns import WIDTH
from hvdperf.plan.collectives import SWEEP_BYTES
from hvdperf.plan.questions import at_gradient_sizes, sweep, weak_scaling
from hvdperf.session.terminal.bandwidths import table
from hvdperf.verdict import Ceiling, Verdict
from tests.support.rounds import WORKLOAD, outcome, series_report

RULE = Ceiling(20.0, unit="")


def swept(ratio: float = 2.0, world_size: int = 2):
    return [outcome(asked, [ratio] * 2, RULE) for asked in sweep(WORKLOAD, world_size)]


def test_every_size_has_a_row_of_bandwidths_and_ratios():
    title, header, *rows = table(swept())
    assert title.startswith("np 2: busbw in GB/s")
    assert header.split() == ["size", "allreduce", "allgather", "broadcast", "reducescatter"]
    assert len(rows) == len(SWEEP_BYTES)
    # 16 MiB in 10 ms bare, twice that through Horovod; the factors at 2 ranks are 1, 1/2, 1, 1/2.
    assert rows[4].split() == [
        *("16", "MB"),
        *("0.84", "1.68", "2.00"),
        *("0.42", "0.84", "2.00"),
        *("0.84", "1.68", "2.00"),
        *("0.42", "0.84", "2.00"),
    ]


@pytest.mark.parametrize("ratio", [0.001, 1.0, 123.456, 98765.0])
def test_no_row_is_wider_than_a_terminal(ratio):
    lines = table(swept(ratio))
    assert [text for text in lines if len(text) > WIDTH] == []
    assert len({len(text) for text in lines[1:]}) == 1


def test_every_world_size_has_a_table():
    lines = table([*swept(), *swept(world_size=4)])
    assert [text[:5] for text in lines if "busbw" in text] == ["np 2:", "np 4:"]


def test_only_what_was_asked_has_columns():
    header = table(swept()[1:2])[1]
    assert header.split() == ["size", "allgather"]


def test_a_size_that_was_not_measured_leaves_its_columns_empty():
    first, second, *_ = swept()
    for measured in second.rounds:
        for launch in measured.launches:
            launch.series = [s for s in launch.series if sum(s.transfer.tensor_bytes) > 65536]
    row = table([first, second])[2]
    assert row.split()[:2] == ["64", "KB"]
    assert len(row.split()) == 2 + 3


def test_without_a_sweep_there_is_no_table():
    others = [at_gradient_sizes(WORKLOAD, 2), weak_scaling(WORKLOAD, 2)]
    assert table([outcome(asked, [1.0]) for asked in others]) == []
    assert table([outcome(sweep(WORKLOAD, 2)[0], (), RULE, Verdict.FAIL)]) == []


def test_what_has_no_times_is_left_out():
    (first, *_) = swept()
    for measured in first.rounds:
        bare = measured.of(first.comparison.reference.arm)
        bare.series = [replace(each, ranks=[series_report([])] * 2) for each in bare.series]
    assert table([first]) == []
