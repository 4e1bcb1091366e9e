"""What nccl-tests print, and what is not understood of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdperf.plan.collectives import SWEEP_BYTES, Collective
from hvdperf.transport_tools.figures import NotUnderstood
from hvdperf.transport_tools.nccl_tests import arguments, parse

RECORDED = Path(__file__).parent / "recorded"
GATHER = (RECORDED / "nccl_all_gather_2.18.0.txt").read_text()
ALONE = (RECORDED / "nccl_all_gather_alone_2.13.6.txt").read_text()


@pytest.mark.parametrize(
    ("name", "collective", "world_size", "sizes", "last"),
    [
        (
            "nccl_all_reduce_2.19.4.txt",
            Collective.ALLREDUCE,
            8,
            SWEEP_BYTES,
            (1295.41e-6, 103.61, 181.32),
        ),
        (
            "nccl_all_gather_2.18.0.txt",
            Collective.ALLGATHER,
            2,
            [1 << n for n in range(20, 24)],
            (2277.03e-6, 3.68, 1.84),
        ),
        (
            "nccl_reduce_scatter_2.18.0.txt",
            Collective.REDUCESCATTER,
            2,
            [1 << n for n in range(20, 24)],
            (2264.51e-6, 3.70, 1.85),
        ),
        (
            "nccl_broadcast_2.18.0.txt",
            Collective.BROADCAST,
            2,
            [1 << n for n in range(15, 19)],
            (1554.74e-6, 0.17, 0.17),
        ),
    ],
)
def test_published_outputs_are_read(name, collective, world_size, sizes, last):
    """Their sizes and bandwidths are defined as this suite's are."""
    figures = parse((RECORDED / name).read_text(), collective, world_size)
    assert [figure.size_bytes for figure in figures] == list(sizes)
    assert {figure.collective for figure in figures} == {collective}
    seconds, algbw, busbw = last
    assert figures[-1].seconds == pytest.approx(seconds)
    assert figures[-1].algbw == pytest.approx(algbw, abs=0.0051)
    assert figures[-1].busbw == pytest.approx(busbw, abs=0.0051)


def test_what_nccl_itself_says_before_the_table_is_left_out():
    greeted = GATHER.replace("# Using devices", "# Using devices\nNCCL version 2.29.7+cuda12.9")
    assert len(parse(greeted, Collective.ALLGATHER, 2)) == 4


def test_what_nccl_itself_says_after_the_table_is_left_out():
    assert len(parse(GATHER.rstrip() + "\nremote process exited\n", Collective.ALLGATHER, 2)) == 4


def test_numbers_that_nobody_has_checked_are_read():
    unchecked = GATHER.replace("0.24       0", "0.24     N/A")
    assert len(parse(unchecked, Collective.ALLGATHER, 2)) == 4


ROW = "     1048576        131072"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no table of nccl-tests"),
        (GATHER.partition("# Using")[0], "no table of nccl-tests"),
        (GATHER.partition(ROW)[0], "a table without rows"),
        (ALONE, "1 of 2 ranks took part: every rank is alone"),
        (GATHER.replace("all_gather_perf_mpi", "gather_perf"), "line 2 .*not the test of allgath"),
        (GATHER.replace(ROW, ROW + "  3"), "line 12 .*not the 13 columns"),
        (GATHER.replace(ROW, "node: NCCL WARN no\n" + ROW), "line 12 .*not the 13 columns"),
        (GATHER.replace("2197.40", "    nan"), "line 12 .*not a size with its time and bandwidths"),
        (GATHER.replace("2197.40", "   0.00"), "line 12 .*a time that is none"),
        (GATHER.replace(ROW, ROW.replace(ROW.split()[0], "9" * 400)), "line 12 .*not a size with"),
        (GATHER.replace("2197.40", "4394.80"), "line 12 .*would have 0.24 and 0.12 GB/s"),
        (GATHER.replace("0.24       0  2198", "0.24     128  2198"), "line 12 .*are wrong"),
        (GATHER.replace(": 0 OK", ": 50 FAILED"), "line 16 .*the numbers that came out are wrong"),
        (GATHER.replace("algbw   busbw", "bwalg   bwbus"), "line 12 .*not a size with its time"),
    ],
)
def test_what_is_not_understood_is_named_with_its_line(text, said):
    with pytest.raises(NotUnderstood, match=said):
        parse(text, Collective.ALLGATHER, 2)


def test_the_sizes_asked_for_are_those_of_the_sweep():
    given = arguments()
    assert [given[given.index(name) + 1] for name in ("-b", "-e")] == ["65536", "134217728"]
