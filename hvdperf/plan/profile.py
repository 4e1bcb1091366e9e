"""Profiles, named amounts of work, read from ci/profiles/*.toml and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from hvdperf.errors import UserError
from hvdperf.json_records import Positive, plain
from hvdperf.models import inputs, own_networks
from hvdperf.models.registry import UnknownNetwork, network
from hvdperf.paths import SHIPPED, shown
from hvdperf.plan.arms import Schedule
from hvdperf.plan.comparisons import Question
from hvdperf.plan.questions import FAULT_CASES
from hvdperf.toml_file import Text, as_record, file_error, read_toml

PROFILES = SHIPPED / "ci" / "profiles"
# The fewest rounds of a full look. With five or fewer, no case could FAIL: the profile would never
# find a regression.
FEWEST_TO_FAIL = 8

Share = Annotated[float, Meta(ge=0, lt=1)]
Above0 = Annotated[float, Meta(gt=0)]
Names = Annotated[tuple[Text, ...], Meta(min_length=1)]
# More rounds or turns than a session of months could take are a mistake.
MOST_ROUNDS = 10_000
Look = Annotated[int, Meta(ge=FEWEST_TO_FAIL, le=MOST_ROUNDS)]
Looks = Annotated[tuple[Look, ...], Meta(min_length=1)]
Turns = Annotated[int, Meta(ge=1, le=MOST_ROUNDS)]
# The largest dimension of a tensor that every operation takes.
LARGEST = 2**31 - 1
Batch = Annotated[int, Meta(ge=1, le=LARGEST)]


def _check_ascending(key: str, values: Sequence[int]) -> None:
    if list(values) != sorted(values):
        raise ValueError(f"{key}: must be in ascending order, not {list(values)}")


@dataclass(frozen=True)
class Sampling:
    """The amount of evidence to take, and the longest waits for it.

    looks: numbers of rounds after which a case may PASS or FAIL, ascending; a round is one launch
    of every arm. early: whether a case may PASS before, after three rounds or more
    (hvdperf.interim). turns_min, turns_max: limits of the number of turns of a round, within which
    hvdperf.stats.turns_worth chooses; rounds whose comparisons gain nothing from turns may take
    fewer. min_block_seconds, min_block_steps: the shortest block, in seconds at the pace of the
    warm-up and in steps. startup_deadline_s, block_deadline_s: the longest wait for one order, in
    seconds; a block of a launch with a slow pace may take longer (hvdperf.work.base). precision:
    how far the interval of a case may reach to either side, as a share of its figure, when the case
    is over; 0 for cases that are over with their verdict.
    """

    looks: Looks = (8, 12, 24)
    early: bool = True
    turns_min: Turns = 4
    turns_max: Turns = 8
    min_block_seconds: Above0 = 0.3
    min_block_steps: Positive = 10
    startup_deadline_s: Above0 = 240.0
    block_deadline_s: Above0 = 60.0
    precision: Share = 0.0

    def __post_init__(self) -> None:
        _check_ascending("looks", self.looks)
        if self.turns_min > self.turns_max:
            raise ValueError(f"turns_min: must not be above turns_max = {self.turns_max}")
        if self.min_block_seconds >= self.block_deadline_s:
            deadline = self.block_deadline_s
            raise ValueError(f"min_block_seconds: must be below block_deadline_s = {deadline:g}")


@dataclass(frozen=True)
class Runs:
    """The lengths of runs that train to an end.

    epochs: passes over the training data. steps_max: limit of the updates in these epochs. seconds:
    length of a run of fixed wall time. endurance_steps: steps of a run whose memory is watched.
    wall_time_steps: steps of a run with a time breakdown. ablation_turns: how often each kind of
    step is timed after that run. deadline_s: the longest wait for one run with its validation, in
    seconds.
    """

    epochs: Positive = 20
    steps_max: Positive = 5000
    seconds: Above0 = 10.0
    endurance_steps: Positive = 1500
    # The fixed cost is computed from two lengths of such a run.
    wall_time_steps: Annotated[int, Meta(ge=2)] = 400
    ablation_turns: Positive = 6
    deadline_s: Above0 = 600.0


@dataclass(frozen=True)
class Profile:
    """A named amount of work: which workloads, at which sizes, for how long.

    batch: samples per replica and step. world_sizes: empty for powers of two up to the number of
    slots, plus that number. parity_from: the smallest world size at which parity is asked.
    oversubscribed: the networks whose comparisons within a launch, such as communication, are
    judged if replicas share cores; empty for all. questions: empty for all. representatives: for
    each question that is not asked of every network, the networks that it is asked of. fault_cases:
    for each fault case (hvdperf.plan.questions.FAULT_CASES), the networks that get it. sentinels:
    networks of which only the trace is measured. workloads: files of networks, relative to the
    profile's own file. scripts: training scripts with their arguments, relative to the same.
    budget_s: the session begins no round that would end after this many seconds. How long the first
    round of a workload and kind of work takes is not known, so it begins if any time is left.
    """

    name: str
    models: tuple[Text, ...]
    dataset: Text
    batch: Batch
    budget_s: Annotated[float, Meta(gt=0, le=366 * 86400)]
    sampling: Sampling = Sampling()
    runs: Runs = Runs()
    schedule: Schedule = Schedule.ALTERNATE
    world_sizes: tuple[Positive, ...] = ()
    parity_from: Positive = 1
    oversubscribed: Names = ()
    questions: Annotated[tuple[Question, ...], Meta(min_length=1)] = ()
    representatives: Mapping[Question, Names] = field(default_factory=dict)
    fault_cases: Mapping[str, Names] = field(default_factory=dict)
    workloads: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    sentinels: Names = ()

    def __post_init__(self) -> None:
        _check_ascending("world_sizes", self.world_sizes)
        for name in self.fault_cases:
            if name not in FAULT_CASES:
                known = ", ".join(FAULT_CASES)
                raise ValueError(f"fault_cases.{name}: unknown fault case; known are {known}")

    @property
    def duration(self) -> str:
        """The time for rounds, in words."""
        return f"{self.budget_s / 60:.3g} min"

    def settings(self) -> dict[str, Any]:
        """Return, as plain data, all that sessions must have alike: not how long they last."""
        found = {name: value for name, value in plain(self).items() if name != "budget_s"}
        found["sampling"] = {k: v for k, v in found["sampling"].items() if k != "precision"}
        return found


def default_world_sizes(slots: int) -> tuple[int, ...]:
    """Return powers of two below the number of slots, and that number: 6 -> (1, 2, 4, 6)."""
    return (*(1 << power for power in range((slots - 1).bit_length())), slots)


def load_profile(name_or_path: str | Path, directory: Path = PROFILES) -> Profile:
    """Return the profile of a name (the file NAME.toml in the directory) or of a .toml file.

    Raises UserError for an unknown name and for anything malformed in the file.
    """
    path = _file_of(name_or_path, directory)
    profile = as_record(path, read_toml(path), Profile, name=path.stem)
    try:
        for file in profile.workloads:
            own_networks.load_file(path.parent / file)
        beside = str(path.parent)
        scripts = [own_networks.load_script(text, beside).name for text in profile.scripts]
    except own_networks.BadWorkloads as error:
        raise file_error(path, str(error)) from None
    profile = replace(profile, models=tuple(dict.fromkeys((*profile.models, *scripts))))
    if not profile.models:
        raise file_error(path, "models: name a network, or give scripts")
    _check_networks(path, profile)
    try:
        inputs.find(profile.dataset)
    except inputs.UnknownInput as error:
        raise file_error(path, f"dataset: {error}") from None
    return profile


def _file_of(name_or_path: str | Path, directory: Path) -> Path:
    path = Path(name_or_path)
    if path.suffix == ".toml":
        return path
    known = sorted(file.stem for file in directory.glob("*.toml"))
    if str(name_or_path) not in known:
        raise UserError(
            f"unknown profile {str(name_or_path)!r}: known are {', '.join(known) or 'none'} "
            f"({shown(directory)}); or give the path of a .toml file"
        )
    return directory / f"{name_or_path}.toml"


def _check_networks(path: Path, profile: Profile) -> None:
    lists = {key: getattr(profile, key) for key in ("models", "oversubscribed", "sentinels")}
    lists |= {f"representatives.{q.value}": names for q, names in profile.representatives.items()}
    lists |= {f"fault_cases.{name}": names for name, names in profile.fault_cases.items()}
    for key, names in lists.items():
        for name in names:
            try:
                network(name)
            except UnknownNetwork as error:
                raise file_error(path, f"{key}: {error}") from None
