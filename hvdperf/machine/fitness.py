"""Checks whether this host and its GPUs are fit to measure: what was found, what is wrong, and the
fix.

Nothing here starts ranks. A check needs the counters of the kernel, or one call of nvidia-smi.
"""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hvdperf.errors import UserError
from hvdperf.machine import host, starting
from hvdperf.machine.disturbance import DISTURBED_ABOVE, CpuMeter, used
from hvdperf.machine.host import Gpu, Machine
from hvdperf.machine.starting import MIB
from hvdperf.paths import shown

GIB = 2**30
# For what a slot is known to need: resident memory of a rank that trains a small network, and file
# descriptors of its pipes and sockets.
MEMORY_OF_A_SLOT = 1 * GIB
FILES_AT_LEAST, FILES_OF_A_SLOT = 256, 8
DISK_AT_LEAST = 1 * GIB
# Governors that change the frequency with the load.
_VARYING = {"powersave", "ondemand", "conservative", "schedutil"}


@dataclass(frozen=True)
class Check:
    """What was found of one property of a machine. value: for people. problem: what is wrong; "" if
    nothing is. fix: the command or the step against it; "" without a problem. note: what users
    should know of it although the machine is fit to measure; "" if there is nothing."""

    name: str
    value: str
    problem: str = ""
    fix: str = ""
    note: str = ""

    @property
    def complaint(self) -> str:
        """Return the problem and its fix as one line, such as `governor: powersave: ...`."""
        return f"{self.name}: {self.value}: {self.problem}; {self.fix}"


def judged(name: str, value: str, is_fit: bool, problem: str, fix: str) -> Check:
    """Return a check that has the problem, and its fix, unless the property is fit."""
    return Check(name, value) if is_fit else Check(name, value, problem, fix)


def host_checks(machine: Machine, slots: int, results: Path, root: Path = Path("/")) -> list[Check]:
    """Return the checks of everything but load and GPUs.

    slots: number of ranks that would run here. results: the directory of the results. root: the
    directory in which /proc, /sys and /dev are mounted.
    """
    return [
        *_processor(machine),
        *_space(slots, len(machine.gpus), root),
        _open_files(slots),
        _disk(results),
        Check("container", machine.container or "none"),
    ]


def _processor(machine: Machine) -> Iterator[Check]:
    yield Check("cores", machine.description if not machine.gpus else f"{len(machine.cores)}")
    quota, smt, governors = machine.cpu_quota, machine.smt, machine.governor
    yield judged(
        "CPU quota",
        "none" if quota is None else f"{quota:g} cores",
        quota is None,
        "the kernel stops ranks that exceed it for a part of every 100 ms",
        "give the container whole cores (docker run --cpuset-cpus=0-3 instead of --cpus=4)",
    )
    in_use = "on; a slot takes one thread of each core" if smt else "off"
    yield Check("SMT", "unknown" if smt is None else in_use)
    yield judged(
        "governor",
        governors or "unknown; the hypervisor or the firmware decides",
        not _VARYING & set((governors or "").split("/")),
        "the frequency follows the load, and so does every step time",
        "sudo cpupower frequency-set -g performance",
    )


def _space(slots: int, gpus: int, root: Path) -> Iterator[Check]:
    """Yield the checks of memory and of directories: the name, the directory, the free and the
    needed bytes, and the fix of each."""
    available = host.parse_memory_mib((root / "proc/meminfo").read_text(), "MemAvailable") * MIB
    in_groups = (max(0, most - taken) for most, taken in host.memory_in_groups(root))
    shared = starting.shared_memory_directory(slots, gpus, root)
    temporary = Path(tempfile.gettempdir())
    rows = (
        (
            *("memory", None, min([available, *in_groups]), slots * MEMORY_OF_A_SLOT),
            "end programs that use much, or give fewer slots (--np)",
        ),
        (
            *("shared memory", shared, starting.free_bytes(shared)),
            starting.shared_memory_needed(slots, gpus),
            "remove old files in /dev/shm, or enlarge it: sudo mount -o remount,size=2g /dev/shm "
            "(docker run --shm-size=2g)",
        ),
        (
            *("temporary files", temporary, starting.free_bytes(temporary)),
            starting.TEMPORARY_FILES,
            "remove old files in it, or name another directory: export TMPDIR=DIR",
        ),
    )
    need = f"{slots} slot{'s' * (slots != 1)} need"
    for name, where, free, needed, fix in rows:
        value = f"{_size(free)} free" + (f" in {shown(where)}" if where is not None else "")
        yield judged(name, value, free >= needed, f"{need} {_size(needed)}", fix)


def _size(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"


def _open_files(slots: int) -> Check:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FILES_AT_LEAST + FILES_OF_A_SLOT * slots
    return judged(
        "open files",
        "unlimited" if files == resource.RLIM_INFINITY else f"{files}",
        files == resource.RLIM_INFINITY or files >= needed,
        f"a session needs {needed}",
        f"ulimit -n {max(needed, 4096)}",
    )


def _existing(results: Path) -> Path:
    """Return the directory, or the lowest one above it that exists."""
    return next(path for path in (results, *results.absolute().parents) if path.exists())


def unwritable(results: Path) -> str:
    """Return why nothing can be written below a directory, which need not exist; "" if it can."""
    where = _existing(results)
    if not where.is_dir():
        return f"{shown(where)} is not a directory"
    return "" if os.access(where, os.W_OK | os.X_OK) else f"{shown(where)} is not writable"


def _disk(results: Path) -> Check:
    if problem := unwritable(results):
        return Check("disk", f"results in {shown(results)}", problem, "give --results DIR")
    free = shutil.disk_usage(_existing(results)).free
    return judged(
        "disk",
        f"{_size(free)} free for {shown(results)}",
        free >= DISK_AT_LEAST,
        f"a session needs {_size(DISK_AT_LEAST)}",
        "free some, or give --results DIR",
    )


def load_check(meter: CpuMeter, seconds: float) -> Check:
    """Return how much of the cores others use, watched for some seconds before any rank runs."""
    meter.begin_watch()
    before = meter.read([])
    time.sleep(seconds)
    meter.watch()
    usage = used(before, meter.read([]), busiest=0)
    found = meter.disturbance([usage])
    value = (
        f"others use {100 * found.foreign_share:.0f} % of {len(meter.cores)} cores, "
        f"steal {100 * found.steal_share:.0f} %, load average {os.getloadavg()[0]:.1f}"
    )
    is_fit = found.foreign_share <= DISTURBED_ABOVE and not usage.throttled_seconds
    return judged("load", value, is_fit, *found.problem_and_fix("just now"))


def complaints(checks: Iterable[Check]) -> tuple[str, ...]:
    """Return a line for each check with a problem."""
    return tuple(check.complaint for check in checks if check.problem)


# "clocks_throttle_reasons" is called "clocks_event_reasons" since driver 535, which still takes the
# old name.
_QUERY = (
    "uuid,index,temperature.gpu,clocks_throttle_reasons.active,"
    "ecc.errors.uncorrected.volatile.total,pcie.link.width.current,pcie.link.width.max"
)
_PROGRAMS = "gpu_uuid,pid,process_name,used_memory"
# Bits of clocks_throttle_reasons.active that mean a fault of cooling or power supply, from nvml.h.
# The other bits (idle, clocks that were set, the power cap) belong to ordinary work.
_SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
# Degrees Celsius that an idle GPU with working cooling does not reach.
HOT_FROM = 80


# The state of one GPU, by the names of its fields in the query, and its `name`. A number is None if
# the driver does not report it.
Health = Mapping[str, Any]


def gpu_checks(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> list[Check]:
    """Return the checks of these GPUs of this host; [] without GPUs. nvidia-smi that fails is a
    problem of its own."""
    if not gpus:
        return []
    try:
        found = _health(gpus, environment)
        programs = host.ask_nvidia_smi(f"--query-compute-apps={_PROGRAMS}", environment)
    except UserError as error:
        return [_unknown("GPUs", error)]
    kinds = [*dict.fromkeys(gpu.name for gpu in gpus)]
    names = ", ".join(kinds)
    if not found:
        return [Check("GPUs", f"{names}; nvidia-smi does not report their state one by one")]
    watts = sorted({gpu.power_limit_w for gpu in gpus if gpu.power_limit_w is not None})
    differ = "the GPUs differ, and all wait for the slowest"
    return [
        judged(
            "GPUs",
            f"{names} x {len(gpus)}",
            len(kinds) == 1,
            differ,
            "use GPUs of one kind (CUDA_VISIBLE_DEVICES)",
        ),
        _programs(programs, {each["uuid"]: each["name"] for each in found}),
        _throttling(found),
        *_states(found),
        judged(
            "GPU power limits",
            ", ".join(f"{value:g} W" for value in watts) or "unknown",
            len(watts) < 2,
            differ,
            "set all alike: sudo nvidia-smi -pl WATTS",
        ),
    ]


def slowdowns(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> Check:
    """Return whether the clocks of these GPUs are lowered now; right after work this shows what
    idle GPUs do not."""
    try:
        return _throttling(_health(gpus, environment))
    except UserError as error:
        return _unknown("GPU throttling", error)


def _unknown(name: str, error: UserError) -> Check:
    return Check(name, "unknown", str(error), "see what nvidia-smi prints")


def _health(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> list[Health]:
    """Return the state of these GPUs, without those that nvidia-smi does not list, such as parts of
    a GPU. Raises UserError if nvidia-smi fails."""
    wanted = {gpu.uuid for gpu in gpus}
    answer = host.ask_nvidia_smi(f"--query-gpu={_QUERY}", environment)
    return [each for each in parse_health(answer) if each["uuid"] in wanted]


def parse_health(answer: str) -> tuple[Health, ...]:
    """Parse the answer of nvidia-smi to the query: one GPU a line. Raises UserError for a line of
    any other form, except a warning."""
    return host.parse_answer(answer, _QUERY, _of_one)


def _of_one(fields: Mapping[str, str]) -> Health:
    found = {name: text if name == "uuid" else host.whole(text) for name, text in fields.items()}
    return {**found, "name": f"GPU {found['index']}"}


def _programs(answer: str, names: Mapping[str, str]) -> Check:
    """Return the check of other programs. answer: of nvidia-smi, one program a line. names: of the
    GPUs, by UUID."""
    found = []
    for line in answer.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 4 and fields[0] in names:
            uuid, pid, program, memory = fields
            name = program.rpartition("/")[2]
            found.append(f"{name}, pid {pid}: {memory} MiB of {names[uuid]}")
    return judged(
        "GPU programs",
        "; ".join(found) or "none",
        not found,
        "they share the GPUs with the session",
        "stop them, or wait until they finish",
    )


def _states(found: Sequence[Health]) -> Iterator[Check]:
    """Yield the checks of each GPU's state; a problem names the GPUs that have it. Nothing is wrong
    with a field that the driver does not report."""
    celsius, widths = "temperature.gpu", ("pcie.link.width.current", "pcie.link.width.max")
    rows: tuple[tuple[str, Callable[[Health], object], str, str, str, str], ...] = (
        (
            "GPU temperature",
            lambda gpu: (gpu[celsius] or 0) >= HOT_FROM,
            *(" / ".join(str(gpu[celsius]) for gpu in found) + " C", f"{HOT_FROM} C or more"),
            "the clocks fall under load",
            "wait, then see to the cooling",
        ),
        (
            "GPU memory errors",
            lambda gpu: gpu["ecc.errors.uncorrected.volatile.total"],
            *("none uncorrected", "uncorrected"),
            "results can be wrong",
            "reset the GPU (sudo nvidia-smi -r -i INDEX); replace it if they come back",
        ),
        (
            "GPU link",
            lambda gpu: len({gpu[width] for width in widths} - {None}) > 1,
            *(" / ".join(f"x{gpu[widths[0]]}" for gpu in found), "fewer lanes than its slot has"),
            "data reaches it more slowly than the others",
            "seat the card or the riser again",
        ),
    )
    for name, is_bad, good, bad, problem, fix in rows:
        wrong = ", ".join(gpu["name"] for gpu in found if is_bad(gpu))
        yield judged(name, f"{wrong}: {bad}" if wrong else good, not wrong, problem, fix)


def _throttling(found: Sequence[Health]) -> Check:
    lowered = []
    for gpu in found:
        bits = gpu["clocks_throttle_reasons.active"] or 0
        if reasons := [name for bit, name in _SLOWDOWNS.items() if bits & bit]:
            lowered.append(f"{gpu['name']} {' and '.join(reasons)}")
    return judged(
        "GPU throttling",
        ", ".join(lowered) or "none",
        not lowered,
        "the clocks are lowered",
        "see to the cooling and the power supply (nvidia-smi -q -d PERFORMANCE)",
    )
