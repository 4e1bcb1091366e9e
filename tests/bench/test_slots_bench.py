"""The benchmark of slots, with few of them. No time is asserted."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench import slots
from bench.slots import COLUMNS, LIMITS, SIZES, TABLE, Figures, growth, limits, rows

ROOT = Path(__file__).resolve().parents[2]
FIGURES = Figures(
    ready=2.0,
    memory_bytes=9e8,
    idle_cores=0.001,
    order=0.01,
    start=1.0,
    gather=0.01,
    stopped_cores=0.1,
    stop=0.02,
    stop_skew=0.01,
    go_on=0.02,
    go_on_skew=0.01,
    kill=0.1,
    session_files=140,
    mpirun_files=160,
)


def test_every_figure_of_three_slots_is_measured():
    command = [sys.executable, "-m", "bench.slots", "3", "--idle", "0.1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    told, header, row, *reached = done.stdout.splitlines()
    assert "ulimit -n" in told
    assert header == TABLE.header
    size, kind, *cells = row.split()
    assert (size, kind) == ("3", "median")
    found = dict(zip(COLUMNS, map(float, cells), strict=True))
    # Two Python processes, and their connections beside those of two workers.
    assert found["a slot"] > 1
    assert found["files"] > 2 * 2
    assert found["of mpirun"] > 3
    assert len(reached) == len(LIMITS)


def test_the_extremes_follow_the_median():
    found = [replace(FIGURES, ready=ready) for ready in (3.0, 1.0, 2.0)]
    of_ready = [line.split() for line in rows(64, found)]
    assert of_ready[0][:3] == ["64", "median", "2.00"]
    assert of_ready[1][:2] == ["least", "1.00"]
    assert of_ready[2][:2] == ["greatest", "3.00"]


def test_a_slot_is_a_rank_above_0():
    (row,) = rows(91, [FIGURES])
    assert row.split()[4] == "10.00"  # 900 MB of 90 slots


def test_growth_is_compared_with_that_of_the_number_of_slots():
    twice, fourfold = replace(FIGURES, ready=4.0), replace(FIGURES, ready=8.0)
    assert growth({64: [FIGURES]}) == []
    assert "ready 1.00," in growth({64: [FIGURES], 128: [twice]})[0]
    assert "ready 2.00," in growth({64: [FIGURES], 128: [fourfold]})[0]
    assert "gather 0.50," in growth({64: [FIGURES], 128: [FIGURES]})[0]


def test_the_largest_number_is_compared_with_the_limits():
    late = replace(FIGURES, ready=10.5)
    ready, *others = limits({64: [FIGURES], 256: [late]})
    assert ready.startswith("256 slots, ready: 10.5, BEYOND")
    assert all("within" in line for line in others)


def test_a_process_is_seen_to_stop_and_to_go_on(monkeypatch):
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        try:
            assert len(slots.watch([sleeper.pid], stopped=False)) == 1
            monkeypatch.setattr(slots, "CHANGE_S", 0.05)
            with pytest.raises(TimeoutError, match="1 of 1 workers"):
                slots.watch([sleeper.pid], stopped=True)
        finally:
            sleeper.kill()


def test_the_documented_sizes_double():
    assert SIZES == (64, 128, 256)
