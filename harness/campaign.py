"""What a pytest session is about to measure: options and machine in, slots and comparisons out.

Everything that can be wrong with the input is found here, before anything is launched.
"""

from __future__ import annotations

import math
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.dataset_id import dataset_id
from harness.errors import UserError
from harness.launch.agent import Agent, LocalAgent
from harness.launch.agents import AgentsLauncher
from harness.launch.hub import Hub
from harness.launch.job import Launcher
from harness.launch.mpirun import MpirunLauncher
from harness.launch.slots import Slots
from harness.machine import Machine
from harness.other_data import can_swap
from harness.placement import Offer, Slot, is_oversubscribed, nodes, place
from harness.plan import (
    SWEEP,
    Arm,
    Comparison,
    Profile,
    Question,
    Schedule,
    Strategy,
    Work,
    Workload,
    default_world_sizes,
)
from harness.planted import Fault
from harness.profiles import load_profile
from harness.questions import against
from harness.stack import Stack
from harness.starter import DataSource, Installed, Starter
from harness.thresholds import Thresholds, load_thresholds, select
from harness.tool_runner import DEADLINE_S, DEADLINE_SHARE, ToolRunner
from harness.wire import STARTUP, Phase
from models import inputs, registry
from models.inputs import sample_sets
from models.inputs.errors import DataError

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "data" / "samples"
# Of the data sets that are made of words, the one that language models train on.
WORDS = "ptb"
LAUNCHERS = ("mpirun", "agents")
# Where a rank can be struck by a fault (harness.planted), and what can take longer.
STRIKING = tuple(
    phase.value for phase in Phase if phase not in (Phase.LAUNCH, Phase.READY, Phase.END)
)
PROLONGED = tuple(phase.value for phase in STARTUP if phase not in (Phase.LAUNCH, Phase.IMPORT))


Ask = Callable[[Workload, int], Comparison | Sequence[Comparison]]


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
    precision: str = "float32"
    launcher: str = "mpirun"
    schedule: str = ""
    budget_minutes: float | None = None
    thresholds: str = ""
    results: str = "results"
    plant: str = ""
    stack: str = ""
    against: str = ""


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


def parse_world_sizes(text: str, option: str = "--world-sizes") -> tuple[int, ...]:
    """From `1,3,7`. Raises UserError that names the option."""
    try:
        sizes = sorted({int(part) for part in text.split(",") if part.strip()})
    except ValueError:
        sizes = []
    if not sizes or sizes[0] < 1:
        raise UserError(f"{option} {text}: give positive whole numbers, such as 1,2,4")
    return tuple(sizes)


def parse_fault(text: str, models: Sequence[str], sizes: Sequence[int]) -> Fault | None:
    """Raises UserError also for a fault that could never strike. models, sizes: of the session."""
    if not text:
        return None
    try:
        fault = Fault.parse(text)
        Phase(fault.phase)
    except ValueError as error:
        raise UserError(f"--plant {text}: {error}") from None
    phases = PROLONGED if fault.kind == "longer" else STRIKING
    ranks = fault.world_size or max(sizes)
    never = (
        (fault.phase not in phases, f"it strikes in {', '.join(phases)}"),
        (fault.model not in ("", *models), f"the networks of this session are {', '.join(models)}"),
        (fault.world_size not in (0, *sizes), f"its world sizes are {', '.join(map(str, sizes))}"),
        (not 0 <= fault.rank < ranks, f"the ranks of this session are 0 to {ranks - 1}"),
    )
    for wrong, why in never:
        if wrong:
            raise UserError(f"--plant {text}: {why}")
    return fault


@dataclass(frozen=True)
class Campaign:
    """What to measure, on what. Nothing has been started yet."""

    options: Options
    profile: Profile
    machine: Machine
    slots: tuple[Slot, ...]
    workloads: tuple[Workload, ...]
    sentinels: tuple[Workload, ...]
    world_sizes: tuple[int, ...]
    data: Mapping[str, DataSource]
    thresholds: Thresholds
    fault: Fault | None

    def comparisons(
        self,
        ask: Ask,
        smallest: int,
        largest: float = math.inf,
        anyway: bool = False,
        against_from: int | None = None,
    ) -> list[Comparison]:
        """What is asked of every workload at every world size at which it makes sense. anyway: also
        what the profile does not ask, or not of every network. against_from: the smallest size at
        which two stacks are compared by it, where that is another one."""
        asked: list[Comparison] = []
        if self.options.against and against_from is not None:
            smallest = against_from
        for workload in (*self.workloads, *self.sentinels):
            for size in self.world_sizes:
                if smallest <= size <= largest:
                    answer = ask(workload, size)
                    asked += [answer] if isinstance(answer, Comparison) else answer
        if self.options.against:
            asked = [other for other in map(against, asked) if other is not None]
        return [
            comparison
            # Each once: a sweep is the same whichever the workload.
            for comparison in dict.fromkeys(asked)
            if (self._wanted(comparison) or (anyway and self._can_be_shown(comparison)))
            and self._possible(comparison)
        ]

    def _wanted(self, comparison: Comparison) -> bool:
        """Whether the profile asks it, and of that network."""
        question, model = comparison.question, comparison.workload.model
        if comparison.is_trial:
            return model in self.profile.trials.get(comparison.variant, ())
        if self.profile.questions and question not in self.profile.questions:
            return False
        if comparison.workload == SWEEP:
            return True
        return model in self.profile.representatives.get(question, (model,))

    def _can_be_shown(self, comparison: Comparison) -> bool:
        """Whether it says something of that network that the profile does not ask. What is planted,
        and two groups of one arm, say as much of one as of all; a profile may name which."""
        if comparison.is_trial and self.profile.trials:
            return False
        alike = comparison.is_trial or comparison.question is Question.SAME
        return not alike or comparison.workload == self.workloads[0]

    def _possible(self, comparison: Comparison) -> bool:
        size = comparison.world_size
        question, model = comparison.question, comparison.workload.model
        if question.work is Work.COLLECTIVES and not self._has_bare_transport():
            return False
        if comparison.workload == SWEEP:
            return True
        wants_other_data = comparison.candidate.arm.planted == "data"
        if wants_other_data and not self._has_other_data(comparison.workload.dataset):
            return False
        if model in [sentinel.model for sentinel in self.sentinels]:
            return question is Question.STARTUP_TRACE
        if not all(self._can_run(arm) for arm in comparison.arms):
            return False
        if question is Question.PARITY:
            return size >= self.profile.parity_from
        if question is Question.STRONG_SCALING:
            return size <= comparison.workload.batch
        if question is Question.SAME or comparison.is_trial:
            # Where replicas share cores nothing is judged by its speed.
            return size not in self.oversubscribed_sizes()
        if question is Question.BOUND:
            # Of words, the rows of a table are exchanged that were looked up, and not all of it.
            return registry.network(model).task is not registry.Task.LANGUAGE
        if question.work in (Work.EPOCHS, Work.TIME):
            return self._can_validate(comparison.workload)
        return True

    def _has_other_data(self, dataset: str) -> bool:
        """Whether a rank can be given other data: made beside the session, of files that can take
        each other's place."""
        one_host = nodes(self.slots, len(self.slots)) == 1
        return one_host and can_swap(self.data[dataset].directory)

    def _has_bare_transport(self) -> bool:
        """Whether Horovod runs over one that can be used without it, by mpi4py."""
        return self.options.launcher == "mpirun"

    def _can_run(self, arm: Arm) -> bool:
        """Whether Horovod, the strategy and the network have that way of training."""
        if arm.strategy is Strategy.MIRRORED:
            # One process, so it has one host, and takes no GPU twice.
            shares_gpu = bool(self.machine.gpus) and is_oversubscribed(self.slots, arm.world_size)
            return nodes(self.slots, arm.world_size) == 1 and not shares_gpu
        if arm.exchange == "adasum":
            # It halves the group again and again, which Horovod does over MPI only.
            power_of_two = arm.world_size & (arm.world_size - 1) == 0
            return power_of_two and self.options.launcher == "mpirun"
        if arm.exchange == "dense":
            # The gradient of an embedding is the rows that were looked up.
            return registry.network(arm.workload.model).task is registry.Task.LANGUAGE
        if arm.workload.precision == "mixed_float16":
            # Without a GPU it takes 30 to 60 times as long as float32: only if the user wants it.
            return bool(self.machine.gpus) or self.options.precision == "mixed_float16"
        return True

    def _can_validate(self, workload: Workload) -> bool:
        """Whether there are samples to validate on, and a way to tell how good a model is."""
        adversarial = registry.network(workload.model).task is registry.Task.ADVERSARIAL
        return inputs.INPUTS[workload.dataset].needs_data and not adversarial

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
            f"{', '.join(self.data)}, batch {self.profile.batch} per replica",
            f"world sizes {', '.join(sizes)} on {len(self.slots)} slots; launcher "
            f"{self.options.launcher}, schedule {self.profile.schedule.value}",
            f"looks after {'/'.join(map(str, sampling.looks))} rounds of "
            f"{sampling.turns_min} to {sampling.turns_max} turns; budget "
            f"{self.profile.budget_s / 60:.3g} min",
            f"thresholds: {self.thresholds.path.name}: {self.thresholds.label}",
        ]


def plan_campaign(options: Options, machine: Machine, offers: Sequence[Offer]) -> Campaign:
    """Check everything and settle what will be measured. Raises UserError, one line."""
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
    workloads, sentinels = (
        tuple(_workload(name, profile, options) for name in names)
        for names in (profile.models, profile.sentinels)
    )
    return Campaign(
        options=options,
        profile=profile,
        machine=machine,
        slots=slots,
        workloads=workloads,
        sentinels=sentinels,
        world_sizes=sizes,
        data=open_data_sets(
            (*workloads, *sentinels), parse_data_dir(options.data_dir, profile.dataset)
        ),
        thresholds=(
            load_thresholds(Path(options.thresholds))
            if options.thresholds
            else select(machine, ROOT / "ci" / "thresholds")
        ),
        fault=parse_fault(options.plant, [w.model for w in workloads], sizes),
    )


def _workload(name: str, profile: Profile, options: Options) -> Workload:
    network = known_model(name)
    input_size = network.input_size
    if options.image_size is not None and network.task is registry.Task.CLASSIFICATION:
        input_size = options.image_size
    return Workload(
        model=name,
        dataset=dataset_of(network, profile.dataset),
        input_size=input_size,
        batch=profile.batch,
        precision=options.precision,
    )


def dataset_of(network: registry.Network, wanted: str) -> str:
    """The data set that the network trains on where `wanted` is asked for: that one, unless a
    language model would have to read images. Raises UserError for images made of words."""
    if network.task.form in known_input(wanted).forms:
        return wanted
    if network.task.form is registry.Form.WORDS:
        return WORDS
    raise UserError(f"--dataset {wanted}: holds words, and {network.name} trains on images")


def known_input(name: str) -> inputs.Input:
    try:
        return inputs.find(name)
    except inputs.UnknownInput as error:
        raise UserError(f"--dataset: {error}") from None


def open_data_sets(
    workloads: Sequence[Workload], directories: Mapping[str, str]
) -> dict[str, DataSource]:
    """The data sets of all workloads, found and checked. directories: where, by name."""
    names = dict.fromkeys(workload.dataset for workload in workloads)
    return {name: open_data(name, directories.get(name, "")) for name in names}


def parse_data_dir(text: str, dataset: str) -> dict[str, str]:
    """From `DIR`, the place of that data set, or from `imagenet=DIR,ptb=DIR`."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(equals and name in inputs.INPUTS for name, equals, _ in pairs):
        return {dataset: text} if text else {}
    return {name: directory for name, _, directory in pairs}


def open_data(dataset: str, directory: str) -> DataSource:
    """Find and check the training data, the suite's own sample where no directory is given.
    Raises UserError naming the file that is wrong."""
    source = known_input(dataset)
    if not source.needs_data:
        return DataSource(dataset, "", source.classes)
    try:
        path = Path(directory) if directory else sample(dataset)
        inputs.locate(dataset, path)
        identity = dataset_id(path)
    except (DataError, OSError) as error:
        raise UserError(f"--data-dir: {error}") from None
    return DataSource(dataset, str(path.resolve()), source.classes, identity)


def sample(dataset: str) -> Path:
    """Where the suite's own sample of a data set is; written on first use, and again where another
    version of the suite has written it."""
    directory = SAMPLES / dataset
    if not sample_sets.is_current(directory):
        # By a process of its own: a JPEG takes TensorFlow to write, which this one never imports.
        command = [sys.executable, "-m", "models.inputs.sample_sets", str(SAMPLES), dataset]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = done.stderr.strip().splitlines()[-1:] or ["no reason was given"]
            raise UserError(f"the sample of {dataset} could not be written: {last[0]}")
    return directory


def make_launcher(campaign: Campaign, stack: Stack, scratch: Path, slots: Slots | None) -> Launcher:
    """The launcher that the options name; slots: the other ranks under an outer mpirun."""
    if campaign.options.launcher == "mpirun":
        return MpirunLauncher(str(stack.mpirun))
    agents: list[Agent] = [LocalAgent(scratch / "agent-0")]
    for rank in range(1, len(campaign.slots)):
        agents.append(LocalAgent(scratch / f"agent-{rank}") if slots is None else slots.agent(rank))
    return AgentsLauncher(agents)


def make_starter(campaign: Campaign, stacks: Mapping[str, Stack], slots: Slots | None) -> Starter:
    """Everything that is needed to start arms: a listening socket and a scratch directory. stacks:
    by harness.plan.Arm.stack. Raises UserError if there is no place for temporary files."""
    try:
        scratch = Path(tempfile.mkdtemp(prefix="hvdperf-"))
    except OSError as error:
        raise UserError(f"no temporary files can be made: {error}; set TMPDIR") from None
    one_host = len({slot.host for slot in campaign.slots}) == 1
    hub = (
        Hub() if one_host else Hub("0.0.0.0", advertised=socket.gethostbyname(socket.gethostname()))
    )
    sampling = campaign.profile.sampling
    return Starter(
        stacks={
            name: Installed(stack.interpreter, make_launcher(campaign, stack, scratch, slots))
            for name, stack in stacks.items()
        },
        hub=hub,
        slots=campaign.slots,
        data=campaign.data,
        scratch=scratch,
        startup_deadline_s=sampling.startup_deadline_s,
        order_deadline_s=sampling.block_deadline_s,
        fault=campaign.fault,
    )


def make_tool_runner(
    starter: Starter, budget_s: float, progress: Callable[[str], None]
) -> ToolRunner | None:
    """What runs other tools on the session's slots; None where there is no mpirun to do so."""
    installed = starter.stacks[""]
    if not isinstance(installed.launcher, MpirunLauncher):
        return None
    return ToolRunner(
        installed.launcher,
        starter.slots,
        installed.interpreter,
        starter.scratch,
        progress,
        deadline_s=min(DEADLINE_S, DEADLINE_SHARE * budget_s),
    )


def dispose(starter: Starter) -> None:
    """Close the socket and remove the scratch directory."""
    starter.hub.close()
    shutil.rmtree(starter.scratch, ignore_errors=True)
