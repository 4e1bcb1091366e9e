"""The machine, stack and settings of a session, which make figures comparable.

A fingerprint does not say who measured or where. It holds no user or host names, no addresses and
no paths, and of the environment only the settings of hvdperf/plan/settings.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, NotRequired, TypedDict

from msgspec import Meta

# A name with a text, and a rank with its cores: `cifar10: 6 files`, `0: 0-3,8`.
Named = Annotated[str, Meta(pattern=": ")]
RankCores = Annotated[str, Meta(pattern=r"^\d+: \d+(-\d+)?(,\d+(-\d+)?)*$")]


class Fingerprint(TypedDict):
    """The machine, stack and settings of a session. Figures with different fingerprints are
    different series. A value is None if the host or the stack does not report it.

    method: number of the method that computes a figure from block times. launcher: mpirun, or
    agents (one a slot). cpu_quota_cores: CPU time that the container may use; None without a limit.
    gpu_*: distinct values of all GPUs. packages_sha256: of the sorted list of installed packages,
    name==version a line. horovod_*: settings in effect; a text that is not a number is kept as it
    is. *_settings: set in the environment, name=value. data_sets: name, number of files, size, and
    a hash of names, sizes and beginnings. rank_cores: of every slot, such as `0: 0-3`.
    horovod_sha256: of Horovod's files.
    own_networks: only if there are some: name, and a hash of the file that defines the network.
    """

    method: int
    launcher: str
    cpu_model: str
    microcode: str | None
    governor: str | None
    smt: str | None
    numa_nodes: int
    cores: int
    cpu_quota_cores: float | None
    memory_gib: int
    kernel: str
    container: str | None
    gpus: int
    gpu_model: list[str]
    gpu_driver: list[str]
    gpu_memory_mib: list[str]
    gpu_power_limit_w: list[str]
    gpu_max_sm_clock_mhz: list[str]
    gpu_max_memory_clock_mhz: list[str]
    python: str
    tensorflow: str
    tensorflow_git: str
    keras: str
    numpy: str
    cuda: str | None
    cudnn: str | None
    tf32: str | None
    horovod: str
    horovod_built_with: list[str]
    nccl: str | None
    mpirun: str
    mpi_library: str | None
    packages_sha256: str
    horovod_fusion_threshold_bytes: int | float | str
    horovod_cycle_time_ms: int | float | str
    horovod_cache_capacity: int | float | str
    horovod_timeline: str
    horovod_settings: list[str]
    mca_settings: list[str]
    nccl_settings: list[str]
    thread_settings: list[str]
    tensorflow_settings: list[str]
    data_sets: list[Named]
    rank_cores: list[RankCores]
    # Nights and raw results of the history hold fingerprints, too, and are read as they are. So
    # what is added here is NotRequired.
    own_networks: NotRequired[list[Named]]
    horovod_sha256: NotRequired[str]


def name_of(named: Named) -> str:
    """Return the name before the colon."""
    return named.partition(": ")[0]


def ranges(numbers: Iterable[int], separator: str) -> str:
    """Return numbers as the kernel lists cores: 0, 1, 2, 3, 8 is "0-3,8"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return separator.join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def differences(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    """Return the changed fields of two fingerprints, one line each: "keras: 2.15.0 -> 3.15.1"."""
    return [
        f"{name}: {readable(name, old)} -> {readable(name, new)}"
        for name in dict.fromkeys((*old, *new))
        if name not in old or name not in new or old[name] != new[name]
    ]


def readable(name: str, values: Mapping[str, object]) -> str:
    """Return the value of a field for people."""
    if name not in values:
        return "(not recorded)"
    value = values[name]
    if isinstance(value, list):
        return ", ".join(value) or "(none)"
    return "(unknown)" if value is None else str(value)
