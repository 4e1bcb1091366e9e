"""What makes a host unfit to measure: made-up machines, and this one, really disturbed."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from hvdperf.machine.cpu_usage import CpuMeter
from hvdperf.machine.fitness import Check, host_checks, load_check
from hvdperf.machine.host import Machine, local_machine
from tests.support.filesystems import fill, small_disk

BUSY = "import itertools\nfor _ in itertools.count(): pass"
ROOT = Path(__file__).resolve().parents[2]


def checks_of(machine: Machine, root: Path, slots: int = 2) -> dict[str, Check]:
    return {check.name: check for check in host_checks(machine, slots, ROOT / "results", root)}


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host with 8 GiB of free memory, and this one's /dev/shm."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text(
        "MemTotal:       16318480 kB\nMemFree:          812345 kB\nMemAvailable:    8388608 kB\n"
    )
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/shm").symlink_to("/dev/shm")
    return tmp_path


def test_a_sound_machine_has_no_problem(host: Path) -> None:
    machine = Machine("node1", (0, 1), cpu_model="AMD EPYC", governor="performance", smt=True)
    found = checks_of(machine, host)
    assert [check for check in found.values() if check.problem] == []
    assert found["SMT"].value == "on; a slot takes one thread of each core"
    assert found["memory"].value == "8.0 GiB free"


@pytest.mark.parametrize("governor", ["powersave", "ondemand", "performance/schedutil"])
def test_a_frequency_that_follows_the_load_is_unfit(host: Path, governor: str) -> None:
    check = checks_of(Machine("node1", (0,), governor=governor), host)["governor"]
    assert check.complaint == (
        f"governor: {governor}: the frequency follows the load, and so does every step time; "
        "sudo cpupower frequency-set -g performance"
    )


@pytest.mark.parametrize(("limit", "problem"), [("3500000", ""), ("1200000", "it is limited")])
def test_a_limited_frequency_is_unfit(host: Path, limit: str, problem: str) -> None:
    directory = host / "sys/devices/system/cpu/cpu1/cpufreq"
    directory.mkdir(parents=True)
    (directory / "scaling_max_freq").write_text(f"{limit}\n")
    (directory / "cpuinfo_max_freq").write_text("3500000\n")
    check = checks_of(Machine("node1", (0, 1)), host)["frequency"]
    assert check.problem == problem
    assert check.value == f"up to {int(limit) / 1e6:.2f} of 3.50 GHz"


def test_too_little_memory_for_the_slots_is_unfit(host: Path) -> None:
    check = checks_of(Machine("node1", tuple(range(16))), host, slots=16)["memory"]
    assert check.problem == "16 slots need 16.0 GiB"


def test_the_memory_of_a_container_counts(host: Path) -> None:
    group = host / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (host / "proc/self").mkdir()
    (host / "proc/self/cgroup").write_text("0::/\n")
    mount = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    (host / "proc/self/mountinfo").write_text(mount)
    (group / "memory.max").write_text(f"{3 * 2**30}\n")
    (group / "memory.current").write_text(f"{2**30 + 2**29}\n")
    check = checks_of(Machine("node1", (0, 1)), host)["memory"]
    assert (check.value, check.problem) == ("1.5 GiB free", "2 slots need 2.0 GiB")
    (group / "memory.max").write_text("max\n")
    assert not checks_of(Machine("node1", (0, 1)), host)["memory"].problem


def test_locked_memory_matters_where_there_is_infiniband(host: Path) -> None:
    (host / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    check = checks_of(Machine("node1", (0,)), host)["locked memory"]
    assert bool(check.problem) == (limit[0] != resource.RLIM_INFINITY)
    assert not check.problem or check.problem.startswith("mlx5_0 cannot register buffers")


def test_shared_memory_that_is_full_is_unfit_unless_there_is_room_for_files(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (host / "dev/shm").unlink()
    with small_disk(host / "dev/shm", "70m") as disk:
        machine = Machine("node1", (0, 1))
        assert str(disk) in checks_of(machine, host)["shared memory"].value
        fill(disk)
        elsewhere = checks_of(machine, host)["shared memory"]
        assert (str(disk) in elsewhere.value, elsewhere.problem) == (False, "")
        monkeypatch.setattr("tempfile.gettempdir", lambda: str(disk))
        check = checks_of(machine, host)["shared memory"]
        assert check.value.startswith("0 MiB free")
        assert check.problem == "2 slots need 64 MiB"
        assert checks_of(machine, host)["temporary files"].problem


def test_a_busy_program_is_seen_and_named() -> None:
    cores = local_machine().cores
    meter = CpuMeter(cores, {os.getpid()})
    # Started by a shell that ends, so that it is nobody's child here.
    shell = f"taskset -c {cores[0]} {sys.executable} -c '{BUSY}' >/dev/null 2>&1 & echo $!"
    started = subprocess.run(
        ["setsid", "bash", "-c", shell], stdout=subprocess.PIPE, text=True, check=True
    )
    pid = int(started.stdout)
    try:
        time.sleep(0.2)
        check = load_check(meter, 0.5)
    finally:
        os.kill(pid, 9)
    assert check.problem.startswith("other programs took ")
    assert check.mend == "stop them, or wait for their end"
    assert pid in [culprit.pid for culprit in meter.culprits()]


@contextmanager
def cpu_group(quota_us: int) -> Iterator[Path]:
    """Yield the file that takes the processes of a new cgroup with a quota of each 100 ms. The test
    is skipped if this user may not make one."""
    top = Path("/sys/fs/cgroup/cpu")
    version_1 = top.is_dir()
    group = (top if version_1 else top.parent) / f"hvdperf-test-{os.getpid()}"
    file, text = ("cpu.cfs_quota_us", "") if version_1 else ("cpu.max", " 100000")
    with ExitStack() as end:
        try:
            group.mkdir()
            end.callback(group.rmdir)
            (group / file).write_text(f"{quota_us}{text}")
        except OSError as error:
            pytest.skip(f"this user may make no cgroup with a CPU quota here: {error}")
        yield group / "cgroup.procs"


def test_a_cpu_quota_is_unfit() -> None:
    program = (
        "from pathlib import Path\n"
        "from hvdperf.machine.fitness import host_checks\n"
        "from hvdperf.machine.host import local_machine\n"
        "for check in host_checks(local_machine(), 1, Path('.')):\n"
        "    print(check.complaint if check.problem else check.name)\n"
    )
    with cpu_group(150_000) as processes:
        done = subprocess.run(
            ["sh", "-c", f'echo $$ > {processes}; exec "$0" -c "$1"', sys.executable, program],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    assert "CPU quota: 1.5 cores: the kernel stops ranks that exceed it" in done.stdout
