"""What other programs take of the session's cores: read, added up, and told."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvdperf.machine import disturbance as cpu_usage
from hvdperf.machine.disturbance import (
    DISTURBED_ABOVE,
    Culprit,
    Disturbance,
    Usage,
    foreign_share,
    is_disturbed,
    together,
)
from hvdperf.machine.placement import Slot
from tests.support.rounds import disturbance, usage

# Of a virtual machine with two cores, and one line of a larger one.
STAT = """\
cpu  35503 10 5700 142797 794 0 129 1502 0 0
cpu0 15779 7 2670 73935 96 0 24 725 0 0
cpu1 19724 3 3030 68862 697 0 105 776 0 0
cpu10 99999 99999 99999 99999 0 0 0 99999 0 0
intr 1245534 0 0
ctxt 5012345
"""
TMUX = (
    "2741 (tmux: server (1)) S 1 2741 2741 0 -1 4194560 1311 0 2 0 250 50 0 0 20 0 1 0 8113 "
    "12185600 1045 18446744073709551615 1 1 0 0 0 0 0 528386 134433281 0 0 0 17 1 0 0 0 0 0 0 0 0 "
    "0 0 0 0 0"
)
CGROUP_1 = "nr_periods 1201\nnr_throttled 800\nthrottled_time 41500000000\n"
CGROUP_2 = "usage_usec 1\nuser_usec 1\nnr_periods 1201\nnr_throttled 800\nthrottled_usec 41500000\n"


# Reading -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cores", "busy", "steal"), [((0, 1), 370.14, 15.01), ((1,), 205.03, 7.76), ((), 0.0, 0.0)]
)
def test_user_nice_and_steal_time_of_the_sessions_cores_is_busy(cores, busy, steal):
    assert cpu_usage.parse_busy(STAT, cores) == pytest.approx((busy, steal))


def test_a_process_is_read_whatever_its_name():
    assert cpu_usage.parse_process(TMUX) == cpu_usage.Process(
        2741, "tmux: server (1)", 1, 3.0, 8113, 1
    )


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(CGROUP_1, 41.5), (CGROUP_2, 41.5), ("usage_usec 1\n", 0.0), ("", 0.0), ("none\n", 0.0)],
)
def test_a_quota_tells_for_how_long_it_stopped_the_group(text, seconds):
    assert cpu_usage.parse_throttled(text) == seconds


def reading(at: float, busy: float = 0.0, own: float = 0.0, wait: float = 0.0) -> cpu_usage.Reading:
    return cpu_usage.Reading(
        at, 2, busy, 0.0, {7: own}, {"7": (own, wait), "8": (0.1, 9 * at)}, 0.0
    )


def test_usage_is_what_was_added_between_two_readings():
    before, after = reading(1.0, 5.0, 2.0, 0.5), reading(1.5, 5.75, 2.5, 0.75)
    assert cpu_usage.used(before, after, 1) == Usage(0.5, 2, 0.75, 0.5, 0.0, 0.25, 0.0)
    # Of as many threads as ranks have cores the wait counts.
    assert cpu_usage.used(before, after, 2).wait_seconds == 0.25 + 9 * 0.5
    # A process that has ended meanwhile takes nothing back.
    measured = cpu_usage.used(before, cpu_usage.Reading(2.0, 2, 1.0, 0.0, {}, {}, 0.0), 1)
    assert (measured.own_seconds, measured.wait_seconds) == (0.0, 0.0)


def test_a_host_without_slots_has_no_meter():
    assert cpu_usage.make_meter([Slot(0, "some-other-host", (0,))], 0.0) is None


# Who it was --------------------------------------------------------------------------------------


def stat_line(pid: int, name: str, parent: int, ticks: int, started: int = 1, core: int = 0) -> str:
    columns = ["S", str(parent), *["0"] * 9, str(ticks), "0", *["0"] * 6, str(started)]
    return f"{pid} ({name}) {' '.join(columns)} {'0 ' * 16}{core} 0"


def put(root: Path, *lines: str) -> None:
    """These processes, and no others."""
    for path in root.glob("proc/[0-9]*/stat"):
        path.unlink()
    for line in lines:
        directory = root / "proc" / line.partition(" ")[0]
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "stat").write_text(line)


def watched(root: Path, before: tuple[str, ...], after: tuple[str, ...]) -> tuple[Culprit, ...]:
    meter = cpu_usage.CpuMeter((0, 1), {100}, root=root)
    put(root, *before)
    meter.begin_watch()
    put(root, *after)
    meter.watch()
    return meter.disturbance([usage()]).culprits


def test_those_of_others_that_used_most_come_first(tmp_path):
    before = (stat_line(100, "pytest", 1, 50), stat_line(200, "make", 1, 50))
    after = (
        stat_line(100, "pytest", 1, 80),
        stat_line(101, "python", 100, 500),
        stat_line(102, "hvd-rank-0", 101, 500),
        stat_line(200, "make", 1, 100),
        stat_line(201, "cc1plus", 200, 90, core=1),
        stat_line(202, "idle", 200, 0),
    )
    assert watched(tmp_path, before, after) == (
        Culprit("cc1plus", 201, 0.9, (1,)),
        Culprit("make", 200, 0.5, (0,)),
    )


def test_a_process_with_the_number_of_an_earlier_one_is_another(tmp_path):
    before, after = stat_line(200, "old", 1, 400, started=1), stat_line(200, "new", 1, 50, 9)
    assert watched(tmp_path, (before,), (after,)) == (Culprit("new", 200, 0.5, (0,)),)


@pytest.fixture
def spinning() -> Iterator[tuple[int, int]]:
    """Two children that compute; nothing but the test knows which is the session's."""
    children = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    yield children[0].pid, children[1].pid
    for child in children:
        child.kill()
        child.wait()


def test_a_process_that_computes_is_seen_and_named_and_our_own_is_not(spinning):
    own, other = spinning
    meter = cpu_usage.CpuMeter(sorted(os.sched_getaffinity(0)), {own})
    meter.begin_watch()
    before, began = meter.read([own]), {pid: cpu_usage.user_seconds(pid) or 0.0 for pid in spinning}
    deadline = time.monotonic() + 60
    while any((cpu_usage.user_seconds(pid) or 0.0) < began[pid] + 0.2 for pid in spinning):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    measured = cpu_usage.used(before, meter.read([own]), 1)
    meter.watch()
    assert measured.own_seconds >= 0.2
    # Ticks of 10 ms are cut off at either end, of every core.
    assert measured.busy_seconds - measured.own_seconds > 0.1
    names = {culprit.pid: culprit.name for culprit in meter.disturbance([measured]).culprits}
    assert names[other].startswith("python")
    assert own not in names


# What it means -----------------------------------------------------------------------------------


def test_the_share_of_others_is_taken_over_a_whole_pair():
    assert foreign_share([usage(0.1)]) == pytest.approx(0.1)
    assert foreign_share([usage(0.3, wall_seconds=1.0), usage(0.0, wall_seconds=2.0)]) == (
        pytest.approx(0.1)
    )


@pytest.mark.parametrize("usages", [[], [usage(-0.2)], [Usage(0.0, 2, 1.0, 0.0, 0.0, 0.0, 0.0)]])
def test_what_cannot_be_is_nothing(usages):
    assert foreign_share(usages) == 0.0
    assert not is_disturbed([None, None, *usages])


def test_what_others_use_of_idle_cores_disturbs_nobody():
    idle, wanted = usage(0.5, wait=0.02), usage(0.5, wait=0.4)
    assert foreign_share([idle, idle]) == pytest.approx(0.5)
    assert not is_disturbed([idle, idle])
    assert is_disturbed([idle, wanted])
    # Nor do ranks that wait for each other.
    assert not is_disturbed([usage(0.01, wait=0.9)])


def test_who_took_the_cores_is_said_with_what_to_do():
    python, make = Culprit("python", 1234, 9.6, (1,)), Culprit("make", 77, 2.0, (0, 1))
    quiet = Culprit("sshd", 5, 0.1, (0,))
    reason = disturbance(0.31, 0.0, python, make, quiet).reason()
    assert "31 %" in reason
    assert "(python, pid 1234: 48 % of core 1; make, pid 77: 10 % of a core)" in reason
    assert "(not visible from here)" in disturbance(0.31).reason()


def test_time_stolen_by_the_hypervisor_is_nobodys_to_stop():
    stolen = Disturbance(0.0, Usage(10.0, 2, 16.0, 10.0, 5.0, 5.0, 0.0), 5.0, 20.0)
    assert "hypervisor" in stolen.reason()
    assert stolen.reason().endswith("when the host is idle")
    assert "stop" not in stolen.reason()


def test_a_quota_that_holds_the_session_back_disturbs_it_and_is_told():
    held_back = Usage(10.0, 2, 16.0, 15.9, 0.0, 5.0, 3.5)
    assert is_disturbed([held_back])
    told = Disturbance(0.0, held_back, held_back.taken_seconds, 20.0).reason()
    assert "quota of its cgroup withheld 3.5 s (18 %)" in told


def test_of_several_rounds_the_figures_are_added_up_and_too_much_of_one_disturbs_it():
    python, make = Culprit("python", 1234, 4.0, (1,)), Culprit("make", 77, 5.0, (0,))
    again = Culprit("python", 1234, 2.0, (0,))
    whole = together([disturbance(0.2, 3.0, make, python), None, disturbance(0.4, 9.0, again)])
    assert whole is not None
    assert whole.foreign_share == pytest.approx(0.3)
    assert whole.at == 3.0
    assert whole.culprits == (Culprit("python", 1234, 6.0, (0, 1)), make)
    assert whole.core_share(whole.culprits[0]) == pytest.approx(6 / 40)
    assert together([None]) is None
    assert disturbance(DISTURBED_ABOVE + 0.01).is_disturbed
    assert not disturbance(DISTURBED_ABOVE - 0.01).is_disturbed
