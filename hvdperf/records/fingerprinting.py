"""Makes the fingerprint of a session, reads the settings back from it, and tells which of them
change figures."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from hvdperf.json_records import convert
from hvdperf.machine.host import Gpu, Machine
from hvdperf.machine.placement import Slot
from hvdperf.machine.stack import Stack
from hvdperf.plan import settings
from hvdperf.records.fingerprint import Fingerprint, ranges

# Number of the method that computes a figure from block times (docs/figures.md). A change that
# makes figures differ gets the next number, which begins a new series.
METHOD = 1

# The numbers in Horovod's settings, by variable: the field that records each, and its default since
# Horovod 0.21 (horovod/common/operations.cc).
_NUMBERS: Mapping[str, tuple[str, float]] = {
    "HOROVOD_FUSION_THRESHOLD": ("horovod_fusion_threshold_bytes", 128 * 1024 * 1024),
    "HOROVOD_CYCLE_TIME": ("horovod_cycle_time_ms", 1.0),
    "HOROVOD_CACHE_CAPACITY": ("horovod_cache_capacity", 1024),
}
_SWITCHED = {True: "on", False: "off", None: None}
# Properties of a GPU that are recorded under `gpu_` and their names.
_OF_GPUS = ("driver", "memory_mib", "power_limit_w", "max_sm_clock_mhz", "max_memory_clock_mhz")


def fingerprint(
    machine: Machine,
    stack: Stack,
    launcher: str,
    slots: Sequence[Slot],
    environment: Mapping[str, str] = os.environ,
    data_sets: Mapping[str, str] | None = None,
    own_networks: Mapping[str, str] | None = None,
) -> Fingerprint:
    """Return the fingerprint of a session, before it measures.

    launcher: its name. slots: the session's, for the cores of every rank. environment: the ranks'
    own, without what an outer mpirun has put there. data_sets: name to a text that distinguishes
    the data set from other copies. own_networks: name to a hash of its file.
    """
    gpus = machine.gpus
    of_environment = settings.settings_in(environment)
    known = {
        name: getattr(source, name)
        for source in (machine, stack)
        for name in Fingerprint.__annotations__
        if hasattr(source, name)
    }
    fields = {
        **known,
        "method": METHOD,
        "launcher": launcher,
        "smt": _SWITCHED[machine.smt],
        "cores": len(machine.cores),
        "cpu_quota_cores": machine.cpu_quota,
        # In GiB, because the memory that the kernel reserves changes by some MiB at every boot.
        "memory_gib": round(machine.memory_mib / 1024),
        # UUIDs are left out, because equal GPUs are comparable.
        "gpus": len(gpus),
        "gpu_model": _distinct(gpu.name for gpu in gpus),
        **{f"gpu_{name}": _distinct(getattr(gpu, name) for gpu in gpus) for name in _OF_GPUS},
        "tf32": _SWITCHED[stack.tf32],
        "horovod_built_with": list(stack.horovod_flags),
        "mpirun": stack.mpirun_version,
        **{
            field: _effective(environment.get(name), default)
            for name, (field, default) in _NUMBERS.items()
        },
        # Where a timeline is written does not matter. Horovod's thread for it runs even if the
        # variable is empty.
        "horovod_timeline": "on" if "HOROVOD_TIMELINE" in environment else "off",
        **{
            field: [each.recorded for each in of_environment if each.row.field == field]
            for field in settings.FIELDS
        },
        "data_sets": [f"{name}: {text}" for name, text in (data_sets or {}).items()],
        "rank_cores": [f"{slot.rank}: {ranges(slot.cores, ',')}" for slot in slots],
    }
    if own_networks:
        fields["own_networks"] = [f"{name}: {text}" for name, text in own_networks.items()]
    names = [name for name in Fingerprint.__annotations__ if name in fields]
    return convert({name: fields[name] for name in names}, Fingerprint)


def settings_of(known: Fingerprint) -> list[settings.Setting]:
    """Return the settings that a fingerprint records, without those that are Horovod's own
    defaults, by name."""
    found = [
        settings.Setting(name, str(value))
        for name, (field, default) in _NUMBERS.items()
        if (value := known[field]) != default  # type: ignore[literal-required]
    ]
    if known["horovod_timeline"] == "on":
        found.append(settings.Setting("HOROVOD_TIMELINE", "on"))
    lists: dict[str, list[str]] = {field: known[field] for field in settings.FIELDS}  # type: ignore[literal-required]
    found += [settings.from_text(field, text) for field, texts in lists.items() for text in texts]
    # Earlier sessions recorded settings that no figure depends on, too.
    known_here = (each for each in found if settings.row_of(each.name) is not None)
    return sorted(known_here, key=lambda setting: setting.name)


def _distinct(values: Iterable[str | float | None]) -> list[str]:
    return sorted({"(unknown)" if value is None else str(value) for value in values})


def _effective(setting: str | None, default: float) -> float | str:
    """Return the number that is set. Text that is not a number is returned as it is, because
    Horovod parses as much of it as it can."""
    if setting is None:
        return default
    try:
        number = float(setting)
    except ValueError:
        return setting
    return int(number) if number.is_integer() else number


def told_settings(known: Fingerprint) -> list[str]:
    """Return a line for each setting of a session: its value, what it changes and which figures it
    touches, or why it has no effect. known: the session's fingerprint."""
    places = settings.places_of(known["launcher"], known["gpus"])
    return [each.told(places) for each in settings_of(known)]


def machine_of(fingerprint: Fingerprint) -> Machine:
    """Return a machine with the fields that define its class."""
    models = fingerprint["gpu_model"]
    gpus = tuple(Gpu("", models[i % len(models)]) for i in range(fingerprint["gpus"]))
    cores = tuple(range(fingerprint["cores"]))
    return Machine("", cores, gpus, cpu_model=fingerprint["cpu_model"])
