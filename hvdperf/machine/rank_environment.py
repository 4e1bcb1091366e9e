"""The environment of ranks: the user's, without the variables that an outer mpirun has set."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from hvdperf.paths import ROOT
from hvdperf.worker.settings import OF_A_RANK, PREFIXES

# Prefixes of the variables by which Open MPI and Slurm talk to their own children. An inner mpirun
# that finds such variables takes itself for a rank of the outer one, or calls srun.
_OUTER = ("OMPI_", "PMIX_", "PMI_", "HFI_", "IPATH_", "SLURM_")
_KEPT = ("OMPI_ALLOW_RUN_AS_ROOT",)
# MCA settings are kept, since they are the user's, except those that mpirun makes for its children,
# and those that say how ranks are started, bound and connected: the suite has its own.
_MCA = "OMPI_MCA_"
_OUTER_MCA = (
    "orte_",
    "plm",
    "ras",
    "rmaps",
    "hwloc_base_binding",
    "oob_tcp_if_",
    "btl_tcp_if_",
    "ess",
    "pmix",
    "initial_wdir",
    "shmem_RUNTIME",
    "mpi_oversubscribe",
)
# Variables that every process needs, and prefixes of those that may keep ranks from starting.
_NEEDED = frozenset(
    ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TMPDIR", "OPAL_PREFIX", "CUDA_VISIBLE_DEVICES")
)
_SUSPECTS = ("HOROVOD_", "OMPI_", "TF_", "LD_", "PYTHON", "NCCL_", "UCX_")


def user_settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the user's settings, which every rank gets on every host."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(PREFIXES) and name not in OF_A_RANK
    }


def not_needed(environment: Mapping[str, str] = os.environ) -> dict[str, list[str]]:
    """Return the names of the user's variables that a process does without, in groups by what they
    belong to; the groups that most often keep ranks from starting come first."""
    groups: dict[str, list[str]] = {prefix: [] for prefix in _SUSPECTS}
    groups[""] = []
    for name in sorted(environment):
        if name not in _NEEDED and not _is_outer(name):
            groups[next((each for each in _SUSPECTS if name.startswith(each)), "")].append(name)
    return {prefix: names for prefix, names in groups.items() if names}


def rank_environment(
    interpreter: str | Path, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the environment of a rank's process, whether or not the user has sourced `activate`.

    Horovod's libraries do not know where their MPI is, so the `lib` of the interpreter's
    environment is added to LD_LIBRARY_PATH if it holds an MPI library. Open MPI refuses to run as
    root unless two variables confirm that this is meant.
    """
    result = {name: value for name, value in environment.items() if not _is_outer(name)}
    result["PYTHONPATH"] = _prepend(ROOT, result.get("PYTHONPATH"))
    libraries = Path(interpreter).absolute().parent.parent / "lib"
    if any(libraries.glob("libmpi.so*")):
        result["LD_LIBRARY_PATH"] = _prepend(libraries, result.get("LD_LIBRARY_PATH"))
    if os.geteuid() == 0:
        result["OMPI_ALLOW_RUN_AS_ROOT"] = "1"
        result["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    return result


def _prepend(directory: Path, search_path: str | None) -> str:
    return os.pathsep.join([str(directory), search_path] if search_path else [str(directory)])


def _is_outer(name: str) -> bool:
    """Return whether a variable is the outer launcher's, or says which rank a process is."""
    if name in OF_A_RANK:
        return True
    if name.startswith(_MCA):
        return name[len(_MCA) :].startswith(_OUTER_MCA)
    return name.startswith(_OUTER) and not name.startswith(_KEPT)
