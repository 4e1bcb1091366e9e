"""The state of this host's GPUs, as nvidia-smi reports it: what would slow or falsify a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hvdperf.errors import UserError
from hvdperf.machine.fitness import Check, judged
from hvdperf.machine.gpus import Gpu, ask_nvidia_smi, parse_answer, whole

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
        programs = ask_nvidia_smi(f"--query-compute-apps={_PROGRAMS}", environment)
    except UserError as error:
        return [Check("GPUs", "unknown", str(error), "see what nvidia-smi prints")]
    names = ", ".join(dict.fromkeys(gpu.name for gpu in gpus))
    if not found:
        return [Check("GPUs", f"{names}; nvidia-smi does not report their state one by one")]
    return [
        Check("GPUs", f"{names} x {len(gpus)}"),
        _programs(programs, {each.uuid: each.name for each in found}),
        *_states(found),
        _equal(
            "GPU power limits",
            [gpu.power_limit_w for gpu in gpus],
            "W",
            "set all alike: sudo nvidia-smi -pl WATTS",
        ),
        _equal(
            "GPU clocks",
            [gpu.max_sm_clock_mhz for gpu in gpus],
            "MHz",
            "use GPUs of one kind (CUDA_VISIBLE_DEVICES)",
        ),
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
    answer = ask_nvidia_smi(f"--query-gpu={_QUERY}", environment)
    return [each for each in parse_health(answer) if each.uuid in wanted]


def parse_health(answer: str) -> tuple[Health, ...]:
    """Parse the answer of nvidia-smi to the query: one GPU a line. Raises UserError for a line of
    any other form, except a warning."""
    return parse_answer(answer, _QUERY, _of_one)


def _of_one(fields: Mapping[str, str]) -> Health:
    bits = whole(fields["clocks_throttle_reasons.active"]) or 0
    return Health(
        uuid=fields["uuid"],
        name=f"GPU {int(fields['index'])}",
        persistence=_switched(fields["persistence_mode"]),
        mig=_switched(fields["mig.mode.current"]),
        celsius=whole(fields["temperature.gpu"]),
        slowdowns=tuple(name for bit, name in _SLOWDOWNS.items() if bits & bit),
        uncorrected=whole(fields["ecc.errors.uncorrected.volatile.total"]),
        width=whole(fields["pcie.link.width.current"]),
        full_width=whole(fields["pcie.link.width.max"]),
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
        "stop them, or wait for their end",
    )


def _states(found: Sequence[Health]) -> list[Check]:
    return [
        _throttling(found),
        _check(
            found,
            "GPU persistence",
            lambda each: each.persistence is not False,
            "on",
            "off",
            "the driver is loaded anew for each process, which prolongs the start-up",
            "sudo nvidia-smi -pm 1",
        ),
        _check(
            found,
            "GPU temperature",
            lambda each: each.celsius is None or each.celsius < HOT_FROM,
            " / ".join(str(each.celsius) for each in found) + " C",
            f"{HOT_FROM} C or more",
            "the clocks fall under load",
            "wait, then see to the cooling",
        ),
        _check(
            found,
            "GPU memory errors",
            lambda each: not each.uncorrected,
            "none uncorrected",
            "uncorrected",
            "results can be wrong",
            "reset the GPU (sudo nvidia-smi -r -i INDEX); replace it if they come back",
        ),
        _check(
            found,
            "GPU link",
            lambda each: None in (each.width, each.full_width) or each.width == each.full_width,
            " / ".join(f"x{each.width}" for each in found),
            "fewer lanes than its slot has",
            "data reaches it more slowly than the others",
            "seat the card or the riser anew",
        ),
        _check(
            found,
            "GPU partitions",
            lambda each: not each.mig,
            "whole GPUs",
            "MIG on",
            "a rank gets a part of the GPU",
            "sudo nvidia-smi -mig 0 -i INDEX, or name instances in CUDA_VISIBLE_DEVICES on purpose",
        ),
    ]


def _throttling(found: Sequence[Health]) -> Check:
    lowered = [f"{each.name} {' and '.join(each.slowdowns)}" for each in found if each.slowdowns]
    return judged(
        "GPU throttling",
        ", ".join(lowered) or "none",
        not lowered,
        "the clocks are lowered",
        "see to the cooling and the power supply (nvidia-smi -q -d PERFORMANCE)",
    )


def _check(
    found: Sequence[Health],
    name: str,
    is_good: Callable[[Health], bool],
    good: str,
    bad: str,
    problem: str,
    mend: str,
) -> Check:
    """Return a check whose problem names the GPUs that are not good."""
    wrong = [each.name for each in found if not is_good(each)]
    value = f"{', '.join(wrong)}: {bad}" if wrong else good
    return judged(name, value, not wrong, problem, mend)


def _equal(name: str, values: Sequence[float | None], unit: str, mend: str) -> Check:
    known = sorted({value for value in values if value is not None})
    told = ", ".join(f"{value:g} {unit}" for value in known) or "unknown"
    problem = "the GPUs differ, and all wait for the slowest"
    return judged(name, told, len(known) < 2, problem, mend)
