"""This host: its cores, its GPUs as nvidia-smi reports them, its memory and its container."""

from __future__ import annotations

import math
import os
import platform
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from hvdperf.errors import UserError
from hvdperf.programs import TooLong, run

# Process names of the programs that start ranks on a host. The kernel cuts names to 15 characters;
# orterun_wrapper is the mpirun of the openmpi package.
_LAUNCHERS = ["mpirun", "mpiexec", "orterun", "orterun_wrapper", "orted", "prterun", "prted"]


def available_cores(
    environment: Mapping[str, str] = os.environ, root: Path = Path("/")
) -> tuple[int, ...]:
    """Return logical CPU numbers: one hardware thread of each physical core, socket by socket.

    A core is one slot at most, because replicas on two threads of one core would halve each other's
    speed; Open MPI counts slots in the same way. mpirun binds each rank to a part of the host, so
    the affinity of mpirun itself is used. A CPU quota of the container limits the number of cores
    to the quota, rounded down, but to no less than one. root: the directory in which /proc and /sys
    are mounted.
    """
    cores = physical_cores(os.sched_getaffinity(launcher_pid(environment) or 0), root)
    quota = cpu_quota(root)
    return cores if quota is None else cores[: max(1, math.floor(quota))]


def launcher_pid(environment: Mapping[str, str] = os.environ) -> int | None:
    """Return the process id of the nearest ancestor that starts ranks; None without one, or if
    this process is no rank.

    It need not be the parent: sh, time or uv run may lie between.
    """
    pid = os.getppid() if "OMPI_COMM_WORLD_RANK" in environment else 0
    while pid > 1:
        name, _, rest = text_of(f"/proc/{pid}/stat").partition("(")[2].rpartition(")")
        if name in _LAUNCHERS:
            return pid
        pid = int(rest.split()[1]) if rest else 0
    return None


def physical_cores(cpus: Iterable[int], root: Path = Path("/")) -> tuple[int, ...]:
    """Return the first thread of every physical core among the logical CPUs, ordered by socket."""
    cpus = sorted(cpus)
    first_of_core: dict[tuple[int, ...], tuple[int, int]] = {}
    for cpu in cpus:
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        siblings = parse_cpu_list(text_of(topology / "thread_siblings_list") or str(cpu))
        socket = int(text_of(topology / "physical_package_id") or 0)
        first_of_core.setdefault(siblings, (socket, cpu))
    return tuple(cpu for _, cpu in sorted(first_of_core.values()))


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """Parse the kernel's list format: "0-3,8" gives (0, 1, 2, 3, 8). Raises ValueError if wrong."""
    cpus: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return tuple(cpus)


def cpu_quota(root: Path = Path("/")) -> float | None:
    """Return the CPU time that the cgroups of this process allow, in cores; None without a limit.

    The tightest limit between the process's cgroup and the root of the mounted hierarchy counts.
    Version 2 keeps a limit in cpu.max, version 1 in cpu.cfs_quota_us and cpu.cfs_period_us.
    """
    quotas = map(_quota_of, control_groups("cpu", root))
    return min((quota for quota in quotas if quota is not None), default=None)


def control_groups(controller: str, root: Path = Path("/")) -> list[Path]:
    """Return the directories of this process's cgroups of a controller, such as cpu or memory, in
    both versions, and their parents."""
    groups, mounts = (text_of(root / f"proc/self/{name}") for name in ("cgroup", "mountinfo"))
    paths = {}
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "" or controller in controllers.split(","):
            paths["cgroup" if controllers else "cgroup2"] = path
    directories = []
    for line in mounts.splitlines():
        mount, _, kind = line.partition(" - ")
        mount_root, mount_point = mount.split()[3:5]
        # The source of a mount may be empty, which leaves two spaces, so split at each space.
        version, _, options = kind.split(" ")[:3]
        if version not in paths or (version == "cgroup" and controller not in options.split(",")):
            continue
        # In a container the cgroup's path may be the host's, of which the mount shows only the end.
        inside = paths[version].removeprefix(mount_root.rstrip("/")).strip("/")
        top = root / mount_point.lstrip("/")
        leaf = top / inside
        directories.append(leaf)
        directories.extend(above for above in leaf.parents if above.is_relative_to(top))
    return directories


def _quota_of(directory: Path) -> float | None:
    quota, period = text_of(directory / "cpu.max").split() or (
        text_of(directory / "cpu.cfs_quota_us") or "max",
        text_of(directory / "cpu.cfs_period_us") or "100000",
    )
    return None if quota in ("max", "-1") else int(quota) / int(period)


def memory_in_groups(root: Path = Path("/")) -> Iterator[tuple[int, int]]:
    """Yield the limit of each memory cgroup of this process that has one, and its usage, in
    bytes."""
    for group in control_groups("memory", root):
        for files in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit, usage = (number_in(group / file) for file in files)
            if limit is not None:
                yield limit, usage or 0


def number_in(path: Path, base: int = 10) -> int | None:
    """Return the number in a file; None if the file is not there, or holds none."""
    try:
        return int(text_of(path), base)
    except ValueError:
        return None


def numbers_by_name(text: str) -> dict[str, int]:
    """Return the counters of a text with a name and a number a line."""
    lines = (line.split() for line in text.splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdecimal()}


def text_of(path: Path | str) -> str:
    """Return the file's text without the line end; "" if the kernel does not offer the file (any
    more). Path.read_text takes three times as long."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""


Kind = TypeVar("Kind")

_QUERY = "index,uuid,name,memory.total,driver_version,power.limit,clocks.max.sm,clocks.max.memory"
_TIMEOUT_S = 20.0

# Exit codes of nvidia-smi, from its manual page: a host that has the tool but no GPU is a CPU host.
# 6: no device was found. 9: the driver is not loaded. 12: its library was not found.
_NO_GPU = (6, 9, 12)
# A warning (a corrupted infoROM) that leaves the answer intact.
_WARNED = 14


@dataclass(frozen=True)
class Gpu:
    """One GPU, or one MIG instance. A field is None if the driver does not report it.

    uuid names the device in CUDA_VISIBLE_DEVICES. An index would not do: nvidia-smi counts in PCI
    bus order and CUDA by speed, and a rank that a scheduler has confined counts from 0 again.
    """

    uuid: str
    name: str
    index: int | None = None
    memory_mib: int | None = None
    driver: str | None = None
    power_limit_w: float | None = None
    max_sm_clock_mhz: int | None = None
    max_memory_clock_mhz: int | None = None


def local_gpus(environment: Mapping[str, str], timeout_s: float = _TIMEOUT_S) -> tuple[Gpu, ...]:
    """Return the visible GPUs of this host.

    Raises UserError if nvidia-smi hangs or fails in a way that a CPU host does not explain, because
    a session without the GPUs would measure another machine. Raises UserError also if
    CUDA_VISIBLE_DEVICES names a device that is not there.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and not visible.strip():
        return ()
    try:
        found = parse_gpus(ask_nvidia_smi(f"--query-gpu={_QUERY}", environment, timeout_s))
    except _NoGpu:
        return ()
    except UserError as error:
        raise UserError(
            f"{error}; set CUDA_VISIBLE_DEVICES= (empty) to measure on the CPU"
        ) from None
    return visible_gpus(found, visible)


class _NoGpu(UserError):
    """This host has no GPU, or no nvidia-smi."""


def ask_nvidia_smi(
    query: str, environment: Mapping[str, str], timeout_s: float = _TIMEOUT_S
) -> str:
    """Return the answer of nvidia-smi to a query such as `--query-gpu=index,uuid`, without headings
    and units. Raises UserError if it fails or hangs, or if there is no GPU."""
    command = shutil.which("nvidia-smi", path=environment.get("PATH", ""))
    if command is None:
        raise _NoGpu("nvidia-smi is not installed")
    asked = [command, query, "--format=csv,noheader,nounits"]
    try:
        done = run(asked, env=environment, within_s=timeout_s)
    except TooLong:
        raise UserError(
            f"{command} did not answer in {timeout_s:g} s: a GPU or its driver hangs; reset it"
        ) from None
    if done.status in _NO_GPU:
        raise _NoGpu(f"{command} finds no GPU")
    if done.status not in (0, _WARNED):
        raise UserError(f"{command} failed with exit code {done.status}: {done.said[0]}")
    return done.output


def parse_gpus(output: str) -> tuple[Gpu, ...]:
    """Parse the answer of nvidia-smi: one GPU a line, in the order of its indices.

    Raises UserError for a line of any other form, except a warning.
    """
    return parse_answer(output, _QUERY, _gpu)


def _gpu(fields: Mapping[str, str]) -> Gpu:
    return Gpu(
        uuid=fields["uuid"],
        name=fields["name"],
        index=int(fields["index"]),
        memory_mib=whole(fields["memory.total"]),
        driver=reported(fields["driver_version"], str),
        power_limit_w=reported(fields["power.limit"], float),
        max_sm_clock_mhz=whole(fields["clocks.max.sm"]),
        max_memory_clock_mhz=whole(fields["clocks.max.memory"]),
    )


def parse_answer(
    output: str, query: str, make: Callable[[Mapping[str, str]], Kind]
) -> tuple[Kind, ...]:
    """Return what `make` makes of each line of an answer of nvidia-smi, but of warnings. query: the
    names of the fields, as nvidia-smi was asked. make: takes a line's fields by name, and raises
    ValueError for a wrong one. Raises UserError for a line of another form."""
    names = query.split(",")
    found = []
    for line in output.splitlines():
        if not line.strip() or line.startswith("WARNING"):
            continue
        try:
            found.append(make(dict(zip(names, map(str.strip, line.split(",")), strict=True))))
        except ValueError:
            raise UserError(
                f"nvidia-smi answered {line.strip()[:120]!r}, which is not {len(names)} fields "
                f"({query})"
            ) from None
    return tuple(found)


def reported(field: str, kind: Callable[[str], Kind]) -> Kind | None:
    """Return the value of a field, converted by kind; None for [N/A], [Not Supported], [Unknown
    Error] and the like."""
    return None if field.startswith("[") or field in ("N/A", "") else kind(field)


def whole(field: str) -> int | None:
    """Return the number of a field, also of the form 0x01; None if it is not reported."""
    return reported(field, partial(int, base=0))


def visible_gpus(gpus: Sequence[Gpu], visible: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES selects, in its order; all GPUs if it is not set.

    visible: indices (as nvidia-smi counts), UUIDs or their beginnings, MIG ids; -1 ends the list,
    as in CUDA. Raises UserError for a name that fits no GPU of this host, or several, and for a
    repeated name.
    """
    if visible is None:
        return tuple(gpus)
    chosen: list[Gpu] = []
    for token in (part.strip() for part in visible.split(",")):
        if token in ("-1", "", "NoDevFiles"):
            break
        gpu = _mig_instance(gpus, token) if token.startswith("MIG-") else _find(gpus, token)
        if gpu in chosen:
            raise UserError(f"CUDA_VISIBLE_DEVICES={visible} names {token} twice; name it once")
        chosen.append(gpu)
    return tuple(chosen)


def _find(gpus: Sequence[Gpu], token: str) -> Gpu:
    matches = [
        gpu
        for gpu in gpus
        if str(gpu.index) == token or (token.startswith("GPU-") and gpu.uuid.startswith(token))
    ]
    if len(matches) != 1:
        known = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus) or "none"
        wrong = "more than one GPU" if matches else "no GPU of this host"
        raise UserError(
            f"CUDA_VISIBLE_DEVICES names {token}, which is {wrong}; the GPUs here: {known}"
        )
    return matches[0]


def _mig_instance(gpus: Sequence[Gpu], token: str) -> Gpu:
    """Return a MIG instance unchecked, because the query does not list MIG instances."""
    kinds = {(gpu.name, gpu.driver) for gpu in gpus}
    model, driver = kinds.pop() if len(kinds) == 1 else ("GPU", None)
    return Gpu(uuid=token, name=f"{model} (MIG instance)", driver=driver)


@dataclass(frozen=True)
class Machine:
    """One host. A field is None if the host does not report it.

    cores: the logical CPU numbers that the session may use (machine/host.py). cpu_quota: CPU time
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

    Raises UserError if its GPUs cannot be determined (hvdperf.machine.host.local_gpus).
    """
    cpu = parse_fields(text_of(root / "proc/cpuinfo"))
    smt = text_of(root / "sys/devices/system/cpu/smt/active")
    return Machine(
        host=socket.gethostname(),
        cores=available_cores(environment, root),
        gpus=local_gpus(environment),
        memory_mib=parse_memory_mib(text_of(root / "proc/meminfo")),
        cpu_model=cpu.get("model name", platform.machine() or "unknown"),
        microcode=cpu.get("microcode"),
        governor=_governor(root),
        smt=smt == "1" if smt else None,
        numa_nodes=len(list((root / "sys/devices/system/node").glob("node[0-9]*"))) or 1,
        cpu_quota=cpu_quota(root),
        kernel=platform.release(),
        container=_container(environment, root),
    )


def parse_fields(text: str) -> dict[str, str]:
    """Return the fields of /proc/meminfo, or of the first processor in /proc/cpuinfo."""
    first = text.strip().partition("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs if value.strip()}


def parse_memory_mib(meminfo: str, field: str = "MemTotal") -> int:
    """Return a field of /proc/meminfo in MiB, or 0 if it is missing."""
    return int(parse_fields(meminfo).get(field, "0").split()[0]) // 1024


def _governor(root: Path) -> str | None:
    """Return the frequency governor, or all governors, joined by "/", if the cores differ."""
    files = root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor")
    governors = {governor for file in files if (governor := text_of(file))}
    return "/".join(sorted(governors)) or None


def _container(environment: Mapping[str, str], root: Path) -> str | None:
    """Return HVDPERF_CONTAINER, or else the kind of container; None outside of one."""
    if named := environment.get("HVDPERF_CONTAINER"):
        return named
    if "APPTAINER_CONTAINER" in environment or "SINGULARITY_CONTAINER" in environment:
        return "apptainer"
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "kubernetes"
    if (root / "run/.containerenv").exists():
        return "podman"
    return "docker" if (root / ".dockerenv").exists() else None
