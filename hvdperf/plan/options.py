"""The options of the command line, checked without looking at the machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hvdperf.errors import UserError
from hvdperf.machine.placement import PACKED
from hvdperf.models import own_networks, registry
from hvdperf.plan.faults import Fault
from hvdperf.plan.profile import LARGEST, Profile, load_profile
from hvdperf.worker.protocol import STARTUP, Phase


@dataclass(frozen=True)
class LaunchSpec:
    """A way of starting ranks. over_mpi: whether Horovod's operations go through MPI, or through
    Gloo."""

    over_mpi: bool


# Launchers by the name that --launcher takes; launch/arm_launcher.py makes them.
LAUNCHERS = {"mpirun": LaunchSpec(over_mpi=True), "agents": LaunchSpec(over_mpi=False)}
# A shorter budget is more likely a mistake than a wish, and so is a longer one, of a year.
LEAST_BUDGET_MINUTES = 0.1
MOST_BUDGET_MINUTES = 366 * 24 * 60
# Words of a command line for a session of the fewest minutes that are of use.
SHORT = "--profile=smoke --budget=0.7"
# Phases in which a rank can raise, exit, be killed or hang (hvdperf.plan.faults), and phases that
# can be prolonged.
STRIKING = tuple(
    phase.value for phase in Phase if phase not in (Phase.LAUNCH, Phase.READY, Phase.END)
)
PROLONGED = tuple(phase.value for phase in STARTUP if phase not in (Phase.LAUNCH, Phase.IMPORT))


@dataclass(frozen=True)
class Options:
    """The options as given; None or "" for an option without a default that was not given."""

    profile: str = "default"
    np: int | None = None
    oversubscribe: bool = False
    world_sizes: str = ""
    models: str = ""
    workloads: tuple[str, ...] = ()
    dataset: str = ""
    data_dir: str = ""
    batch_size: int | None = None
    image_size: int | None = None
    precision: str = "float32"
    launcher: str = "mpirun"
    placement: str = PACKED
    budget_minutes: float | None = None
    thresholds: str = ""
    results: str = "results"
    inject: str = ""
    stack: str = ""
    against: str = ""
    allow_setting: tuple[str, ...] = ()


def resuming(session: str, minutes: int) -> list[str]:
    """Return the words of a command line that goes on with a session for these minutes."""
    return ["--resume", session, "--budget", str(minutes)]


def from_command_line(given: Mapping[str, Any]) -> Options:
    """Return the options that pytest has parsed. given: values by name, None for an option that was
    not given, a list for one that may be repeated. Raises UserError if more than one fault is
    given."""
    faults = given["inject"]
    if len(faults) > 1:
        raise UserError(
            f"--inject: given {len(faults)} times, {' and '.join(faults)}; a session injects "
            "only one fault; leave out the others"
        )
    return Options(
        **{
            **{name: value for name, value in given.items() if value is not None},
            "workloads": tuple(given["workloads"]),
            "allow_setting": tuple(given["allow_setting"]),
            "models": ",".join(given["models"]),
            "inject": faults[0] if faults else "",
        }
    )


def resolve_profile(options: Options) -> Profile:
    """Return the named profile with the changes that the command line makes. Raises UserError."""
    installed_networks()
    own = [network.name for path in options.workloads for network in _own_networks(path)]
    profile = load_profile(options.profile)
    if own and not options.models:
        profile = replace(
            profile, models=tuple(own), oversubscribed=(), representatives={}, sentinels=()
        )
    if options.models:
        names = tuple(name.strip() for name in options.models.split(",") if name.strip())
        if not names:
            raise UserError(f"--models {options.models}: names no network")
        for name in names:
            known_model(name)
        names = tuple(dict.fromkeys(names))
        profile = replace(
            profile,
            models=names,
            oversubscribed=(),
            representatives={},
            trials=dict.fromkeys(profile.trials, names),
            sentinels=(),
        )
    if options.world_sizes:
        profile = replace(profile, world_sizes=parse_world_sizes(options.world_sizes))
    if options.dataset:
        profile = replace(profile, dataset=options.dataset)
    if options.batch_size is not None:
        positive("--batch-size", options.batch_size, LARGEST)
        profile = replace(profile, batch=options.batch_size)
    if options.image_size is not None:
        positive("--image-size", options.image_size, LARGEST)
    if options.budget_minutes is not None:
        positive("--budget", options.budget_minutes, MOST_BUDGET_MINUTES)
        if options.budget_minutes < LEAST_BUDGET_MINUTES:
            raise UserError(
                f"--budget {options.budget_minutes:g}: {60 * options.budget_minutes:.2g} s are "
                "too few to start a rank; give minutes, such as 5"
            )
        profile = replace(profile, budget_s=60 * options.budget_minutes)
    return profile


def installed_networks() -> None:
    """Add the networks of installed packages to those known. Raises UserError."""
    try:
        own_networks.load_installed()
    except own_networks.BadWorkloads as error:
        raise UserError(str(error)) from None


def _own_networks(path: str) -> Sequence[registry.Network]:
    try:
        return own_networks.load_file(path)
    except own_networks.BadWorkloads as error:
        raise UserError(f"--workloads {error}") from None


def known_model(name: str) -> registry.Network:
    try:
        return registry.network(name)
    except ValueError as error:
        raise UserError(f"--models: {error}") from None


def positive(option: str, value: float, largest: float = math.inf) -> None:
    if value != value or abs(value) == math.inf:  # math.isfinite refuses integers of 400 digits
        raise UserError(f"{option} {value:g}: must be a finite number")
    if value <= 0:
        raise UserError(f"{option} {value:g}: must be above zero")
    if value > largest:
        raise UserError(f"{option} {value}: must be at most {largest}")


def parse_world_sizes(text: str) -> tuple[int, ...]:
    """Parse `1,3,7`: return world sizes, each once, ascending. Raises UserError."""
    try:
        sizes = sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1:
        raise UserError(f"--world-sizes {text}: give positive whole numbers, such as 1,2,4")
    return tuple(sizes)


def parse_fault(text: str, models: Sequence[str], sizes: Sequence[int]) -> Fault | None:
    """Parse a fault; return None for "". Raises UserError also for a fault that could never strike.
    models, sizes: those of the session."""
    if not text:
        return None
    try:
        fault = Fault.parse(text)
    except ValueError as error:
        raise UserError(f"--inject {text}: {error}") from None
    phases = PROLONGED if fault.kind == "longer" else STRIKING
    ranks = fault.world_size or max(sizes)
    never = (
        (fault.phase not in phases, f"the phase must be one of {', '.join(phases)}"),
        (
            fault.model not in ("", *models),
            f"this session measures only the networks {', '.join(models)}",
        ),
        (
            fault.world_size not in (0, *sizes),
            f"this session measures only the world sizes {', '.join(map(str, sizes))}",
        ),
        (not 0 <= fault.rank < ranks, f"this session has only the ranks 0 to {ranks - 1}"),
        (fault.changes_nothing, "this fault changes nothing; give a larger value"),
        (
            fault.is_of_exchange and ranks == 1,
            "one replica exchanges nothing, so this fault needs two or more",
        ),
    )
    for wrong, why in never:
        if wrong:
            raise UserError(f"--inject {text}: {why}")
    return fault
