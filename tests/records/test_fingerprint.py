"""What a session was measured with: machine, stack, thresholds and settings."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hvdperf.machine.host import Gpu, Machine
from hvdperf.machine.placement import Slot
from hvdperf.plan.questions import horovod_overhead, weak_scaling
from hvdperf.plan.settings import Setting
from hvdperf.records.fingerprint import differences
from hvdperf.records.fingerprinting import (
    METHOD,
    fingerprint,
    settings_of,
    told_settings,
)
from tests.support import stores
from tests.support.rounds import WORKLOAD

V100 = Gpu("GPU-0d5f", "Tesla V100-SXM2-16GB", 0, 16160, "418.87.01", 300.0, 1530, 877)
MACHINE = Machine(
    "node17.example",
    (0, 1, 2, 3),
    memory_mib=192879,
    cpu_model="Intel(R) Xeon(R) Gold 6148",
    smt=False,
    cpu_quota=2.5,
)
STACK = replace(
    stores.STACK,
    interpreter="/home/somebody/env/bin/python",
    mpirun="/home/somebody/env/bin/mpirun",
    mpi_library="Open MPI v4.1.8",
    tf32=True,
)


def taken(machine=MACHINE, stack=STACK, slots=(), **environment):
    return fingerprint(machine, stack, "mpirun", slots, environment)


def test_the_machine_and_the_stack_are_in_it():
    facts = taken()
    expected = {
        "launcher": "mpirun",
        "method": METHOD,
        "cpu_model": "Intel(R) Xeon(R) Gold 6148",
        "smt": "off",
        "cores": 4,
        "cpu_quota_cores": 2.5,
        "memory_gib": 188,
        "gpus": 0,
        "tensorflow": "2.18.1",
        "horovod": "0.28.1",
        "horovod_built_with": ["mpi", "gloo"],
        "mpirun": "mpirun (Open MPI) 4.1.8",
        "mpi_library": "Open MPI v4.1.8",
        "tf32": "on",
    }
    assert {name: facts[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("of", "changes", "shown"),
    [
        (MACHINE, {"smt": True}, {"smt": "on"}),
        (MACHINE, {"smt": None}, {"smt": None}),
        (MACHINE, {"memory_mib": 1048300}, {"memory_gib": 1024}),
        (STACK, {"tf32": False}, {"tf32": "off"}),
        (STACK, {"tf32": None}, {"tf32": None}),
        (STACK, {"python": "3.9.1", "nccl": "2.18.5"}, {"python": "3.9.1", "nccl": "2.18.5"}),
    ],
)
def test_a_machine_or_a_stack_that_differs_shows(of, changes, shown):
    machine, stack = (replace(of, **changes) if each is of else each for each in (MACHINE, STACK))
    facts = taken(machine, stack)
    assert {name: facts[name] for name in shown} == shown
    assert {name for name in facts if facts[name] != taken()[name]} == set(shown)


def test_gpus_are_told_by_what_they_are_and_not_which():
    silent = Gpu("GPU-77aa", "Tesla V100-SXM2-16GB")
    facts = taken(replace(MACHINE, gpus=(V100, silent, replace(V100, uuid="GPU-1c0a"))))
    assert {name: value for name, value in facts.items() if name.startswith("gpu")} == {
        "gpus": 3,
        "gpu_model": ["Tesla V100-SXM2-16GB"],
        "gpu_driver": ["(unknown)", "418.87.01"],
        "gpu_memory_mib": ["(unknown)", "16160"],
        "gpu_power_limit_w": ["(unknown)", "300.0"],
        "gpu_max_sm_clock_mhz": ["(unknown)", "1530"],
        "gpu_max_memory_clock_mhz": ["(unknown)", "877"],
    }


def test_horovods_defaults_stand_in_for_what_is_not_set():
    facts = taken()
    assert facts["horovod_fusion_threshold_bytes"] == 128 << 20
    assert facts["horovod_cycle_time_ms"] == 1.0
    assert facts["horovod_cache_capacity"] == 1024


def test_horovods_settings_in_effect():
    facts = taken(
        HOROVOD_FUSION_THRESHOLD="0",
        HOROVOD_CYCLE_TIME="3.5",
        HOROVOD_CACHE_CAPACITY="lots",
        HOROVOD_AUTOTUNE="1",
        HOROVOD_TIMELINE="/home/somebody/timeline.json",
    )
    assert facts["horovod_fusion_threshold_bytes"] == 0
    assert facts["horovod_cycle_time_ms"] == 3.5
    assert facts["horovod_cache_capacity"] == "lots"
    assert facts["horovod_settings"] == ["HOROVOD_AUTOTUNE=1"]
    assert facts["horovod_timeline"] == "on"
    assert taken(HOROVOD_TIMELINE="")["horovod_timeline"] == "on"
    assert taken(HOROVOD_CYCLE_TIME="1") == taken(), "the default"


# Settings that make figures differ, by the field that shows them.
RECORDED = {
    "horovod_settings": "HOROVOD_AUTOTUNE HOROVOD_CONTROLLER HOROVOD_OF_ANOTHER_RELEASE",
    "thread_settings": "KMP_AFFINITY MKL_NUM_THREADS OMP_PLACES TF_NUM_INTEROP_THREADS",
    "nccl_settings": "NCCL_IB_HCA NCCL_OF_ANOTHER_RELEASE NCCL_TOPO_FILE",
    "mca_settings": """
        btl_vader_single_copy_mechanism coll_tuned_use_dynamic_rules hwloc_base_binding_policy
        mpi_leave_pinned mtl opal_cuda_support osc pml rmaps_base_mapping_policy UCX_TLS""",
    "tensorflow_settings": """
        KERAS_BACKEND NVIDIA_TF32_OVERRIDE ONEDNN_MAX_CPU_ISA TF_CPP_MAX_VLOG_LEVEL
        TF_OF_ANOTHER_RELEASE XLA_FLAGS""",
}
# What only shows where a job runs, who started it, or what it writes down.
LEFT_OUT = """
    HOROVOD_HOSTNAME HOROVOD_RANK HOROVOD_AUTOTUNE_LOG HOROVOD_TIMELINE_MARK_CYCLES NCCL_DEBUG
    HOROVOD_GPU_OPERATIONS HOROVOD_WITH_MPI HOROVOD_NCCL_HOME TF_CONFIG TF_VAR_password
    OMPI_MCA_orte_tmpdir_base OMPI_MCA_plm_rsh_agent OMPI_MCA_mpirun_path OMPI_MCA_ess_base
    OMPI_COMM_WORLD_RANK mpi_home UCX_LOG_LEVEL TF_CPP_MIN_LOG_LEVEL CUDA_VISIBLE_DEVICES PATH
"""


def variable(field: str, setting: str) -> str:
    """Return the environment variable of a setting. Only those of Open MPI have a prefix."""
    is_mca = field == "mca_settings" and not setting.startswith("UCX_")
    return "OMPI_MCA_" * is_mca + setting


@pytest.mark.parametrize(("field", "names"), RECORDED.items())
def test_every_setting_that_makes_figures_differ_is_recorded_in_its_field_alone(field, names):
    settings = names.split()
    environment = {variable(field, name): "1" for name in settings}
    facts, usual = taken(**environment), taken()
    assert facts[field] == [f"{name}=1" for name in settings]
    assert [name for name in facts if facts[name] != usual[name]] == [field]


def test_what_says_nothing_of_a_figure_is_not_recorded():
    assert taken(**dict.fromkeys(LEFT_OUT.split(), "1")) == taken()


def test_the_settings_of_a_fingerprint_are_those_of_the_environment():
    environment = {
        "HOROVOD_CYCLE_TIME": "100",
        "HOROVOD_FUSION_THRESHOLD": str(128 << 20),  # the default
        "HOROVOD_LOG_LEVEL": "debug",
        "NCCL_ALGO": "Ring",
        "OMPI_MCA_btl": "self,tcp",
        "TF_XLA_FLAGS": "--tf_xla_auto_jit=2",
        "UCX_TLS": "tcp",
    }
    wanted = [Setting(*item) for item in environment.items() if "FUSION" not in item[0]]
    assert settings_of(taken(**environment)) == wanted


def test_the_cores_of_every_rank():
    slots = [Slot(0, "a", (8, 2, 1, 0)), Slot(1, "a", (4,)), Slot(2, "b", (5, 6))]
    assert taken(slots=slots)["rank_cores"] == ["0: 0-2,8", "1: 4", "2: 5-6"]


def test_every_data_set_that_is_asked_about_is_named():
    told = {"cifar10": "6 files, 18.4 MB, 0f3a", "ptb": "1 file, 0.1 MB, 00ff"}
    facts = fingerprint(MACHINE, STACK, "agents", (), {}, told)
    assert facts["data_sets"] == ["cifar10: 6 files, 18.4 MB, 0f3a", "ptb: 1 file, 0.1 MB, 00ff"]
    assert facts["launcher"] == "agents"
    assert taken()["data_sets"] == []


def test_nobody_is_told_who_ran_it_or_where():
    text = json.dumps(
        taken(
            slots=[Slot(0, "node17.example", (0,))],
            USER="somebody",
            _HOROVOD_SECRET_KEY="hush",
            HOROVOD_GLOO_RENDEZVOUS_ADDR="10.1.2.3",
            NCCL_DEBUG_FILE="/home/somebody/nccl",
            OMPI_MCA_orte_hnp_uri="1.0;tcp://10.1.2.3:4",
            OMPI_MCA_mpi_oversubscribe="0",
            OMPI_MCA_btl_tcp_if_include="10.1.2.0/24",
            OMPI_MCA_btl_tcp_if_exclude="10.1.2.3",
            NCCL_TOPO_FILE="~somebody",
            TF_SOME_TOKEN="hush",
        )
    )
    for secret in ("somebody", "hush", "10.1.2", "node17", "oversubscribe"):
        assert secret not in text
    for name in ("btl_tcp_if_include", "btl_tcp_if_exclude", "NCCL_TOPO_FILE", "TF_SOME_TOKEN"):
        assert f"{name}=(set)" in text


def test_differences_are_lines_to_read():
    old = {"keras": "2.15.0", "nccl": None, "gpu_model": ["V100", "A100"], "gone": 1, "same": 2}
    new = {"keras": "3.15.1", "nccl": "2.18.5", "gpu_model": [], "same": 2, "added": 0.5}
    assert differences(old, new) == [
        "keras: 2.15.0 -> 3.15.1",
        "nccl: (unknown) -> 2.18.5",
        "gpu_model: V100, A100 -> (none)",
        "gone: 1 -> (not recorded)",
        "added: (not recorded) -> 0.5",
    ]


ALONE, TOGETHER = horovod_overhead(WORKLOAD, 1), weak_scaling(WORKLOAD, 2)


def known(**environment: str):
    return taken(stores.MACHINE, stores.STACK, stores.placed(), **environment)


def test_without_settings_nothing_is_told():
    assert told_settings(known()) == []
    assert told_settings(known(HOROVOD_CYCLE_TIME="1")) == [], "that is the default"


def test_every_setting_is_told_once():
    given = ("HOROVOD_CYCLE_TIME", "HOROVOD_OF_ANOTHER_RELEASE", "OMP_NUM_THREADS", "XLA_FLAGS")
    told = told_settings(known(**dict.fromkeys(given, "100")))
    assert [line.partition("=")[0] for line in told] == list(given)
