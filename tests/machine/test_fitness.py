"""Checks of this host and of its GPUs, on made-up machines."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hvdperf.machine import fitness
from hvdperf.machine.disturbance import CpuMeter
from hvdperf.machine.host import Gpu, Machine, local_machine
from tests.machine.conftest import NvidiaSmi
from tests.support.filesystems import fill, small_disk

BUSY = "import itertools\nfor _ in itertools.count(): pass"
ROOT = Path(__file__).resolve().parents[2]


def checks_of(machine: Machine, root: Path, slots: int = 2) -> dict[str, fitness.Check]:
    return {
        check.name: check for check in fitness.host_checks(machine, slots, ROOT / "results", root)
    }


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


def test_a_sound_machine_has_no_problem(host):
    machine = Machine("node1", (0, 1), cpu_model="AMD EPYC", governor="performance", smt=True)
    found = checks_of(machine, host)
    assert [check for check in found.values() if check.problem] == []
    assert found["SMT"].value == "on; a slot takes one thread of each core"
    assert found["memory"].value == "8.0 GiB free"


@pytest.mark.parametrize("governor", ["powersave", "performance/schedutil"])
def test_a_frequency_that_follows_the_load_is_unfit(host, governor):
    check = checks_of(Machine("node1", (0,), governor=governor), host)["governor"]
    assert check.complaint.startswith(f"governor: {governor}: ")
    assert check.complaint.endswith("; sudo cpupower frequency-set -g performance")


def test_a_cpu_quota_is_unfit(host):
    check = checks_of(Machine("node1", (0, 1), cpu_quota=1.5), host)["CPU quota"]
    assert check.value == "1.5 cores"
    assert check.problem.startswith("the kernel stops ranks that exceed it")


def test_the_memory_of_a_container_counts_and_that_of_the_machine(host):
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
    check = checks_of(Machine("node1", tuple(range(16))), host, slots=16)["memory"]
    assert check.problem == "16 slots need 16.0 GiB"


def test_shared_memory_that_is_full_is_unfit_unless_there_is_room_for_files(host, monkeypatch):
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


def test_a_busy_program_is_seen_and_named():
    cores = local_machine().cores
    meter = CpuMeter(cores, set())
    command = ["taskset", "-c", f"{cores[0]}", sys.executable, "-c", BUSY]
    with subprocess.Popen(command) as busy:
        time.sleep(0.2)
        check = fitness.load_check(meter, 0.5)
        busy.kill()
    assert check.problem.startswith("other programs took ")
    assert check.fix == "stop them, or wait until they finish"
    assert busy.pid in [culprit.pid for culprit in meter._spent]


UUIDS = ("GPU-0d5f4f2c-8a4e-2f5b-9c1d-1b2c3d4e5f60", "GPU-1c0a7be2-60f5-8b11-2e6d-9f8e7d6c5b4a")
# --query-gpu=uuid,index,temperature.gpu,clocks_throttle_reasons.active,
#   ecc.errors.uncorrected.volatile.total,pcie.link.width.current,pcie.link.width.max
#   --format=csv,noheader,nounits
SOUND = (
    f"{UUIDS[0]}, 0, 34, 0x0000000000000001, 0, 16, 16\n",
    f"{UUIDS[1]}, 1, 36, 0x0000000000000004, 0, 16, 16\n",
)
OF_A_WORKSTATION = f"{UUIDS[0]}, 0, 51, 0x0000000000000000, [N/A], 8, 8\n"
GPUS = tuple(
    Gpu(uuid, "NVIDIA A100-SXM4-40GB", index, power_limit_w=400.0)
    for index, uuid in enumerate(UUIDS)
)


def checks(
    nvidia_smi: NvidiaSmi, answer: str, programs: str = "", gpus: tuple[Gpu, ...] = GPUS
) -> dict[str, fitness.Check]:
    environment = nvidia_smi(
        f"case $1 in --query-gpu=*) printf '{answer}';; --query-compute-apps=*) "
        f"printf '{programs}';; esac"
    )
    return {check.name: check for check in fitness.gpu_checks(gpus, environment)}


def problems(found: dict[str, fitness.Check]) -> dict[str, str]:
    return {name: check.value for name, check in found.items() if check.problem}


def test_sound_gpus_have_no_problem(nvidia_smi):
    found = checks(nvidia_smi, "".join(SOUND))
    assert problems(found) == {}
    assert found["GPUs"].value == "NVIDIA A100-SXM4-40GB x 2"
    assert found["GPU temperature"].value == "34 / 36 C"
    assert found["GPU power limits"].value == "400 W"
    # Nor is there one in what a GPU does not report.
    assert problems(checks(nvidia_smi, OF_A_WORKSTATION, gpus=GPUS[:1])) == {}


@pytest.mark.parametrize(
    ("good", "bad", "name", "value"),
    [
        ("0x0000000000000004", "0x0000000000000044", "GPU throttling", "hardware thermal slowdown"),
        ("0x0000000000000004", "0x0000000000000088", "GPU throttling", "hardware slowdown and p"),
        (", 36,", ", 84,", "GPU temperature", ": 80 C or more"),
        (", 0, 16", ", 3, 16", "GPU memory errors", ": uncorrected"),
        (", 16, 16", ", 8, 16", "GPU link", ": fewer lanes than its slot has"),
    ],
)
def test_a_problem_names_its_gpu(nvidia_smi, good, bad, name, value):
    assert good in SOUND[1]
    found = problems(checks(nvidia_smi, SOUND[0] + SOUND[1].replace(good, bad)))
    assert [*found] == [name]
    assert "GPU 1" in found[name]
    assert "GPU 0" not in found[name]
    assert value in found[name]


def test_programs_of_others_on_the_gpus_are_named(nvidia_smi):
    programs = (
        f"{UUIDS[1]}, 4711, /opt/conda/bin/python, 10240\n"
        "GPU-2b9d3f10-11aa-4c77-8d3e-0a1b2c3d4e5f, 4712, elsewhere, 10\n"
    )
    found = problems(checks(nvidia_smi, "".join(SOUND), programs))
    assert found == {"GPU programs": "python, pid 4711: 10240 MiB of GPU 1"}


def test_parts_of_gpus_are_not_called_whole(nvidia_smi):
    part = Gpu("MIG-4f0d2b8a-1c3e-5d7f-9a1b-2c3d4e5f6a7b", "NVIDIA A100 (MIG instance)")
    found = checks(nvidia_smi, "".join(SOUND), gpus=(part,))
    assert [check.value for check in found.values()] == [
        "NVIDIA A100 (MIG instance); nvidia-smi does not report their state one by one"
    ]


def test_unlike_gpus_are_unfit(nvidia_smi):
    unlike = (GPUS[0], replace(GPUS[1], power_limit_w=250.0))
    found = problems(checks(nvidia_smi, "".join(SOUND), gpus=unlike))
    assert found == {"GPU power limits": "250 W, 400 W"}
    unlike = (GPUS[0], replace(GPUS[1], name="NVIDIA H100"))
    found = problems(checks(nvidia_smi, "".join(SOUND), gpus=unlike))
    assert found == {"GPUs": "NVIDIA A100-SXM4-40GB, NVIDIA H100 x 2"}


def test_throttling_is_asked_for_again_after_a_session(nvidia_smi):
    hot = SOUND[0].replace("0x0000000000000001", "0x0000000000000060")
    check = fitness.slowdowns(GPUS, nvidia_smi(f"printf '{hot}{SOUND[1]}'"))
    assert check.value == "GPU 0 software thermal slowdown and hardware thermal slowdown"


def test_a_tool_that_fails_is_a_problem(nvidia_smi):
    environment = nvidia_smi("echo 'GPU is lost.  Reboot the system' >&2; exit 15")
    assert fitness.gpu_checks((), environment) == [], "a host without GPUs asks nothing"
    (check,) = fitness.gpu_checks(GPUS, environment)
    assert "failed with exit code 15: GPU is lost." in check.problem
    (check,) = fitness.gpu_checks(GPUS, nvidia_smi("echo Field x is not valid"))
    assert "'Field x is not valid', which is not 7 fields" in check.problem
