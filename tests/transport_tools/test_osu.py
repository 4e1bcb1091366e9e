"""What the OSU micro-benchmarks print, and what is not understood of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hvdperf.plan.collectives import SWEEP_BYTES, Collective
from hvdperf.transport_tools.figures import NotUnderstood
from hvdperf.transport_tools.osu import PROGRAMS, arguments, parse

RECORDED = Path(__file__).parent / "recorded"
BROADCAST = (RECORDED / "osu_bcast_7.3.txt").read_text()


def recorded(name: str, collective: Collective, world_size: int):
    return parse((RECORDED / name).read_text(), collective, world_size)


@pytest.mark.parametrize(
    ("name", "collective", "world_size", "sizes", "last_seconds"),
    [
        ("osu_allreduce_7.5.txt", Collective.ALLREDUCE, 144, SWEEP_BYTES, 0.25187854),
        (
            "osu_bcast_7.3.txt",
            Collective.BROADCAST,
            128,
            [1 << n for n in range(16, 21)],
            986.45e-6,
        ),
        # Of an allgather every rank hands over so much.
        (
            "osu_allgather_7.5.2.txt",
            Collective.ALLGATHER,
            16,
            [16 << n for n in range(12, 21, 2)],
            1111.72e-6,
        ),
        (
            "osu_reduce_scatter_5.6.3.txt",
            Collective.REDUCESCATTER,
            2,
            [1 << n for n in (16, 18, 20)],
            520.80e-6,
        ),
    ],
)
def test_published_outputs_are_read(name, collective, world_size, sizes, last_seconds):
    figures = recorded(name, collective, world_size)
    assert [figure.size_bytes for figure in figures] == list(sizes)
    assert {figure.collective for figure in figures} == {collective}
    last = figures[-1]
    assert last.seconds == pytest.approx(last_seconds)
    assert last.algbw == pytest.approx(sizes[-1] / last_seconds / 1e9)
    assert last.busbw == pytest.approx(last.algbw * collective.bus_factor(world_size))


def test_where_the_slowest_rank_is_told_its_time_counts():
    last = recorded("osu_allgather_7.4_full.txt", Collective.ALLGATHER, 2)[-1]
    assert last.size_bytes == 2 << 20
    assert last.seconds == pytest.approx(104.33e-6)


def test_greetings_before_the_title_are_left_out():
    greeted = "[node:227754] SET UCX_NET_DEVICES=mlx5_2:1\n\n" + BROADCAST
    assert len(parse(greeted, Collective.BROADCAST, 128)) == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no title of an OSU benchmark in 0 lines"),
        ("This test requires at least two processes\n", "no title of an OSU benchmark in 1 lines"),
        (BROADCAST.replace("Broadcast", "Reduce"), r"line 2 .*Reduce.*not the benchmark of broad"),
        (BROADCAST.replace("MPI_CHAR.", "MPI_CHAR.\n1  2.0"), "line 4 .*before the names"),
        (BROADCAST.partition("# Size")[0], "a title, and no table"),
        ("\n".join(BROADCAST.splitlines()[:4]), "a table without rows"),
        (BROADCAST.replace("Avg Latency(us)", "Bandwidth (MB/s)"), "a table of Size, Bandwidth"),
        (BROADCAST + "Fatal error in MPI_Bcast\n", "line 10 .*Fatal error.*not the 2 columns"),
        (BROADCAST.replace("986.45", "986.45  7"), "line 9 .*not the 2 columns"),
        (BROADCAST.replace("986.45", "nan"), "line 9 .*not a size and its latencies"),
        (BROADCAST.replace("986.45", "-986.45"), "line 9 .*not a size and its latencies"),
        (BROADCAST.replace("986.45", "0.00"), "line 9 .*a time that is none"),
        (BROADCAST.replace("1048576", "9" * 400), "line 9 .*not a size and its latencies"),
        (BROADCAST.replace("1048576", "1M"), "line 9 .*not a size and its latencies"),
    ],
)
def test_what_is_not_understood_is_named_with_its_line(text, said):
    with pytest.raises(NotUnderstood, match=said):
        parse(text, Collective.BROADCAST, 128)


@pytest.mark.parametrize("collective", Collective)
def test_the_output_of_another_operation_is_refused(collective):
    if collective is Collective.BROADCAST:
        assert parse(BROADCAST, collective, 2)
    else:
        with pytest.raises(NotUnderstood, match=f"not the benchmark of {collective.value}"):
            parse(BROADCAST, collective, 2)


@pytest.mark.parametrize(
    ("collective", "world_size", "sizes"),
    [
        (Collective.ALLREDUCE, 4, "65536:134217728"),
        (Collective.REDUCESCATTER, 4, "65536:134217728"),
        (Collective.ALLGATHER, 4, "16384:33554432"),
        # Whole numbers of float32.
        (Collective.ALLGATHER, 3, "21844:44739240"),
    ],
)
def test_the_sizes_asked_for_are_those_of_the_sweep(collective, world_size, sizes):
    given = arguments(collective, world_size)
    assert given[given.index("-m") + 1] == sizes
    assert PROGRAMS.keys() == set(Collective)
