"""The options of a session, and the profile with the changes that they make, checked without
looking at the machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from hvdperf.errors import UserError, refusing
from hvdperf.models import inputs, own_networks, registry
from hvdperf.plan.arms import PRECISIONS
from hvdperf.plan.profile import LARGEST, Profile, load_profile
from hvdperf.plan.settings import REFUSED

# The environment variable that gives the default of --data-dir.
DATA_DIR = "HVDPERF_DATA_DIR"


@dataclass(frozen=True)
class LaunchSpec:
    """A way of starting ranks. over_mpi: whether Horovod's operations go through MPI, or through
    Gloo."""

    over_mpi: bool


# Launchers by the name that --launcher takes; launch/arm_launcher.py makes them.
LAUNCHERS = {"mpirun": LaunchSpec(over_mpi=True), "agents": LaunchSpec(over_mpi=False)}
# Values of options, the usual one first.
_INPUTS, _LAUNCHERS, _REFUSED = tuple(inputs.INPUTS), tuple(LAUNCHERS), REFUSED
# A shorter budget is more likely a mistake than a wish, and so is a longer one, of a year.
LEAST_BUDGET_MINUTES = 0.1
MOST_BUDGET_MINUTES = 366 * 24 * 60


@dataclass(frozen=True)
class Options:
    """The options of a session, with their texts as hvdperf.cli reads them.

    what to measure
        --profile NAME: Take networks, questions and numbers of rounds from this profile, by name
            (`hvdperf list profiles`) or as a TOML file. Default: default.
        --models A,B: Measure these networks (`hvdperf list networks`). The option may be repeated.
            Default: those of the profile.
        --workloads FILE: Add the networks that this Python file defines, and without --models
            measure only them. The option may be repeated. Default: none.
        --script TEXT: Measure this training script as it is, such as "train.py --batch 64", in a
            copy of its directory, and without --models only such. The option may be repeated.
            Default: none.
        --dataset {_INPUTS}: Train on this data set; language models read ptb beside one with
            images. Default: that of the profile.
        --data-dir DIR: Read the data set from this directory, or several data sets from
            ptb=DIR,imagenet=DIR. Default: {DATA_DIR}, or else small samples that the suite writes.
        --batch-size N: Train on N samples a replica and step. Default: as the profile.
        --image-size PX: Train on images of PX by PX pixels. Default: the size of each network.
        --policy {PRECISIONS}: Train all networks with this precision policy of Keras. Default:
            float32.

    where, and on how many replicas
        --np N: Use N slots; under mpirun, the first N of its ranks. Default: all GPUs, or else all
            cores; under mpirun, all its ranks.
        --oversubscribe: Allow more slots than GPUs or cores. Default: --np must not exceed their
            number.
        --world-sizes 1,2,4: Measure with these numbers of replicas. Default: those of the profile,
            or else powers of two up to the number of slots, and that number.
        --network CIDR: Connect the hosts through this network, such as 10.77.0.0/24. Default: any
            network that reaches the host of rank 0.
        --launcher {_LAUNCHERS}: Start ranks with mpirun (Horovod over MPI), or have each slot start
            its own (agents; Horovod over Gloo). Default: mpirun.
        --stack PYTHON: Measure the TensorFlow and Horovod of this interpreter. Default: those of
            pytest's own.
        --require-fit: Measure only if `hvdperf doctor` finds this machine ready; otherwise exit
            with status 9. Default: measure, and show the problems.
        --allow-setting {_REFUSED}: Measure although this variable makes every launch measure
            something else. The option may be repeated. Default: refuse to.
        --inject FAULT: Inject this fault, such as slow:rank=1,factor=2, to try the suite (`hvdperf
            list faults`). Default: none.

    how long
        --precision 2%: Take rounds until the interval of every selected figure reaches at most so
            far to either side. Default: until the verdict.
        --budget MIN: Begin no round that would end after MIN minutes. The first of each workload
            begins if any time is left. Default: that of the profile.
        --dry-run: List cases, arms, world sizes and budget, and start no ranks. Default: measure.
        --resume DIR: Continue the session of this directory, results/runs/..., where it was
            interrupted or left cases undecided. Default: begin a new session.

    compare and judge
        --thresholds FILE: Judge by the thresholds of this file. Default: those in ci/thresholds for
            machines like this one.
        --against PYTHON: Compare every case with the same case under the TensorFlow and Horovod of
            this interpreter (`make stack`). Default: judge by thresholds.

    output
        --results DIR: Write documents below DIR/runs and the page below DIR/report. Default:
            results.
    """

    profile: str = "default"
    models: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    script: tuple[str, ...] = ()
    dataset: str = ""
    data_dir: str = ""
    batch_size: int | None = None
    image_size: int | None = None
    policy: str = PRECISIONS[0]
    np: int | None = None
    oversubscribe: bool = False
    world_sizes: str = ""
    network: str = ""
    launcher: str = _LAUNCHERS[0]
    stack: str = ""
    require_fit: bool = False
    allow_setting: tuple[str, ...] = ()
    inject: tuple[str, ...] = ()
    precision: str = ""
    budget_minutes: float | None = None
    dry_run: bool = False
    resume: str = ""
    thresholds: str = ""
    against: str = ""
    results: str = "results"

    @property
    def fault(self) -> str:
        """The fault to inject; "" for none. Raises UserError if there are several."""
        if len(self.inject) > 1:
            raise UserError(
                f"--inject: given {len(self.inject)} times, {' and '.join(self.inject)}; a session "
                "injects only one fault; leave out the others"
            )
        return "".join(self.inject)

    @property
    def interval(self) -> float | None:
        """How far intervals may reach to either side, as a share. Raises UserError unless it lies
        between 0 and 100 %."""
        text = self.precision
        if not text:
            return None
        try:
            share = float(text.removesuffix("%")) / 100 if text.endswith("%") else math.nan
        except ValueError:
            share = math.nan
        if not 0 < share < 1:
            raise UserError(f"--precision {text}: must be above 0 % and below 100 %, such as 2%")
        return share


def resuming(session: str, minutes: int) -> list[str]:
    """Return the words of a command line that goes on with a session for these minutes."""
    return ["--resume", session, "--budget", str(minutes)]


def resolve_profile(options: Options) -> Profile:
    """Return the named profile with the changes that the command line makes. Raises UserError."""
    with refusing("--workloads ", own_networks.BadWorkloads):
        files = [own_networks.load_file(path) for path in options.workloads]
    with refusing("--script ", own_networks.BadWorkloads):
        scripts = [own_networks.load_script(text) for text in options.script]
    own = [network.name for network in (*chain.from_iterable(files), *scripts)]
    profile = load_profile(options.profile)
    changes: dict[str, Any] = {}
    names = _named_models(options.models) or tuple(dict.fromkeys(own))
    if names:
        # What the profile says of its own networks says nothing of these.
        changes = {"models": names, "oversubscribed": (), "representatives": {}, "sentinels": ()}
    if options.models:
        changes["fault_cases"] = dict.fromkeys(profile.fault_cases, names)
    if options.world_sizes:
        changes["world_sizes"] = parse_world_sizes(options.world_sizes)
    if options.dataset:
        changes["dataset"] = options.dataset
    if options.batch_size is not None:
        changes["batch"] = positive("--batch-size", options.batch_size, LARGEST)
    if options.image_size is not None:
        positive("--image-size", options.image_size, LARGEST)
    if options.budget_minutes is not None:
        minutes = positive("--budget", options.budget_minutes, MOST_BUDGET_MINUTES)
        if minutes < LEAST_BUDGET_MINUTES:
            raise UserError(
                f"--budget {minutes:g}: {60 * minutes:.2g} s are too few to start a rank; give "
                "minutes, such as 5"
            )
        changes["budget_s"] = 60 * minutes
    if options.interval is not None:
        changes["sampling"] = replace(profile.sampling, precision=options.interval)
    return replace(profile, **changes)


def _named_models(given: Sequence[str]) -> tuple[str, ...]:
    """Return the names in the values of --models, each once. Raises UserError for an unknown one,
    and for values without any."""
    text = ",".join(given)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if text and not names:
        raise UserError(f"--models {text}: names no network")
    for name in names:
        known_model(name)
    return names


def known_model(name: str) -> registry.Network:
    with refusing("--models: ", ValueError):
        return registry.network(name)


def positive(option: str, value: float, largest: float = math.inf) -> float:
    """Return the value of an option. Raises UserError unless it is above 0 and not too large."""
    if value != value or abs(value) == math.inf:  # math.isfinite refuses integers of 400 digits
        raise UserError(f"{option} {value:g}: must be a finite number")
    if value <= 0:
        raise UserError(f"{option} {value:g}: must be above zero")
    if value > largest:
        raise UserError(f"{option} {value}: must be at most {largest}")
    return value


def parse_world_sizes(text: str) -> tuple[int, ...]:
    """Parse `1,3,7`: return world sizes, each once, ascending. Raises UserError."""
    try:
        sizes = sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1:
        raise UserError(f"--world-sizes {text}: give positive whole numbers, such as 1,2,4")
    return tuple(sizes)
