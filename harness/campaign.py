"""What a pytest session is about to measure: options and machine in, slots and comparisons out.

Everything that can be wrong with the input is found here, before anything is launched.
"""

from __future__ import annotations

import math
import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import UserError
from harness.launch.agent import Agent, LocalAgent
from harness.launch.agents import AgentsLauncher
from harness.launch.hub import Hub
from harness.launch.job import Launcher
from harness.launch.mpirun import MpirunLauncher
from harness.launch.slots import Slots
from harness.machine import Machine
from harness.placement import Offer, Slot, is_oversubscribed, nodes
from harness.plan import (
    Comparison,
    Fault,
    Profile,
    Question,
    Schedule,
    Workload,
    default_world_sizes,
)
from harness.profiles import load_profile
from harness.stack import Stack
from harness.starter import DataSource, Starter
from harness.thresholds import Thresholds, load_thresholds, select
from harness.wire import Phase
from models import inputs, registry
from models.inputs import cifar_files, samples

ROOT = Path(__file__).resolve().parents[1]
# Records per file: 5,000 for training in all, so that a shuffle has something to do.
SAMPLE_RECORDS = {"cifar10": 1000, "cifar100": 5000}
LAUNCHERS = ("mpirun", "agents")


@dataclass(frozen=True)
class Options:
    """The command line, as it was given; None or empty where it was not."""

    profile: str = "default"
    np: int | None = None
    oversubscribe: bool = False
    world_sizes: str = ""
    models: str = ""
    dataset: str = ""
    data_dir: str = ""
    batch_size: int | None = None
    image_size: int | None = None
    launcher: str = "mpirun"
    schedule: str = ""
    budget_minutes: float | None = None
    thresholds: str = ""
    results: str = "results"
    plant: str = ""


def resolve_profile(options: Options) -> Profile:
    """The named profile with what the command line changes about it."""
    profile = load_profile(options.profile)
    if options.models:
        names = tuple(name.strip() for name in options.models.split(",") if name.strip())
        if not names:
            raise UserError(f"--models {options.models}: names no network")
        for name in names:
            known_model(name)
        names = tuple(dict.fromkeys(names))
        profile = replace(profile, models=names, oversubscribed=())
    if options.world_sizes:
        profile = replace(profile, world_sizes=parse_world_sizes(options.world_sizes))
    if options.dataset:
        profile = replace(profile, dataset=options.dataset)
    if options.batch_size is not None:
        positive("--batch-size", options.batch_size)
        profile = replace(profile, batch=options.batch_size)
    if options.image_size is not None:
        positive("--image-size", options.image_size)
    if options.schedule:
        profile = replace(profile, schedule=Schedule(options.schedule))
    if options.budget_minutes is not None:
        positive("--budget", options.budget_minutes)
        profile = replace(profile, budget_s=60 * options.budget_minutes)
    return profile


def known_model(name: str) -> registry.Network:
    try:
        return registry.network(name)
    except ValueError as error:
        raise UserError(f"--models: {error}") from None


def positive(option: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise UserError(f"{option} {value:g}: must be above zero")


def parse_world_sizes(text: str) -> tuple[int, ...]:
    """From `1,3,7`."""
    try:
        sizes = sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1:
        raise UserError(f"--world-sizes {text}: give positive whole numbers, such as 1,2,4")
    return tuple(sizes)


def parse_fault(text: str, slots: int) -> Fault | None:
    """Raises UserError also for a fault that could never strike."""
    if not text:
        return None
    try:
        fault = Fault.parse(text)
        Phase(fault.phase)
    except ValueError as error:
        raise UserError(f"--plant {text}: {error}") from None
    if not 0 <= fault.rank < slots:
        raise UserError(f"--plant {text}: the ranks of this session are 0 to {slots - 1}")
    return fault


@dataclass(frozen=True)
class Campaign:
    """What to measure, on what. Nothing has been started yet."""

    options: Options
    profile: Profile
    machine: Machine
    slots: tuple[Slot, ...]
    workloads: tuple[Workload, ...]
    world_sizes: tuple[int, ...]
    data: DataSource
    thresholds: Thresholds
    fault: Fault | None

    def comparisons(
        self, ask: Callable[[Workload, int], Comparison], smallest: int
    ) -> list[Comparison]:
        """One comparison a workload and world size, from the smallest size on that makes sense."""
        asked = [
            ask(workload, size)
            for workload in self.workloads
            for size in self.world_sizes
            if size >= smallest
        ]
        return [comparison for comparison in asked if self._possible(comparison)]

    def _possible(self, comparison: Comparison) -> bool:
        size = comparison.world_size
        if comparison.question is Question.PARITY:
            # MirroredStrategy is one process, so has one host, and takes no GPU twice.
            shares_gpu = bool(self.machine.gpus) and is_oversubscribed(self.slots, size)
            one_host = nodes(self.slots, size) == 1
            return size >= self.profile.parity_from and one_host and not shares_gpu
        if comparison.question is Question.STRONG_SCALING:
            return size <= comparison.workload.batch
        return True

    def oversubscribed_sizes(self) -> list[int]:
        return [size for size in self.world_sizes if is_oversubscribed(self.slots, size)]

    def describe(self) -> list[str]:
        """A few lines for people: what will be measured, on what, for how long."""
        sizes = [
            f"{size} (oversubscribed)" if size in self.oversubscribed_sizes() else str(size)
            for size in self.world_sizes
        ]
        sampling = self.profile.sampling
        return [
            f"profile {self.profile.name}: {', '.join(self.profile.models)}; "
            f"{self.data.dataset}, batch {self.profile.batch} per replica",
            f"world sizes {', '.join(sizes)} on {len(self.slots)} slots; launcher "
            f"{self.options.launcher}, schedule {self.profile.schedule.value}",
            f"looks after {'/'.join(map(str, sampling.looks))} rounds of "
            f"{sampling.turns_min} to {sampling.turns_max} turns; budget "
            f"{self.profile.budget_s / 60:.3g} min",
            f"thresholds: {self.thresholds.path.name}: {self.thresholds.label}",
        ]


def plan_campaign(options: Options, machine: Machine, offers: Sequence[Offer]) -> Campaign:
    """Check everything and settle what will be measured. Raises UserError, one line."""
    from harness.placement import place

    profile = resolve_profile(options)
    slots = place(offers)
    sizes = profile.world_sizes or default_world_sizes(len(slots))
    too_large = [size for size in sizes if size > len(slots)]
    if too_large and options.world_sizes:
        raise UserError(
            f"--world-sizes {options.world_sizes}: this session has {len(slots)} slots; start it "
            f"with mpirun -np {max(sizes)}, or add --np {max(sizes)} --oversubscribe"
        )
    sizes = tuple(size for size in sizes if size <= len(slots))
    if not sizes:
        raise UserError(
            f"profile {profile.name}: none of its world sizes {profile.world_sizes} fits the "
            f"{len(slots)} slots of this session"
        )
    return Campaign(
        options=options,
        profile=profile,
        machine=machine,
        slots=slots,
        workloads=tuple(_workload(name, profile, options) for name in profile.models),
        world_sizes=sizes,
        data=open_data(profile.dataset, options.data_dir),
        thresholds=(
            load_thresholds(Path(options.thresholds))
            if options.thresholds
            else select(machine, ROOT / "ci" / "thresholds")
        ),
        fault=parse_fault(options.plant, len(slots)),
    )


def _workload(name: str, profile: Profile, options: Options) -> Workload:
    network = known_model(name)
    return Workload(
        model=name,
        dataset=profile.dataset,
        image_size=options.image_size or network.image_size,
        batch=profile.batch,
    )


def make_samples() -> Path:
    """Small valid files in the formats of both data sets, written once to data/samples."""
    directory = ROOT / "data" / "samples"
    if not directory.exists():
        partial = directory.with_name(f"samples.{os.getpid()}")
        for dataset, records in SAMPLE_RECORDS.items():
            samples.write_cifar(partial, dataset, cifar_files.Layout.BINARY, records)
        partial.replace(directory)
    return directory


def open_data(dataset: str, directory: str) -> DataSource:
    """Find and check the training data. Raises UserError naming the file that is wrong."""
    try:
        source = inputs.find(dataset)
        if not source.needs_data:
            return DataSource(dataset, "", source.classes)
        if not directory:
            directory = str(make_samples())
        cifar_files.locate(directory, dataset)
    except inputs.UnknownInput as error:
        raise UserError(f"--dataset: {error}") from None
    except cifar_files.DataError as error:
        raise UserError(f"--data-dir: {error}") from None
    return DataSource(dataset, str(Path(directory).resolve()), source.classes)


def make_launcher(campaign: Campaign, stack: Stack, scratch: Path, slots: Slots | None) -> Launcher:
    """The launcher that the options name; slots: the other ranks under an outer mpirun."""
    if campaign.options.launcher == "mpirun":
        return MpirunLauncher(str(stack.mpirun))
    own = LocalAgent(scratch / "agent")
    agents: list[Agent] = [own] * len(campaign.slots)
    if slots is not None:
        agents = [own, *(slots.agent(rank) for rank in range(1, slots.size))]
    else:
        agents = [LocalAgent(scratch / f"agent-{i}") for i in range(len(campaign.slots))]
    return AgentsLauncher(agents)


def make_starter(
    campaign: Campaign, stack: Stack, interpreter: str, slots: Slots | None
) -> Starter:
    """Everything that is needed to start arms: a listening socket and a scratch directory."""
    scratch = Path(tempfile.mkdtemp(prefix="hvdperf-"))
    one_host = len({slot.host for slot in campaign.slots}) == 1
    hub = (
        Hub() if one_host else Hub("0.0.0.0", advertised=socket.gethostbyname(socket.gethostname()))
    )
    sampling = campaign.profile.sampling
    return Starter(
        launcher=make_launcher(campaign, stack, scratch, slots),
        hub=hub,
        slots=campaign.slots,
        interpreter=interpreter,
        data=campaign.data,
        scratch=scratch,
        startup_deadline_s=sampling.startup_deadline_s,
        order_deadline_s=sampling.block_deadline_s,
        fault=campaign.fault,
    )


def dispose(starter: Starter) -> None:
    """Close the socket and remove the scratch directory."""
    starter.hub.close()
    shutil.rmtree(starter.scratch, ignore_errors=True)
