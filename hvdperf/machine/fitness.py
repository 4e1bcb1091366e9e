"""Checks whether this host and its GPUs are fit to measure: what was found, what is wrong, and what
mends it.

Nothing here starts ranks. A check needs the counters of the kernel, or one call of nvidia-smi.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.machine import host, starting
from hvdperf.machine.cpu_usage import CpuMeter, parse_busy, used
from hvdperf.machine.disturbance import DISTURBED_ABOVE, Disturbance
from hvdperf.machine.host import Gpu, Machine, number_in
from hvdperf.machine.starting import MIB
from hvdperf.paths import shown

GIB = 2**30
# For what a slot is known to need: resident memory of a rank that trains a small network, and file
# descriptors of its pipes and sockets.
MEMORY_OF_A_SLOT = 1 * GIB
FILES_AT_LEAST, FILES_OF_A_SLOT = 256, 8
DISK_AT_LEAST = 1 * GIB
# The number of cores whose load is shown.
CORES_SHOWN = 4
# Governors that change the frequency with the load.
_VARYING = {"powersave", "ondemand", "conservative", "schedutil"}
# struct timex of Linux on 64-bit machines: sizes and places of the fields that are read.
_TIMEX_BYTES, _MAX_ERROR_AT, _STATUS_AT, _UNSYNCHRONISED = 208, 24, 40, 0x40


@dataclass(frozen=True)
class Check:
    """What was found of one property of a machine. value: for people. problem: what is wrong; "" if
    nothing is. mend: the command or the step that mends it; "" without a problem. note: what users
    should know of it although the machine is fit to measure; "" if there is nothing."""

    name: str
    value: str
    problem: str = ""
    mend: str = ""
    note: str = ""

    @property
    def complaint(self) -> str:
        """Return the problem and its remedy as one line, such as `governor: powersave: ...`."""
        return f"{self.name}: {self.value}: {self.problem}; {self.mend}"


def judged(name: str, value: str, is_fit: bool, problem: str, mend: str) -> Check:
    """Return a check that has the problem, and its remedy, unless the property is fit."""
    return Check(name, value) if is_fit else Check(name, value, problem, mend)


def host_checks(machine: Machine, slots: int, results: Path, root: Path = Path("/")) -> list[Check]:
    """Return the checks of everything but load and GPUs.

    slots: number of ranks that would run here. results: the directory of the results. root: the
    directory in which /proc, /sys and /dev are mounted.
    """
    return [
        Check("cores", machine.description if not machine.gpus else f"{len(machine.cores)}"),
        _quota(machine),
        Check("SMT", _smt(machine)),
        _governor(machine),
        _frequency(machine, root),
        _memory(slots, root),
        _shared_memory(machine, slots, root),
        _temporary_files(slots),
        _files(slots),
        _locked_memory(root),
        Check("ranks' memory", _memory_of_others()),
        _disk(results),
        Check("clock", _clock()),
        Check("container", machine.container or "none"),
    ]


def _quota(machine: Machine) -> Check:
    quota = machine.cpu_quota
    if quota is None:
        return Check("CPU quota", "none")
    return Check(
        "CPU quota",
        f"{quota:g} cores",
        "the kernel stops ranks that exceed it for a part of every 100 ms",
        "give the container whole cores (docker run --cpuset-cpus=0-3 instead of --cpus=4)",
    )


def _smt(machine: Machine) -> str:
    if machine.smt is None:
        return "unknown"
    return "on; a slot takes one thread of each core" if machine.smt else "off"


def _governor(machine: Machine) -> Check:
    governors = machine.governor
    if governors is None:
        return Check("governor", "unknown; the hypervisor or the firmware decides")
    return judged(
        "governor",
        governors,
        not _VARYING & set(governors.split("/")),
        "the frequency follows the load, and so does every step time",
        "sudo cpupower frequency-set -g performance",
    )


def _frequency(machine: Machine, root: Path) -> Check:
    limits = {
        (limit, most)
        for core in machine.cores
        for of_core in [root / f"sys/devices/system/cpu/cpu{core}/cpufreq"]
        if (limit := number_in(of_core / "scaling_max_freq")) is not None
        if (most := number_in(of_core / "cpuinfo_max_freq")) is not None
    }
    if not limits:
        return Check("frequency", "unknown")
    limit, most = min(limits)
    value = f"up to {limit / 1e6:.2f} of {most / 1e6:.2f} GHz"
    is_full = all(limit >= most for limit, most in limits)
    mend = f"sudo cpupower frequency-set -u {most}kHz"
    return judged("frequency", value, is_full, "it is limited", mend)


def _memory(slots: int, root: Path) -> Check:
    available = host.parse_memory_mib((root / "proc/meminfo").read_text(), "MemAvailable") * MIB
    free = min([available, *_free_in_groups(root)])
    mend = "end programs that use much, or give fewer slots (--np)"
    return _enough("memory", free, slots * MEMORY_OF_A_SLOT, slots, mend)


def _free_in_groups(root: Path) -> Iterator[int]:
    """Yield what each memory cgroup of this process leaves, in bytes; nothing without a limit."""
    for group in host.control_groups("memory", root):
        for limit, usage in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            most, taken = number_in(group / limit), number_in(group / usage)
            if most is not None and taken is not None:
                yield max(0, most - taken)


def _shared_memory(machine: Machine, slots: int, root: Path) -> Check:
    where = starting.shared_memory_directory(slots, len(machine.gpus), root)
    return _enough(
        "shared memory",
        starting.free_bytes(where),
        starting.shared_memory_needed(slots, len(machine.gpus)),
        slots,
        "remove old files in /dev/shm, or enlarge it: sudo mount -o remount,size=2g /dev/shm "
        "(docker run --shm-size=2g)",
        where,
    )


def _temporary_files(slots: int) -> Check:
    where = Path(tempfile.gettempdir())
    mend = "remove old files in it, or name another directory: export TMPDIR=DIR"
    return _enough(
        "temporary files", starting.free_bytes(where), starting.TEMPORARY_FILES, slots, mend, where
    )


def _enough(
    name: str, free: int, needed: int, slots: int, mend: str, where: Path | None = None
) -> Check:
    value = f"{_size(free)} free" + (f" in {shown(where)}" if where is not None else "")
    of = f"{slots} slot{'s' * (slots != 1)}"
    return judged(name, value, free >= needed, f"{of} need {_size(needed)}", mend)


def _size(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"


def _files(slots: int) -> Check:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = FILES_AT_LEAST + FILES_OF_A_SLOT * slots
    unlimited = limit == resource.RLIM_INFINITY
    return judged(
        "open files",
        "unlimited" if unlimited else f"{limit}",
        unlimited or limit >= needed,
        f"a session needs {needed}",
        f"ulimit -n {max(needed, 4096)}",
    )


def _locked_memory(root: Path) -> Check:
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    unlimited = limit == resource.RLIM_INFINITY
    adapters = sorted(path.name for path in (root / "sys/class/infiniband").glob("*"))
    return judged(
        "locked memory",
        "unlimited" if unlimited else _size(limit),
        unlimited or not adapters,
        f"{', '.join(adapters)} cannot register buffers for remote access",
        "ulimit -l unlimited (for good: `* - memlock unlimited` in /etc/security/limits.conf)",
    )


_PR_SET_PTRACER = 0x59616D61
# Reads 8 bytes at an address of the process that has started this one, and ends with the number of
# the error.
_READ_PARENT = """
import ctypes, os, sys
own, libc = ctypes.create_string_buffer(8), ctypes.CDLL(None, use_errno=True)
here, there = [(ctypes.c_size_t * 2)(at, 8) for at in (ctypes.addressof(own), int(sys.argv[1]))]
done = libc.process_vm_readv(os.getppid(), here, 1, there, 1, 0)
sys.exit(0 if done == 8 else ctypes.get_errno())
"""


def _memory_of_others() -> str:
    """Return whether a process may read the memory of another one of the same user."""
    value = ctypes.create_string_buffer(8)
    # Where Yama restricts that, Open MPI allows it to its other ranks in this way, too.
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, os.getpid(), 0, 0, 0)
    command = [sys.executable, "-I", "-S", "-c", _READ_PARENT, str(ctypes.addressof(value))]
    number = subprocess.run(command, check=False).returncode
    if number == 0:
        return "can be read"
    return (
        f"cannot be read (process_vm_readv: {errno.errorcode.get(number, number)}), so messages "
        "between ranks of a host are copied twice; to allow it: docker run --cap-add=SYS_PTRACE"
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


def _clock() -> str:
    """Return whether the kernel's clock is synchronised. Durations do not depend on it."""
    answer = ctypes.create_string_buffer(_TIMEX_BYTES)
    if ctypes.CDLL(None, use_errno=True).adjtimex(answer) < 0:
        return "unknown"
    if int.from_bytes(answer.raw[_STATUS_AT : _STATUS_AT + 4], "little") & _UNSYNCHRONISED:
        return "not synchronised; this affects only the dates and names of sessions"
    error = int.from_bytes(answer.raw[_MAX_ERROR_AT : _MAX_ERROR_AT + 8], "little")
    return f"synchronised, to {error / 1000:.0f} ms"


def load_check(meter: CpuMeter, seconds: float) -> Check:
    """Return how much of the cores others use, watched for some seconds before any rank runs."""
    meter.begin_watch()
    before, by_core = meter.read([]), _busy_seconds(meter)
    time.sleep(seconds)
    meter.watch()
    usage = used(before, meter.read([]), busiest=0)
    shares = {
        core: (busy - by_core[core]) / usage.wall_seconds
        for core, busy in _busy_seconds(meter).items()
    }
    found = meter.disturbance([usage])
    is_fit = found.foreign_share <= DISTURBED_ABOVE and not usage.throttled_seconds
    return judged("load", _load(found, shares), is_fit, *found.problem_and_mend("just now"))


def _load(found: Disturbance, shares: dict[int, float]) -> str:
    """Return in words how busy the cores are. shares: busy share of every core."""
    busiest = sorted(shares, key=lambda core: -shares[core])[:CORES_SHOWN]
    told = ", ".join(f"core {core} {100 * shares[core]:.0f} %" for core in sorted(busiest))
    which = "" if len(busiest) == len(shares) else "the busiest of them: "
    return (
        f"others use {100 * found.foreign_share:.0f} % of {len(shares)} cores ({which}{told}), "
        f"steal {100 * found.steal_share:.0f} %, load average {os.getloadavg()[0]:.1f}"
    )


def _busy_seconds(meter: CpuMeter) -> dict[int, float]:
    """Return the busy seconds of each of the meter's cores since the boot."""
    # Each line is read for its own core: hundreds of cores would otherwise read hundreds of lines.
    stat = (meter.root / "proc/stat").read_text().splitlines()
    lines = {line.partition(" ")[0]: line for line in stat}
    return {core: parse_busy(lines.get(f"cpu{core}", ""), [core])[0] for core in meter.cores}


def complaints(checks: Iterable[Check]) -> tuple[str, ...]:
    """Return a line for each check with a problem."""
    return tuple(check.complaint for check in checks if check.problem)


# "clocks_throttle_reasons" is called "clocks_event_reasons" since driver 535, which still takes the
# old name.
_QUERY = (
    "uuid,index,persistence_mode,mig.mode.current,temperature.gpu,clocks_throttle_reasons.active,"
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


@dataclass(frozen=True)
class Health:
    """The state of one GPU; None for what the driver does not report.

    slowdowns: why its clocks are lowered. uncorrected: uncorrected memory errors since the driver
    was loaded. width, full_width: lanes of the PCIe link in use, and of the slot.
    """

    uuid: str
    name: str
    persistence: bool | None
    mig: bool | None
    celsius: int | None
    slowdowns: tuple[str, ...]
    uncorrected: int | None
    width: int | None
    full_width: int | None


def gpu_checks(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> list[Check]:
    """Return the checks of these GPUs of this host; [] without GPUs. nvidia-smi that fails is a
    problem of its own."""
    if not gpus:
        return []
    try:
        found = _health(gpus, environment)
        programs = host.ask_nvidia_smi(f"--query-compute-apps={_PROGRAMS}", environment)
    except UserError as error:
        return [Check("GPUs", "unknown", str(error), "see what nvidia-smi prints")]
    names = ", ".join(dict.fromkeys(gpu.name for gpu in gpus))
    if not found:
        return [Check("GPUs", f"{names}; nvidia-smi does not report their state one by one")]
    watts, mhz = [gpu.power_limit_w for gpu in gpus], [gpu.max_sm_clock_mhz for gpu in gpus]
    return [
        Check("GPUs", f"{names} x {len(gpus)}"),
        _programs(programs, {each.uuid: each.name for each in found}),
        *_states(found),
        _equal("GPU power limits", watts, "W", "set all alike: sudo nvidia-smi -pl WATTS"),
        _equal("GPU clocks", mhz, "MHz", "use GPUs of one kind (CUDA_VISIBLE_DEVICES)"),
    ]


def slowdowns(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> Check:
    """Return whether the clocks of these GPUs are lowered now; right after work this shows what
    idle GPUs do not."""
    try:
        return _throttling(_health(gpus, environment))
    except UserError as error:
        return Check("GPU throttling", "unknown", str(error), "see what nvidia-smi prints")


def _health(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> list[Health]:
    """Return the state of these GPUs, without those that nvidia-smi does not list, such as parts of
    a GPU. Raises UserError if nvidia-smi fails."""
    wanted = {gpu.uuid for gpu in gpus}
    answer = host.ask_nvidia_smi(f"--query-gpu={_QUERY}", environment)
    return [each for each in parse_health(answer) if each.uuid in wanted]


def parse_health(answer: str) -> tuple[Health, ...]:
    """Parse the answer of nvidia-smi to the query: one GPU a line. Raises UserError for a line of
    any other form, except a warning."""
    return host.parse_answer(answer, _QUERY, _of_one)


def _of_one(fields: Mapping[str, str]) -> Health:
    bits = host.whole(fields["clocks_throttle_reasons.active"]) or 0
    return Health(
        uuid=fields["uuid"],
        name=f"GPU {int(fields['index'])}",
        persistence=_switched(fields["persistence_mode"]),
        mig=_switched(fields["mig.mode.current"]),
        celsius=host.whole(fields["temperature.gpu"]),
        slowdowns=tuple(name for bit, name in _SLOWDOWNS.items() if bits & bit),
        uncorrected=host.whole(fields["ecc.errors.uncorrected.volatile.total"]),
        width=host.whole(fields["pcie.link.width.current"]),
        full_width=host.whole(fields["pcie.link.width.max"]),
    )


def _switched(field: str) -> bool | None:
    return {"Enabled": True, "Disabled": False}.get(field)


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


def _states(found: Sequence[Health]) -> list[Check]:
    """Return the checks of each GPU's state; a problem names the GPUs that have it."""
    rows: tuple[tuple[str, Callable[[Health], bool], str, str, str, str], ...] = (
        (
            "GPU persistence",
            lambda each: each.persistence is not False,
            *("on", "off"),
            "the driver is loaded anew for each process, which prolongs the start-up",
            "sudo nvidia-smi -pm 1",
        ),
        (
            "GPU temperature",
            lambda each: each.celsius is None or each.celsius < HOT_FROM,
            *(" / ".join(str(each.celsius) for each in found) + " C", f"{HOT_FROM} C or more"),
            "the clocks fall under load",
            "wait, then see to the cooling",
        ),
        (
            "GPU memory errors",
            lambda each: not each.uncorrected,
            *("none uncorrected", "uncorrected"),
            "results can be wrong",
            "reset the GPU (sudo nvidia-smi -r -i INDEX); replace it if they come back",
        ),
        (
            "GPU link",
            lambda each: None in (each.width, each.full_width) or each.width == each.full_width,
            *(" / ".join(f"x{each.width}" for each in found), "fewer lanes than its slot has"),
            "data reaches it more slowly than the others",
            "seat the card or the riser anew",
        ),
        (
            "GPU partitions",
            lambda each: not each.mig,
            *("whole GPUs", "MIG on"),
            "a rank gets a part of the GPU",
            "sudo nvidia-smi -mig 0 -i INDEX, or name instances in CUDA_VISIBLE_DEVICES on purpose",
        ),
    )
    checks = [_throttling(found)]
    for name, is_good, good, bad, problem, mend in rows:
        wrong = ", ".join(each.name for each in found if not is_good(each))
        checks.append(judged(name, f"{wrong}: {bad}" if wrong else good, not wrong, problem, mend))
    return checks


def _throttling(found: Sequence[Health]) -> Check:
    lowered = [f"{each.name} {' and '.join(each.slowdowns)}" for each in found if each.slowdowns]
    return judged(
        "GPU throttling",
        ", ".join(lowered) or "none",
        not lowered,
        "the clocks are lowered",
        "see to the cooling and the power supply (nvidia-smi -q -d PERFORMANCE)",
    )


def _equal(name: str, values: Sequence[float | None], unit: str, mend: str) -> Check:
    known = sorted({value for value in values if value is not None})
    told = ", ".join(f"{value:g} {unit}" for value in known) or "unknown"
    problem = "the GPUs differ, and all wait for the slowest"
    return judged(name, told, len(known) < 2, problem, mend)
