"""The plan of a pytest session: options and machine in, slots and comparisons out.

All errors of the input are found here, before anything is launched.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hvdperf.errors import UserError, refusing
from hvdperf.interim import EARLY_LOOKS
from hvdperf.machine.host import Machine
from hvdperf.machine.placement import Offer, Slot, is_oversubscribed, nodes, place
from hvdperf.models import inputs, registry
from hvdperf.models.inputs import DataError
from hvdperf.models.registry import SCRIPT
from hvdperf.plan import data as training_data
from hvdperf.plan.arms import SWEEP, THREADS, Arm, BlockKind, Workload
from hvdperf.plan.comparisons import Comparison, Facts, JudgedAs
from hvdperf.plan.data import DataSource
from hvdperf.plan.options import LAUNCHERS, Options, known_model, resolve_profile
from hvdperf.plan.profile import Profile, default_world_sizes
from hvdperf.plan.questions import Fault, against
from hvdperf.plan.settings import refuse
from hvdperf.plan.thresholds import Thresholds, case_of, load_thresholds, select
from hvdperf.worker.protocol import STARTUP, Phase

# Phases in which a rank can raise, exit, be killed or hang (Fault), and phases that
# can be prolonged.
STRIKING = tuple(
    phase.value for phase in Phase if phase not in (Phase.LAUNCH, Phase.READY, Phase.END)
)
PROLONGED = tuple(phase.value for phase in STARTUP if phase not in (Phase.LAUNCH, Phase.IMPORT))
# What can be injected into a script, and in which phases.
FAULTS_OF_SCRIPTS = (
    *("slow", "busy", "leak", "nofuse", "cycle"),
    *("raise", "exit", "kill", "hang"),
)
PHASES_OF_SCRIPTS = tuple(
    phase.value for phase in (Phase.IMPORT, Phase.INIT, Phase.BUILD, Phase.BLOCK, Phase.RUN)
)
# Of float32, and of the number of a word.
BYTES_OF_A_VALUE = 4

Ask = Callable[[Workload, int], Comparison | Sequence[Comparison]]


@dataclass(frozen=True)
class SessionPlan:
    """The plan of a session: what to measure, and on what. Nothing has been started yet.

    extents: sizes of the data sets, by name and input size.
    """

    options: Options
    profile: Profile
    machine: Machine
    slots: tuple[Slot, ...]
    workloads: tuple[Workload, ...]
    sentinels: tuple[Workload, ...]
    world_sizes: tuple[int, ...]
    data: Mapping[str, DataSource]
    extents: Mapping[tuple[str, int], inputs.Extent]
    thresholds: Thresholds
    fault: Fault | None = None

    def comparisons(
        self,
        ask: Ask,
        smallest: int,
        largest: float = math.inf,
        anyway: bool = False,
        against_from: int | None = None,
    ) -> list[Comparison]:
        """Return the comparisons of every workload at every world size at which they make sense.

        ask: makes the comparisons of one workload at one world size. smallest, largest: limits of
        the world size. anyway: include comparisons that the profile does not ask, or asks only of
        other networks. against_from: the smallest world size at which two stacks are compared, if
        that is not `smallest`.
        """
        asked: list[Comparison] = []
        if self.options.against and against_from is not None:
            smallest = against_from
        for workload in (*self.workloads, *self.sentinels):
            for size in self.world_sizes:
                if smallest <= size <= largest:
                    answer = ask(workload, size)
                    answers = [answer] if isinstance(answer, Comparison) else answer
                    of_scripts = [each for each in answers if each.question.spec.of_scripts]
                    asked += of_scripts if workload.is_script else answers
        if self.options.against:
            asked = [other for other in map(against, asked) if other is not None]
        return [
            comparison
            # Each comparison once, because a sweep does not depend on the workload.
            for comparison in dict.fromkeys(asked)
            if (self._wanted(comparison) or (anyway and self._can_be_shown(comparison)))
            and self._possible(comparison)
        ]

    def _wanted(self, comparison: Comparison) -> bool:
        """Return whether the profile asks the question, and asks it of that network. Speeds by
        themselves are asked by the file of thresholds."""
        question, model = comparison.question, comparison.workload.model
        if question.spec.asked_by_line:
            # Precise figures are asked for to be published.
            where = nodes(self.slots, comparison.world_size)
            known = self.thresholds.rule(case_of(comparison, where)) is not None
            return known or self.profile.sampling.precision > 0
        if comparison.is_fault_case:
            return model in self.profile.fault_cases.get(comparison.variant, ())
        if self.profile.questions and question not in self.profile.questions:
            return False
        if comparison.workload == SWEEP:
            return True
        return model in self.profile.representatives.get(question, (model,))

    def _can_be_shown(self, comparison: Comparison) -> bool:
        """Return whether the comparison is worth showing although the profile does not ask it.

        Of fault cases and A/A pairs, only those of the first workload are shown, because one
        network stands for all. If the profile names networks for fault cases, no other fault case
        is shown.
        """
        if comparison.is_fault_case and self.profile.fault_cases:
            return False
        alike = comparison.judged_as in (JudgedAs.DETECTION, JudgedAs.AA_PAIR)
        is_script = comparison.workload.is_script
        first = next(each for each in self.workloads if each.is_script == is_script)
        return not alike or comparison.workload == first

    def _possible(self, comparison: Comparison) -> bool:
        spec, workload, size = comparison.question.spec, comparison.workload, comparison.world_size
        facts = self._facts(workload, size)
        if not all(need.is_met(comparison, facts) for need in spec.needs):
            return False
        if workload == SWEEP:
            return True
        if workload.model in [sentinel.model for sentinel in self.sentinels]:
            return spec.of_sentinels
        if comparison.is_fault_case and workload.is_script:
            return False
        compares_groups = comparison.judged_as in (JudgedAs.DETECTION, JudgedAs.AA_PAIR)
        if compares_groups and size in self.oversubscribed_sizes():
            # If replicas share cores, no speed is judged.
            return False
        if any(side.kind is BlockKind.SPLIT for side in comparison.sides) and size > workload.batch:
            return False
        return all(map(self._can_run, comparison.arms))

    def has_other_data(self, dataset: str) -> bool:
        """Return whether a rank can be given other data.

        It consists of the session's own files with swapped names, so all ranks must be on one host.
        """
        one_host = nodes(self.slots, len(self.slots)) == 1
        return one_host and training_data.can_swap(self.data[dataset])

    def _can_run(self, arm: Arm) -> bool:
        """Return whether Horovod, the strategy, the network and the data support that way of
        training."""
        on_gpus = bool(self.machine.gpus)
        if arm.injected == "data" and not self.has_other_data(arm.workload.dataset):
            return False
        if arm.strategy.spec.one_process:
            # One process has one host, and takes no GPU twice.
            shares_gpu = on_gpus and is_oversubscribed(self.slots, arm.world_size)
            return nodes(self.slots, arm.world_size) == 1 and not shares_gpu
        if arm.exchange == "adasum":
            # Adasum halves the group repeatedly, and Horovod implements it over MPI only.
            return arm.world_size & (arm.world_size - 1) == 0 and self._is_over_mpi
        if arm.exchange == "dense":
            # A network of the user's own is asked for its gradients when it is tried.
            known = registry.network(arm.workload.model)
            return known.looks_up_rows or bool(known.origin)
        if arm.launched == THREADS:
            # On GPUs TensorFlow chooses its threads anyway.
            return not on_gpus
        if arm.workload.precision == "mixed_float16":
            # Without a GPU float16 takes 30 to 60 times as long as float32: only on request.
            return on_gpus or self.options.policy == "mixed_float16"
        return True

    def _facts(self, workload: Workload, world_size: int) -> Facts:
        return Facts(
            self._is_over_mpi,
            bool(self.options.against),
            self.profile.parity_from,
            0 if workload == SWEEP else self._held_out(workload),
        )

    @property
    def _is_over_mpi(self) -> bool:
        return LAUNCHERS[self.options.launcher].over_mpi

    def _held_out(self, workload: Workload) -> int:
        """Return on how many samples the network can be validated."""
        network = registry.network(workload.model)
        if network.loss or network.task is registry.Task.ADVERSARIAL:
            return 0
        return self.extents[workload.dataset, workload.input_size].validation

    def oversubscribed_sizes(self) -> list[int]:
        return [size for size in self.world_sizes if is_oversubscribed(self.slots, size)]

    def slots_of_hosts(self) -> list[str]:
        """Return the number of slots of every host, in words."""
        per_host = Counter(slot.host for slot in self.slots)
        return [f"{host} ({count} slot{'s' * (count > 1)})" for host, count in per_host.items()]

    @property
    def work(self) -> str:
        """The profile with its networks and data, in words."""
        networks = ", ".join(self.profile.models)
        data = ", ".join(name for name in self.data if name != SCRIPT)
        told = f"{self.profile.name}: {networks}"
        if all(each.is_script for each in self.workloads):
            return told
        return f"{told}; {data}, batch {self.profile.batch} per replica"

    def describe(self) -> list[str]:
        """Return lines that describe the plan: workloads, slots, looks, time and thresholds."""
        sizes = [
            f"{size} (oversubscribed)" if size in self.oversubscribed_sizes() else str(size)
            for size in self.world_sizes
        ]
        sampling, schedule = self.profile.sampling, self.profile.schedule
        first = EARLY_LOOKS[0] if sampling.early else sampling.looks[0]
        ends = (
            f"PASS after {first} or more rounds, FAIL after {' or '.join(map(str, sampling.looks))}"
        )
        if sampling.precision:
            ends = (
                f"{sampling.looks[0]} rounds or more, until every interval reaches at most "
                f"{100 * sampling.precision:g} % to either side"
            )
        return [
            f"profile {self.work}",
            f"world sizes {', '.join(sizes)} on {len(self.slots)} slots; launcher "
            f"{self.options.launcher}, schedule {schedule.value}",
            f"{ends}; {sampling.turns_min} to {sampling.turns_max} turns a round; "
            f"{self.profile.duration} for rounds",
            f"thresholds: {self.thresholds.path.name}: {self.thresholds.label}",
        ]


def plan_session(options: Options, machine: Machine, offers: Sequence[Offer]) -> SessionPlan:
    """Check all input and return the plan. Raises UserError, with one line."""
    refuse(options.allow_setting)
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
    every = (*workloads, *sentinels)
    if options.image_size is not None and not any(_takes_images(each.model) for each in every):
        raise UserError(
            f"--image-size {options.image_size}: none of {', '.join(profile.models)} takes images "
            "of another size; leave it out"
        )
    _check_memory(every, machine, sum(slot.host == machine.host for slot in slots[: max(sizes)]))
    directories = training_data.parse_data_dir(options.data_dir, profile.dataset)
    names = dict.fromkeys(each.dataset for each in every)
    training_data.check_all_read(directories, names)
    data = {name: training_data.open_data(name, directories.get(name, "")) for name in names}
    planned = SessionPlan(
        options=options,
        profile=profile,
        machine=machine,
        slots=slots,
        workloads=workloads,
        sentinels=sentinels,
        world_sizes=sizes,
        data=data,
        extents=_extents(every, data, max(sizes)),
        thresholds=(
            load_thresholds(Path(options.thresholds), machine)
            if options.thresholds
            else select(machine)
        ),
    )
    return replace(planned, fault=_fault(planned))


def _fault(plan: SessionPlan) -> Fault | None:
    """Return the fault that is injected. Raises UserError also for one that could never strike."""
    text = plan.options.fault
    if not text:
        return None
    with refusing(f"--inject {text}: ", ValueError):
        fault = Fault.parse(text)
    models, sizes = [each.model for each in plan.workloads], plan.world_sizes
    struck = [each for each in plan.workloads if fault.model in ("", each.model)]
    is_of_script = any(each.is_script for each in struck)
    alone = dict.fromkeys(e.dataset for e in struck if not plan.has_other_data(e.dataset))
    phases = PROLONGED if fault.kind == "longer" else STRIKING
    ranks = fault.world_size or max(sizes)
    never = {
        f"a script can have {', '.join(FAULTS_OF_SCRIPTS)}": (
            is_of_script and fault.kind not in FAULTS_OF_SCRIPTS
        ),
        f"of a script the phase can be {', '.join(PHASES_OF_SCRIPTS)}": (
            is_of_script and fault.phase not in PHASES_OF_SCRIPTS
        ),
        f"the phase must be one of {', '.join(phases)}": fault.phase not in phases,
        f"this session measures only the networks {', '.join(models)}": not struck,
        f"this session measures only the world sizes {', '.join(map(str, sizes))}": (
            fault.world_size not in (0, *sizes)
        ),
        f"this session has only the ranks 0 to {ranks - 1}": not 0 <= fault.rank < ranks,
        "this fault changes nothing; give a larger value": fault.changes_nothing,
        "one replica exchanges nothing, so this fault needs two or more": (
            fault.is_of_exchange and ranks == 1
        ),
        f"this fault swaps two files of equal size on one host, and {', '.join(alone)} has none "
        "here; use --dataset cifar10 on one host": fault.kind == "data" and bool(alone),
    }
    for why, is_so in never.items():
        if is_so:
            raise UserError(f"--inject {text}: {why}")
    return fault


def _workload(name: str, profile: Profile, options: Options) -> Workload:
    network = known_model(name)
    input_size = network.input_size
    if options.image_size is not None and _takes_images(name):
        input_size = options.image_size
        if input_size < network.smallest:
            raise UserError(
                f"--image-size {input_size}: {name} takes images of {network.smallest} pixels a "
                "side, or more"
            )
    return Workload(
        model=name,
        dataset=training_data.dataset_of(network, profile.dataset),
        input_size=input_size,
        batch=1 if network.script else profile.batch,
        precision="float32" if network.script else options.policy,
    )


def _takes_images(name: str) -> bool:
    """Return whether --image-size changes the network's input."""
    network = registry.network(name)
    return network.task is registry.Task.CLASSIFICATION and not network.script


def _check_memory(workloads: Sequence[Workload], machine: Machine, ranks: int) -> None:
    """Raise UserError if the input of one step is larger than the memory of this host, so that no
    step could run. ranks: on this host."""
    for workload in workloads:
        # An image has three channels, and a word is one number.
        is_image = registry.network(workload.model).task.form is registry.Form.IMAGES
        values = 3 * workload.input_size**2 if is_image else workload.input_size
        gib = BYTES_OF_A_VALUE * values * workload.batch * ranks / 2**30
        if gib > machine.memory_mib / 1024 > 0:
            raise UserError(
                f"batch {workload.batch}: the input of one step of {workload.model} takes "
                f"{gib:.3g} GiB on {ranks} replicas, and {machine.host} has "
                f"{machine.memory_mib / 1024:.3g} GiB; give a smaller --batch-size"
                + (" or --image-size" if is_image else "")
            )


def _extents(
    workloads: Sequence[Workload], data: Mapping[str, DataSource], ranks: int
) -> dict[tuple[str, int], inputs.Extent]:
    """Return the sizes of the workloads' data sets. Raises UserError for a data set with fewer
    samples than ranks, since each rank reads a part of its own."""
    extents = {}
    with refusing("--data-dir: ", DataError):
        for workload in workloads:
            name, size = workload.dataset, workload.input_size
            extents[name, size] = inputs.extent(name, data[name].located, size)
    for (name, _), extent in extents.items():
        if extent.train is not None and extent.train < ranks:
            raise UserError(
                f"--data-dir: {data[name].directory}: {extent.train} training samples cannot be "
                f"shared by {ranks} ranks; use more data, or --world-sizes up to {extent.train}"
            )
    return extents
