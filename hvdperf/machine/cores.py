"""The CPU cores that a session may use: affinity, topology and the container's quota."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

# Process names of the programs that start ranks on a host. The kernel cuts names to 15 characters;
# orterun_wrapper is the mpirun of the openmpi package.
_LAUNCHERS = {
    "mpirun",
    "mpiexec",
    "orterun",
    "orterun_wrapper",
    "orted",
    "prterun",
    "prted",
}


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
    cores = physical_cores(_affinity(environment), root)
    quota = cpu_quota(root)
    return cores if quota is None else cores[: max(1, math.floor(quota))]


def _affinity(environment: Mapping[str, str]) -> set[int]:
    launcher = launcher_pid() if "OMPI_COMM_WORLD_RANK" in environment else None
    return os.sched_getaffinity(launcher or 0)


def launcher_pid() -> int | None:
    """Return the process id of the nearest ancestor that starts ranks, or None without one.

    It need not be the parent: sh, time or uv run may lie between.
    """
    pid = os.getppid()
    while pid > 1:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            return None
        name, _, rest = stat.partition("(")[2].rpartition(")")
        if name in _LAUNCHERS:
            return pid
        pid = int(rest.split()[1])
    return None


def physical_cores(cpus: Iterable[int], root: Path = Path("/")) -> tuple[int, ...]:
    """Return the first thread of every physical core among the logical CPUs, ordered by socket."""
    cpus = sorted(cpus)
    first_of_core: dict[tuple[int, ...], tuple[int, int]] = {}
    for cpu in cpus:
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        siblings = parse_cpu_list(_read(topology / "thread_siblings_list") or str(cpu))
        socket = int(_read(topology / "physical_package_id") or 0)
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
    quotas = [
        quota
        for directory in control_groups("cpu", root)
        if (quota := _quota_of(directory)) is not None
    ]
    return min(quotas, default=None)


def control_groups(controller: str, root: Path = Path("/")) -> list[Path]:
    """Return the directories of this process's cgroups of a controller, such as cpu or memory, in
    both versions, and their parents."""
    groups = _read(root / "proc/self/cgroup") or ""
    mounts = _read(root / "proc/self/mountinfo") or ""
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
    limits = (_read(directory / "cpu.max") or "").split()
    if not limits:
        limits = [
            _read(directory / "cpu.cfs_quota_us") or "max",
            _read(directory / "cpu.cfs_period_us") or "100000",
        ]
    quota, period = limits
    return None if quota in ("max", "-1") else int(quota) / int(period)


def _read(path: Path) -> str | None:
    """Return the file's text without the line end; None if the kernel does not offer the file."""
    try:
        return path.read_text().strip()
    except OSError:
        return None
