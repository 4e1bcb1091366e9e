"""Ranks get the user's environment, without what an outer mpirun has put there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hvdperf.machine.rank_environment import rank_environment, user_settings
from hvdperf.paths import ROOT

# As a rank of `mpirun -np 2` of Open MPI 4.1 finds it, shortened.
OUTER = {
    "OMPI_APP_CTX_NUM_PROCS": "2",
    "OMPI_ARGV": "perf",
    "OMPI_COMMAND": "pytest",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_COMM_WORLD_NODE_RANK": "0",
    "OMPI_COMM_WORLD_RANK": "0",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_FILE_LOCATION": "/tmp/ompi.host.0/pid.1/0/0",
    "OMPI_FIRST_RANKS": "0",
    "OMPI_MCA_ess": "^singleton",
    "OMPI_MCA_ess_base_jobid": "123",
    "OMPI_MCA_initial_wdir": "/home/user",
    "OMPI_MCA_mpi_oversubscribe": "0",
    "OMPI_MCA_orte_app_num": "0",
    "OMPI_MCA_orte_ess_num_procs": "2",
    "OMPI_MCA_orte_hnp_uri": "123.0;tcp://10.0.0.1:4711",
    "OMPI_MCA_orte_precondition_transports": "a-b",
    "OMPI_MCA_pmix": "^s1,s2,cray,isolated",
    "OMPI_MCA_shmem_RUNTIME_QUERY_hint": "mmap",
    "OMPI_NUM_APP_CTX": "1",
    "OMPI_UNIVERSE_SIZE": "2",
    "PMIX_BFROP_BUFFER_TYPE": "PMIX_BFROP_BUFFER_NON_DESC",
    "PMIX_ID": "123.0",
    "PMIX_NAMESPACE": "123",
    "PMIX_RANK": "0",
    "PMIX_SERVER_URI3": "123.0;tcp4://127.0.0.1:4711",
    "PMI_RANK": "0",
    "HFI_NO_BACKTRACE": "1",
    "IPATH_NO_BACKTRACE": "1",
}
# What the user may say of how ranks are started and connected, of which the suite has its own.
STARTING = {
    "OMPI_MCA_plm_rsh_agent": "ssh -p 2222",
    "OMPI_MCA_plm_rsh_args": "-F config",
    "OMPI_MCA_orte_default_hostfile": "hosts",
    "OMPI_MCA_rmaps_base_mapping_policy": "ppr:1:node",
    "OMPI_MCA_hwloc_base_binding_policy": "core",
    "OMPI_MCA_ras_base_launch_orted_on_hn": "1",
    "OMPI_MCA_btl_tcp_if_exclude": "docker0",
    "OMPI_MCA_oob_tcp_if_include": "eth0",
}
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
    given = {**USER, **OUTER, **STARTING}
    result = rank_environment(interpreter, given)
    assert (OUTER | STARTING).keys().isdisjoint(result)
    assert USER.items() <= result.items()
    assert result == rank_environment(interpreter, USER)
    assert given == {**USER, **OUTER, **STARTING}, "the given environment is left alone"


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


@pytest.mark.parametrize(("uid", "expected"), [(0, "1"), (1000, None)])
def test_only_root_tells_open_mpi_that_it_is_root(interpreter, monkeypatch, uid, expected):
    monkeypatch.setattr("hvdperf.machine.rank_environment.os.geteuid", lambda: uid)
    result = rank_environment(interpreter, {})
    assert result.get("OMPI_ALLOW_RUN_AS_ROOT") == expected
    assert result.get("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM") == expected


def test_settings_of_what_ranks_run_are_the_users(monkeypatch):
    settings = {"HOROVOD_FUSION_THRESHOLD": "0", "NCCL_DEBUG": "INFO", "TF_XLA_FLAGS": "--x"}
    settings |= {"OMP_NUM_THREADS": "1", "XLA_FLAGS": ""}
    assert user_settings({**settings, **OUTER, **STARTING, "HOME": "/root"}) == settings
