"""The environment and the space that ranks need, and what keeps them from starting."""

from __future__ import annotations

import os
import resource
import socket
from pathlib import Path

import pytest

from hvdperf.machine import starting
from hvdperf.machine.starting import (
    AT_LEAST,
    free_bytes,
    killed_for_memory,
    missing,
    rank_environment,
    shared_memory_directory,
    shared_memory_needed,
    user_settings,
)
from hvdperf.paths import ROOT

# As a rank of `mpirun -np 2` of Open MPI 4.1 finds it, but for the values.
OUTER = dict.fromkeys(
    (
        *("OMPI_APP_CTX_NUM_PROCS", "OMPI_ARGV", "OMPI_COMMAND", "OMPI_COMM_WORLD_LOCAL_RANK"),
        *("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_NODE_RANK", "OMPI_COMM_WORLD_RANK"),
        *("OMPI_COMM_WORLD_SIZE", "OMPI_FILE_LOCATION", "OMPI_FIRST_RANKS", "OMPI_MCA_ess"),
        *("OMPI_MCA_ess_base_jobid", "OMPI_MCA_initial_wdir", "OMPI_MCA_mpi_oversubscribe"),
        *("OMPI_MCA_orte_app_num", "OMPI_MCA_orte_ess_num_procs", "OMPI_MCA_orte_hnp_uri"),
        *("OMPI_MCA_orte_precondition_transports", "OMPI_MCA_pmix"),
        *("OMPI_MCA_shmem_RUNTIME_QUERY_hint", "OMPI_NUM_APP_CTX", "OMPI_UNIVERSE_SIZE"),
        *("PMIX_BFROP_BUFFER_TYPE", "PMIX_ID", "PMIX_NAMESPACE", "PMIX_RANK", "PMIX_SERVER_URI3"),
        *("PMI_RANK", "HFI_NO_BACKTRACE", "IPATH_NO_BACKTRACE"),
        # What the user may say of how ranks are started and connected, of which the suite has its
        # own.
        *("OMPI_MCA_plm_rsh_agent", "OMPI_MCA_plm_rsh_args", "OMPI_MCA_orte_default_hostfile"),
        *("OMPI_MCA_rmaps_base_mapping_policy", "OMPI_MCA_hwloc_base_binding_policy"),
        *("OMPI_MCA_ras_base_launch_orted_on_hn", "OMPI_MCA_btl_tcp_if_exclude"),
        *("OMPI_MCA_oob_tcp_if_include",),
    ),
    "0",
)
USER = {
    "HOME": "/home/user",
    "PATH": "/usr/bin",
    "HOROVOD_FUSION_THRESHOLD": "0",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_btl": "self,tcp",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_coll_hcoll_enable": "0",
    "OPAL_PREFIX": "/opt/env",
}


@pytest.fixture
def interpreter(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin" / "python"


def test_ranks_get_the_users_environment_and_nothing_of_an_outer_mpirun(interpreter):
    given = {**USER, **OUTER}
    result = rank_environment(interpreter, given)
    assert OUTER.keys().isdisjoint(result)
    assert USER.items() <= result.items()
    assert result == rank_environment(interpreter, USER)
    assert given == {**USER, **OUTER}, "the given environment is left alone"


def test_ranks_find_this_package_before_others(interpreter):
    assert rank_environment(interpreter, {})["PYTHONPATH"] == str(ROOT)
    result = rank_environment(interpreter, {"PYTHONPATH": "/theirs"})
    assert result["PYTHONPATH"].split(os.pathsep) == [str(ROOT), "/theirs"]


def test_ranks_find_the_mpi_of_their_own_environment(interpreter, tmp_path):
    assert "LD_LIBRARY_PATH" not in rank_environment(interpreter, {})
    library = tmp_path / "lib"
    library.mkdir()
    (library / "libmpi.so.40").touch()
    result = rank_environment(interpreter, {"LD_LIBRARY_PATH": "/theirs"})
    assert result["LD_LIBRARY_PATH"].split(os.pathsep) == [str(library), "/theirs"]
    for prefix, kept in ((tmp_path, True), ("/theirs", False)):
        result = rank_environment(interpreter, {"OPAL_PREFIX": str(prefix)})
        assert ("OPAL_PREFIX" in result) is kept


@pytest.mark.parametrize(("uid", "expected"), [(0, "1"), (1000, None)])
def test_only_root_tells_open_mpi_that_it_is_root(interpreter, monkeypatch, uid, expected):
    monkeypatch.setattr("hvdperf.machine.starting.os.geteuid", lambda: uid)
    result = rank_environment(interpreter, {})
    assert result.get("OMPI_ALLOW_RUN_AS_ROOT") == expected
    assert result.get("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM") == expected


def test_settings_of_what_ranks_run_are_the_users():
    settings = dict.fromkeys(("HOROVOD_FUSION_THRESHOLD", "NCCL_DEBUG", "TF_XLA_FLAGS"), "0")
    settings |= {"OMP_NUM_THREADS": "1", "XLA_FLAGS": ""}
    assert user_settings({**settings, **OUTER, "HOME": "/root"}) == settings


GIB = 1 << 30


@pytest.fixture
def free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Free bytes of the two places, by name; a root with both."""
    sizes = {"shm": GIB, "tmp": GIB}
    monkeypatch.setattr(starting, "free_bytes", lambda where: sizes[where.name])
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "tmp"))
    return sizes


@pytest.mark.parametrize(
    ("memory", "files", "chosen"),
    [
        (GIB, 2 * GIB, "shm"),
        (AT_LEAST, GIB, "shm"),
        (AT_LEAST - 1, GIB, "tmp"),
        (0, GIB, "tmp"),
        (AT_LEAST // 2, AT_LEAST // 4, "shm"),
    ],
)
def test_memory_is_shared_in_memory_if_it_has_room(tmp_path, free, memory, files, chosen):
    free |= {"shm": memory, "tmp": files}
    assert shared_memory_directory(2, root=tmp_path).name == chosen


def test_more_ranks_need_more_and_what_does_not_exist_has_no_room(tmp_path, free):
    assert free_bytes(tmp_path / "nowhere") == 0
    assert free_bytes(tmp_path) > 0 or os.statvfs(tmp_path).f_bavail == 0
    free["shm"] = shared_memory_needed(64)
    assert shared_memory_directory(64, root=tmp_path).name == "shm"
    assert shared_memory_directory(65, root=tmp_path).name == "tmp"


GROUP = "sys/fs/cgroup/slice/job"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine whose processes are in a control group within another one, which has a limit."""
    for path, text in (
        ("proc/self/cgroup", "0::/slice/job\n"),
        ("proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ("proc/vmstat", "pgfault 7\noom_kill 2\n"),
        (f"{GROUP}/memory.events", "low 0\noom 1\noom_kill 1\n"),
        (f"{GROUP}/memory.max", "max\n"),
        (f"{GROUP}/../memory.max", f"{2 << 30}\n"),
        ("sys/class/net/lo/flags", "0x9\n"),
    ):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "dev/shm").mkdir(parents=True)
    return tmp_path


def test_a_process_that_the_kernel_killed_for_memory_is_found_with_the_limit(root):
    before = killed_for_memory(root)
    assert missing(2, ["killed by signal 9"], before, root) == ""
    (root / GROUP / "memory.events").write_text("oom_kill 2\n")
    assert "2048 MiB" in missing(2, ["the process ended"], before, root)


def test_a_full_directory_is_named(root, monkeypatch):
    monkeypatch.setattr(starting, "free_bytes", lambda where: 1 << 20)
    assert "1 MiB left" in missing(2, ["No space left on device"], killed_for_memory(root), root)


@pytest.mark.parametrize(
    ("which", "said", "option"),
    [
        (resource.RLIMIT_AS, "std::bad_alloc", "ulimit -v"),
        (resource.RLIMIT_NPROC, "fork: Resource temporarily unavailable", "ulimit -u"),
    ],
)
def test_a_limit_is_named_if_a_rank_complains_of_it(root, monkeypatch, which, said, option):
    limits = {which: (4096, 4096)}
    infinite = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr("resource.getrlimit", lambda each: limits.get(each, infinite))
    killed = killed_for_memory(root)
    assert option in missing(2, [said], killed, root)
    assert missing(2, ["ValueError: wrong shape"], killed, root) == ""


@pytest.mark.parametrize(("limit", "is_named"), [("150", True), ("30000", False), ("max", False)])
def test_a_limit_of_processes_is_named_if_it_leaves_too_few(root, limit, is_named):
    (root / GROUP / "pids.max").write_text(limit)
    (root / GROUP / "pids.current").write_text("20")
    killed = killed_for_memory(root)
    assert ("processes" in missing(2, ["can't start new thread"], killed, root)) is is_named


def test_a_name_that_does_not_resolve_and_a_loopback_that_is_down_are_named(root, monkeypatch):
    killed = killed_for_memory(root)
    assert missing(2, ["killed by signal 11, SIGSEGV"], killed, root) == ""
    (root / "sys/class/net/lo/flags").write_text("0x8\n")
    assert "loopback" in missing(2, ["it ended"], killed, root)
    (root / "sys/class/net/lo/flags").write_text("0x9\n")

    def fail(*arguments: object) -> None:
        raise socket.gaierror

    monkeypatch.setattr("socket.getaddrinfo", fail)
    assert socket.gethostname() in missing(2, ["SIGSEGV"], killed, root)
