"""The GPUs of this host, as nvidia-smi reports them, without those that the environment hides."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from hvdperf.errors import UserError
from hvdperf.programs import TooLong, run

Kind = TypeVar("Kind")

_QUERY = "index,uuid,name,memory.total,driver_version,power.limit,clocks.max.sm,clocks.max.memory"
_TIMEOUT_S = 20.0
_WITHOUT = "set CUDA_VISIBLE_DEVICES= (empty) to measure on the CPU"

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
        output = ask_nvidia_smi(f"--query-gpu={_QUERY}", environment, timeout_s)
    except _NoGpu:
        return ()
    except UserError as error:
        raise UserError(f"{error}; {_WITHOUT}") from None
    return visible_gpus(parse_gpus(output), visible)


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
    try:
        return parse_answer(output, _QUERY, _gpu)
    except UserError as error:
        raise UserError(f"{error}; {_WITHOUT}") from None


def _gpu(fields: Mapping[str, str]) -> Gpu:
    return Gpu(
        uuid=fields["uuid"],
        name=fields["name"],
        index=int(fields["index"]),
        memory_mib=whole(fields["memory.total"]),
        driver=_reported(fields["driver_version"]),
        power_limit_w=_number(fields["power.limit"]),
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


def _reported(field: str) -> str | None:
    """Return the field, or None for [N/A], [Not Supported], [Unknown Error] and their like."""
    return None if field.startswith("[") or field in ("N/A", "") else field


def _number(field: str) -> float | None:
    reported = _reported(field)
    return None if reported is None else float(reported)


def whole(field: str) -> int | None:
    """Return the number of a field, also of the form 0x01; None if it is not reported."""
    reported = _reported(field)
    return None if reported is None else int(reported, base=0)


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
    models = {gpu.name for gpu in gpus}
    drivers = {gpu.driver for gpu in gpus}
    model = models.pop() if len(models) == 1 else "GPU"
    return Gpu(
        uuid=token,
        name=f"{model} (MIG instance)",
        driver=drivers.pop() if len(drivers) == 1 else None,
    )
