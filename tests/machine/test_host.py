import os
import platform
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.machine.host import (
    Gpu,
    available_cores,
    cpu_quota,
    local_gpus,
    local_machine,
    parse_cpu_list,
    parse_gpus,
    physical_cores,
    visible_gpus,
)

ROOT = Path(__file__).resolve().parents[2]

# nvidia-smi --query-gpu=index,uuid,name,memory.total,driver_version,power.limit,clocks.max.sm,
#   clocks.max.memory --format=csv,noheader,nounits
_V100_UUIDS = (
    "GPU-0d5f4f2c-8a4e-2f5b-9c1d-1b2c3d4e5f60",
    "GPU-1c0a7be2-60f5-8b11-2e6d-9f8e7d6c5b4a",
    "GPU-2b9d3f10-11aa-4c77-8d3e-0a1b2c3d4e5f",
    "GPU-3e8c6a54-72bb-9d00-1f4a-6f5e4d3c2b1a",
)
FOUR_V100 = "".join(
    f"{index}, {uuid}, Tesla V100-SXM2-16GB, 16160, 418.87.01, 300.00, 1530, 877\n"
    for index, uuid in enumerate(_V100_UUIDS)
)
V100 = parse_gpus(FOUR_V100)
MIG = "MIG-4f0d2b8a-1c3e-5d7f-9a1b-2c3d4e5f6a7b"


def indices(gpus):
    return [gpu.index for gpu in gpus]


def test_what_the_driver_does_not_tell_is_none():
    line = "0, GPU-5a, NVIDIA T4G, 15360, 535.54.03, [N/A], [Not Supported], [Unknown Error]\n"
    (gpu,) = parse_gpus(line)
    assert gpu.memory_mib == 15360
    assert (gpu.power_limit_w, gpu.max_sm_clock_mhz, gpu.max_memory_clock_mhz) == (None,) * 3
    # A warning beside the answer is passed over.
    warned = FOUR_V100 + "WARNING: infoROM is corrupted at gpu 0000:3B:00.0\n"
    assert parse_gpus(warned) == V100


@pytest.mark.parametrize(
    "garbage",
    [
        "Failed to initialize NVML: Driver/library version mismatch",
        "0, GPU-1, Tesla V100-SXM2-16GB, 16160",
        "0, GPU-1, Tesla V100-SXM2-16GB, many, 418.87, 300.00, 1530, 877",
    ],
)
def test_garbage_is_shown(garbage):
    with pytest.raises(UserError) as caught:
        parse_gpus(FOUR_V100 + garbage)
    assert garbage[:20] in str(caught.value)


class TestVisibleDevices:
    @pytest.mark.parametrize(
        ("visible", "expected"),
        [
            (None, [0, 1, 2, 3]),
            ("2,3", [2, 3]),
            ("3, 0", [3, 0]),
            ("1,-1,2", [1]),
            ("NoDevFiles", []),
            (V100[2].uuid, [2]),
            ("GPU-3e8c,GPU-0d5f", [3, 0]),
        ],
    )
    def test_chooses_and_orders(self, visible, expected):
        assert indices(visible_gpus(V100, visible)) == expected

    def test_mig_ids_pass_through(self):
        first, second = visible_gpus(V100[:1], f"{MIG},MIG-GPU-0d5f4f2c/7/0")
        assert first.uuid == MIG
        assert second.uuid == "MIG-GPU-0d5f4f2c/7/0"
        assert first.name == "Tesla V100-SXM2-16GB (MIG instance)"
        assert first.driver == "418.87.01"

    @pytest.mark.parametrize(
        ("visible", "said"),
        [
            ("0,7", "no GPU of this host; the GPUs here: 0 "),
            ("GPU-ffff", "no GPU of this host; the GPUs here: 0 "),
            ("GPU-", "GPU-, which is more than one GPU"),
            ("1,GPU-1c0a", "twice"),
        ],
    )
    def test_a_gpu_that_is_not_there_or_is_named_twice_is_refused(self, visible, said):
        with pytest.raises(UserError, match=said):
            visible_gpus(V100, visible)


class TestLocalGpus:
    @pytest.mark.parametrize("status", [0, 14])  # 14: a warning
    def test_asks_for_the_fields_that_are_parsed(self, nvidia_smi, tmp_path, status):
        (tmp_path / "answer").write_text(FOUR_V100)
        environment = nvidia_smi(
            f'echo "$@" > {tmp_path}/asked; cat {tmp_path}/answer; exit {status}'
        )
        assert local_gpus(environment) == V100
        assert V100[1] == Gpu(
            uuid="GPU-1c0a7be2-60f5-8b11-2e6d-9f8e7d6c5b4a",
            name="Tesla V100-SXM2-16GB",
            index=1,
            memory_mib=16160,
            driver="418.87.01",
            power_limit_w=300.0,
            max_sm_clock_mhz=1530,
            max_memory_clock_mhz=877,
        )
        fields = "index,uuid,name,memory.total,driver_version,power.limit,clocks.max.sm"
        assert (tmp_path / "asked").read_text().split() == [
            f"--query-gpu={fields},clocks.max.memory",
            "--format=csv,noheader,nounits",
        ]
        assert indices(local_gpus({**environment, "CUDA_VISIBLE_DEVICES": "2,3"})) == [2, 3]

    @pytest.mark.parametrize("code", [6, 9, 12])
    def test_a_cpu_host_with_the_tool_or_without_it_has_none(self, nvidia_smi, tmp_path, code):
        assert local_gpus(nvidia_smi(f"echo no; exit {code}")) == ()
        assert local_gpus({"PATH": str(tmp_path / "nowhere")}) == ()

    def test_hidden_gpus_are_not_even_asked_for(self, nvidia_smi):
        assert local_gpus(nvidia_smi("exit 15", CUDA_VISIBLE_DEVICES="")) == ()

    def test_a_broken_gpu_is_not_taken_for_a_cpu_host(self, nvidia_smi):
        environment = nvidia_smi("echo 'GPU is lost.  Reboot the system' >&2; exit 15")
        with pytest.raises(UserError, match=r"failed with exit code 15: GPU is lost\.") as caught:
            local_gpus(environment)
        assert "CUDA_VISIBLE_DEVICES=" in str(caught.value)

    def test_a_hanging_nvidia_smi_is_given_up(self, nvidia_smi):
        with pytest.raises(UserError, match=r"did not answer in 0\.2 s"):
            local_gpus(nvidia_smi("exec sleep 600"), timeout_s=0.2)


@pytest.fixture
def host(tmp_path):
    """Writes files of a pretended /proc and /sys; gives their root."""

    def write(files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        return tmp_path

    return write


def topology(cpus):
    """cpus: logical CPU -> (socket, hardware threads of its core)."""
    files = {}
    for cpu, (socket, siblings) in cpus.items():
        directory = f"sys/devices/system/cpu/cpu{cpu}/topology"
        files[f"{directory}/physical_package_id"] = str(socket)
        files[f"{directory}/thread_siblings_list"] = siblings
    return files


V1_MOUNT = "32 31 0:29 {root} /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct"
V2_MOUNT = "41 31 0:38 {root} /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw"
OTHER_MOUNTS = """\
23 1 259:1 / / rw - ext4 /dev/root rw
33 31 0:30 / /sys/fs/cgroup/mem rw - cgroup cgroup rw,memory
34 31 0:31 / /mnt rw - tmpfs  rw
"""


class TestCores:
    def test_the_kernels_lists(self):
        assert parse_cpu_list("0-1,8,10-11\n") == (0, 1, 8, 10, 11)

    def test_of_two_threads_of_a_core_the_first_counts(self, host):
        root = host(topology({0: (0, "0,2"), 1: (0, "1,3"), 2: (0, "0,2"), 3: (0, "1,3")}))
        assert physical_cores({0, 1, 2, 3}, root) == (0, 1)
        assert physical_cores({2}, root) == (2,), "a second thread alone stands for its core"

    def test_the_cores_of_a_socket_are_neighbours(self, host):
        root = host(topology({cpu: (cpu % 2, str(cpu)) for cpu in range(6)}))
        assert physical_cores(range(6), root) == (0, 2, 4, 1, 3, 5)
        assert physical_cores({3, 1}, root / "nowhere") == (1, 3), "every CPU is a core"


def version_1(group, mount, **limits):
    """Files of groups of version 1. limits: microseconds by group below the mount."""
    files = {"proc/self/cgroup": group, "proc/self/mountinfo": mount}
    for name, microseconds in limits.items():
        directory = f"sys/fs/cgroup/cpu/{name.replace('top', '')}"
        files[f"{directory}/cpu.cfs_quota_us"] = microseconds
        files[f"{directory}/cpu.cfs_period_us"] = "100000"
    return files


def version_2(group, **limits):
    """Files of groups of version 2. limits: the limit by group, of which _ parts two."""
    mounts = OTHER_MOUNTS + V2_MOUNT.format(root="/")
    files = {"proc/self/cgroup": group, "proc/self/mountinfo": mounts}
    for name, limit in limits.items():
        files[f"sys/fs/cgroup/{name.replace('top', '').replace('_', '/')}/cpu.max"] = limit
    return files


IN_DOCKER = V1_MOUNT.format(root="/docker/0123abcd")
BOTH_MOUNTS = V1_MOUNT.format(root="/") + "\n" + V2_MOUNT.format(root="/")


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({}, None),
        (version_2("0::/job", job="max 100000"), None),
        (version_2("0::/job", job="250000 100000"), 2.5),
        # The tightest limit on the way up counts.
        (
            version_2(
                "0::/slurm/job/step",
                slurm="800000 100000",
                slurm_job="300000 100000",
                slurm_job_step="max 100000",
            ),
            3.0,
        ),
        *(
            (
                version_1(
                    "4:memory:/elsewhere\n1:cpu,cpuacct:/job",
                    OTHER_MOUNTS + V1_MOUNT.format(root="/"),
                    job=microseconds,
                ),
                quota,
            )
            for microseconds, quota in (("-1", None), ("150000", 1.5))
        ),
        # A container sees the host's path of its group, and may be in a group within.
        (version_1("1:cpu,cpuacct:/docker/0123abcd", IN_DOCKER, top="400000"), 4.0),
        (
            version_1("1:cpu,cpuacct:/docker/0123abcd/job", IN_DOCKER, top="400000", job="300000"),
            3.0,
        ),
        # Both versions side by side.
        (version_1("1:cpu:/\n0::/", BOTH_MOUNTS, top="200000"), 2.0),
    ],
)
def test_the_quota_is_that_of_the_control_group(host, files, quota):
    assert cpu_quota(host(files)) == quota


class TestAvailableCores:
    def test_are_those_of_the_affinity(self, tmp_path, monkeypatch):
        assert available_cores({}, tmp_path) == tuple(sorted(os.sched_getaffinity(0)))
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {7})
        assert available_cores({}, tmp_path) == (7,)

    @pytest.mark.parametrize("limit", [199_000, 20_000, 10_000_000])
    def test_a_quota_is_rounded_down_to_one_at_least(self, host, limit):
        everything = len(os.sched_getaffinity(0))
        root = host(version_2("0::/", top=f"{limit} 100000"))
        assert len(available_cores({}, root)) == (1 if limit < 200_000 else everything)

    def test_a_rank_gets_the_cores_of_the_mpirun_that_bound_it(self, tmp_path):
        mpirun = shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
        if mpirun is None:
            pytest.skip("no mpirun")
        script = tmp_path / "tell.py"
        script.write_text(
            "import os\nfrom hvdperf.machine.host import available_cores\n"
            "print(len(os.sched_getaffinity(0)), *available_cores())\n"
        )
        as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        told = subprocess.run(
            # Through a shell: the launcher need not be the parent.
            [mpirun, "-np", "1", "--bind-to", "core", "sh", "-c", f"{sys.executable} {script}; :"],
            cwd=ROOT,
            env={**os.environ, **as_root, "PYTHONPATH": str(ROOT)},
            check=True,
            capture_output=True,
            text=True,
        )
        bound, *cores = map(int, told.stdout.split())
        assert tuple(cores) == available_cores({})
        assert bound <= len(cores)


class TestMachine:
    def test_a_whole_host(self, host, tmp_path):
        root = host(
            {
                "proc/cpuinfo": "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Gold 6148\n"
                "microcode\t: 0x2006906\n\nprocessor\t: 1\nmodel name\t: other",
                "proc/meminfo": "MemFree: 1 kB\nMemTotal:       197508492 kB",
                "sys/devices/system/cpu/smt/active": "1",
                "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance",
                "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave",
                "sys/devices/system/node/node0/cpulist": "0",
                "sys/devices/system/node/node1/cpulist": "1",
                ".dockerenv": "",
            }
        )
        machine = local_machine({"PATH": ""}, root)
        assert machine.cpu_model == "Intel(R) Xeon(R) Gold 6148"
        assert machine.microcode == "0x2006906"
        assert machine.memory_mib == 192879
        assert machine.smt is True
        assert machine.governor == "performance/powersave"
        assert machine.numa_nodes == 2
        assert machine.container == "docker"
        assert machine.gpus == ()
        assert replace(machine, cores=(0,)).description == "1 core of Intel(R) Xeon(R) Gold 6148"

    def test_what_a_host_does_not_tell_is_none(self, host):
        root = host({"proc/cpuinfo": "processor\t: 0\nBogoMIPS\t: 50.00"})
        machine = local_machine({"PATH": ""}, root)
        assert (machine.microcode, machine.governor, machine.smt) == (None, None, None)
        assert (machine.container, machine.cpu_quota, machine.memory_mib) == (None, None, 0)
        assert (machine.numa_nodes, machine.cpu_model) == (1, platform.machine())
        assert machine.cores

    def test_a_name_of_another_encoding_is_no_error(self, host):
        root = host({"proc/cpuinfo": ""})
        (root / "proc/cpuinfo").write_bytes(b"model name\t: Intel\xae Xeon\n")
        assert local_machine({"PATH": ""}, root).cpu_model == "Intel\ufffd Xeon"

    @pytest.mark.parametrize(
        ("environment", "container"),
        [
            ({"HVDPERF_CONTAINER": "sha256:12ab", "KUBERNETES_SERVICE_HOST": "x"}, "sha256:12ab"),
            ({"APPTAINER_CONTAINER": "/images/tf.sif"}, "apptainer"),
            ({"KUBERNETES_SERVICE_HOST": "x"}, "kubernetes"),
        ],
    )
    def test_the_kind_of_container(self, tmp_path, environment, container):
        assert local_machine({"PATH": "", **environment}, tmp_path).container == container
