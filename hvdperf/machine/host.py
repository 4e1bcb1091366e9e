"""A description of this host, found without TensorFlow."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hvdperf.machine.cores import available_cores, cpu_quota
from hvdperf.machine.gpus import Gpu, local_gpus


@dataclass(frozen=True)
class Machine:
    """One host. A field is None if the host does not report it.

    cores: the logical CPU numbers that the session may use (machine/cores.py). cpu_quota: CPU time
    that the container allows, in cores. container: the value of HVDPERF_CONTAINER, best an image
    digest, or else the kind of container.
    """

    host: str
    cores: tuple[int, ...]
    gpus: tuple[Gpu, ...] = ()
    memory_mib: int = 0
    cpu_model: str = "unknown"
    microcode: str | None = None
    governor: str | None = None
    smt: bool | None = None
    numa_nodes: int = 1
    cpu_quota: float | None = None
    kernel: str = "unknown"
    container: str | None = None

    @property
    def description(self) -> str:
        """A short name for people: "4 x Tesla V100-SXM2-16GB" or "2 cores of AMD EPYC"."""
        if self.gpus:
            models = dict.fromkeys(gpu.name for gpu in self.gpus)
            return f"{len(self.gpus)} x {' / '.join(models)}"
        return f"{len(self.cores)} core{'s' * (len(self.cores) != 1)} of {self.cpu_model}"


def local_machine(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> Machine:
    """Return the description of this host. root: the directory in which /proc and /sys are mounted.

    Raises UserError if its GPUs cannot be determined (hvdperf.machine.gpus.local_gpus).
    """
    cpu = parse_cpuinfo(_read(root / "proc/cpuinfo") or "")
    smt = _read(root / "sys/devices/system/cpu/smt/active")
    return Machine(
        host=socket.gethostname(),
        cores=available_cores(environment, root),
        gpus=local_gpus(environment),
        memory_mib=parse_memory_mib(_read(root / "proc/meminfo") or ""),
        cpu_model=cpu.get("model name", platform.machine() or "unknown"),
        microcode=cpu.get("microcode"),
        governor=_governor(root),
        smt=None if smt is None else smt == "1",
        numa_nodes=len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) or 1,
        cpu_quota=cpu_quota(root),
        kernel=platform.release(),
        container=_container(environment, root),
    )


def parse_cpuinfo(text: str) -> dict[str, str]:
    """Return the fields of the first processor in /proc/cpuinfo."""
    first = text.strip().partition("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs if value.strip()}


def parse_memory_mib(meminfo: str, field: str = "MemTotal") -> int:
    """Return a field of /proc/meminfo in MiB, or 0 if it is missing."""
    for line in meminfo.splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) // 1024
    return 0


def _governor(root: Path) -> str | None:
    """Return the frequency governor, or all governors, joined by "/", if the cores differ."""
    files = root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")
    governors = {governor for file in files if (governor := _read(file))}
    return "/".join(sorted(governors)) or None


def _container(environment: Mapping[str, str], root: Path) -> str | None:
    if named := environment.get("HVDPERF_CONTAINER"):
        return named
    if "APPTAINER_CONTAINER" in environment or "SINGULARITY_CONTAINER" in environment:
        return "apptainer"
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "kubernetes"
    if (root / "run/.containerenv").exists():
        return "podman"
    return "docker" if (root / ".dockerenv").exists() else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None
