"""The table of a sweep: 80 columns, a row a size, a group of three a collective operation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hvdperf.cli import WIDTH
from hvdperf.judge.outcome import Outcome
from hvdperf.plan.collectives import SWEEP_BYTES, Collective
from hvdperf.plan.questions import at_gradient_sizes, sweep, weak_scaling
from hvdperf.session.terminal.bandwidths import table
from hvdperf.transport_tools.figures import ToolRun, figure
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
        for launch in measured.launches.values():
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
        bare = measured.launches[first.comparison.reference.arm]
        bare.series = [replace(each, ranks=[series_report([])] * 2) for each in bare.series]
    assert table([first]) == []


# Other tools -----------------------------------------------------------------------------------


def with_tools(asked: Outcome, *runs: ToolRun) -> Outcome:
    return replace(asked, tools=runs)


def osu_run(collective: Collective, seconds: float, *sizes: int, **other: Any) -> ToolRun:
    figures = tuple(figure(collective, 2, size, seconds) for size in sizes)
    return ToolRun("osu", "/opt/osu_x", collective, 2, figures, **other)


def test_a_tool_has_a_row_below_each_size_that_it_has_measured():
    reduced, gathered, *_ = swept()
    run = osu_run(Collective.ALLGATHER, 0.005, SWEEP_BYTES[0], 131072, SWEEP_BYTES[4])
    _, legend, _, *rows = table([reduced, with_tools(gathered, run)])
    assert legend.startswith("osu, nccl: busbw of that tool")
    labels = [row.split()[0] for row in rows]
    assert labels[:2] == ["64", "osu"]
    assert labels.count("osu") == 2
    # 16 MiB in 5 ms, where Horovod takes 20; half of it goes over a link.
    row = rows[labels.index("16") + 1]
    assert row.split() == ["osu", "1.68", "4.00"]
    # Below the columns of its operation, and of the bare transport.
    assert row.index("1.68") == rows[labels.index("16")].index("0.84", 7 + 18 + 6)
    assert all(len(text) <= WIDTH for text in rows)


def test_both_tools_have_rows_of_their_own():
    (reduced, *_) = swept()
    runs = [osu_run(Collective.ALLREDUCE, 0.005, SWEEP_BYTES[0])]
    runs.append(replace(runs[0], tool="nccl"))
    rows = table([with_tools(reduced, *runs)])[3:]
    assert [row.split()[0] for row in rows[:4]] == ["64", "osu", "nccl", "256"]


def test_a_size_rounded_to_whole_parts_of_the_ranks_is_that_of_the_row():
    (reduced, *_) = swept(world_size=3)
    run = replace(osu_run(Collective.ALLREDUCE, 0.005, 3 * 21844), world_size=3)
    assert [row.split()[0] for row in table([with_tools(reduced, run)])[3:5]] == ["64", "osu"]


def test_tools_that_came_to_nothing_are_one_line_a_reason():
    reduced, gathered, *_ = swept()
    failed = osu_run(Collective.ALLREDUCE, 1.0, problem="ended with status 1: no such luck")
    lines = table([with_tools(reduced, failed), with_tools(gathered, failed)])
    assert lines[-1] == "not shown: osu_x on np 2: ended with status 1: no such luck"
    assert lines[:-1] == table([reduced, gathered])


def test_what_is_wrong_with_a_tool_is_told_where_nothing_was_measured():
    failed = outcome(sweep(WORKLOAD, 2)[0], (), RULE, Verdict.FAIL)
    run = osu_run(Collective.ALLREDUCE, 1.0, problem="had not ended after 120 s")
    assert table([with_tools(failed, run)]) == [
        "not shown: osu_x on np 2: had not ended after 120 s"
    ]
