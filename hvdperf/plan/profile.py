"""Profiles: named amounts of work, read from ci/profiles/*.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from hvdperf.errors import UserError
from hvdperf.paths import ROOT
from hvdperf.plan.arms import Schedule
from hvdperf.plan.faults import TRIALS
from hvdperf.plan.question import Question
from hvdperf.toml_file import Table, read_toml, shown


@dataclass(frozen=True)
class Sampling:
    """The amount of evidence to take, and the longest waits for it.

    looks: numbers of rounds after which a case may PASS or FAIL, ascending; a round is one launch
    of every arm. early: whether a case may PASS before, after three rounds or more
    (hvdperf.interim). turns_min, turns_max: limits of the number of turns of a round, within which
    hvdperf.scatter.turns_worth chooses; rounds in which turns help no comparison may take fewer.
    min_block_seconds, min_block_steps: the shortest block, in seconds at the pace of the warm-up
    and in steps. startup_deadline_s, block_deadline_s: the longest wait for one order, in seconds;
    a block of a launch that is known to be slow gets longer (hvdperf.measure.round_runner).
    """

    looks: tuple[int, ...] = (8, 12, 24)
    early: bool = True
    turns_min: int = 4
    turns_max: int = 8
    min_block_seconds: float = 0.3
    min_block_steps: int = 10
    startup_deadline_s: float = 240.0
    block_deadline_s: float = 60.0


@dataclass(frozen=True)
class Runs:
    """The lengths of runs that train to an end.

    epochs: passes over the training data. steps_max: the most updates that these epochs take,
    whatever the size of the data. seconds: length of a run of fixed wall time. endurance_steps:
    steps of a run whose memory is watched. ledger_steps: steps of a run with a time breakdown.
    ablation_turns: how often each kind of step is timed after that run. deadline_s: the longest
    wait for one run with its validation, in seconds.
    """

    epochs: int = 20
    steps_max: int = 5000
    seconds: float = 10.0
    endurance_steps: int = 1500
    ledger_steps: int = 400
    ablation_turns: int = 6
    deadline_s: float = 600.0


@dataclass(frozen=True)
class Profile:
    """A named amount of work: which workloads, at which sizes, for how long.

    batch: samples per replica and step. world_sizes: empty for powers of two up to the number of
    slots, plus that number. parity_from: the smallest world size at which parity is asked.
    oversubscribed: the networks whose communication is judged if replicas share cores; empty for
    all. questions: empty for all. representatives: for each question that is not asked of every
    network, the networks that it is asked of. trials: for each fault case
    (hvdperf.plan.faults.TRIALS), the networks that get it. sentinels: networks of which only
    the trace is measured. budget_s: the session begins no round that would end after this many
    seconds, except the first round of each workload and kind of work.
    """

    name: str
    models: tuple[str, ...]
    dataset: str
    batch: int
    budget_s: float
    sampling: Sampling = Sampling()
    runs: Runs = Runs()
    schedule: Schedule = Schedule.ALTERNATE
    world_sizes: tuple[int, ...] = ()
    parity_from: int = 1
    oversubscribed: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()
    representatives: Mapping[Question, tuple[str, ...]] = field(default_factory=dict)
    trials: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sentinels: tuple[str, ...] = ()


def default_world_sizes(slots: int) -> tuple[int, ...]:
    """Return powers of two below the number of slots, and that number: 6 -> (1, 2, 4, 6)."""
    sizes = []
    size = 1
    while size < slots:
        sizes.append(size)
        size *= 2
    return (*sizes, slots)


PROFILES = ROOT / "ci" / "profiles"
# With fewer rounds no case could FAIL, so a profile would look careful and never find a regression.
FEWEST_TO_FAIL = 8

_KEYS = (
    "models",
    "dataset",
    "batch",
    "budget_s",
    "schedule",
    "world_sizes",
    "parity_from",
    "oversubscribed",
    "questions",
    "sentinels",
    "representatives",
    "trials",
    "sampling",
    "runs",
)


def load_profile(name_or_path: str | Path, directory: Path = PROFILES) -> Profile:
    """Return the profile of a name (the file NAME.toml in the directory) or of a .toml file.

    Raises UserError for an unknown name and for anything malformed in the file.
    """
    path = _file_of(name_or_path, directory)
    table = read_toml(path)
    table.only(_KEYS)
    return Profile(
        name=path.stem,
        models=_models(table, "models"),
        dataset=table.string("dataset"),
        batch=table.integer("batch"),
        budget_s=table.positive("budget_s"),
        sampling=_sampling(table.table("sampling")),
        schedule=table.choice("schedule", Schedule) if "schedule" in table else Profile.schedule,
        world_sizes=table.integers("world_sizes") if "world_sizes" in table else (),
        parity_from=table.integer("parity_from") if "parity_from" in table else 1,
        oversubscribed=_models(table, "oversubscribed") if "oversubscribed" in table else (),
        questions=_questions(table) if "questions" in table else (),
        sentinels=_models(table, "sentinels") if "sentinels" in table else (),
        representatives=_representatives(table.table("representatives")),
        trials=_trials(table.table("trials")),
        runs=_runs(table.table("runs")),
    )


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


def _models(table: Table, key: str) -> tuple[str, ...]:
    # Imported here, because plan, statistics and thresholds must load without the models.
    from models.registry import UnknownNetwork, network

    names = table.strings(key)
    for name in names:
        try:
            network(name)
        except UnknownNetwork as error:
            raise table.error(str(error), key) from None
    return names


def _questions(table: Table) -> tuple[Question, ...]:
    return tuple(_question(table, "questions", name) for name in table.strings("questions"))


def _representatives(table: Table) -> dict[Question, tuple[str, ...]]:
    return {_question(table, name, name): _models(table, name) for name in table.names}


def _trials(table: Table) -> dict[str, tuple[str, ...]]:
    table.only(list(TRIALS))
    return {name: _models(table, name) for name in table.names}


def _question(table: Table, key: str, name: str) -> Question:
    known = {question.value: question for question in Question}
    if name not in known:
        raise table.error(f"unknown question {name!r}; known are {', '.join(known)}", key)
    return known[name]


def _sampling(table: Table) -> Sampling:
    """Return the default sampling with the settings of the table."""
    sampling = Sampling(**_settings(table, Sampling))
    if sampling.turns_min > sampling.turns_max:
        raise table.error(f"must not be above turns_max = {sampling.turns_max}", "turns_min")
    return sampling


def _runs(table: Table) -> Runs:
    runs = Runs(**_settings(table, Runs))
    if runs.ledger_steps < 2:
        raise table.error(
            "must be 2 at least: a run is told apart into two lengths", "ledger_steps"
        )
    return runs


def _settings(table: Table, kind: type[Sampling | Runs]) -> dict[str, Any]:
    """Return the settings in the table, by the field of `kind`. Raises UserError for other keys."""
    types = {field.name: field.type for field in fields(kind)}
    table.only(list(types))
    return {name: _setting(table, name, types[name]) for name in table.names}


def _setting(table: Table, name: str, kind: object) -> Any:
    """Return one setting: looks, a boolean, seconds or a whole number. kind: the annotation of the
    field, as a string."""
    if name == "looks":
        looks = table.integers(name)
        if not looks:
            raise table.error("must name one number of rounds at least", name)
        if min(looks) < FEWEST_TO_FAIL:
            raise table.error(
                f"a FAIL takes {FEWEST_TO_FAIL} rounds, so that none may be below; give such as "
                f"[{FEWEST_TO_FAIL}, 12]",
                name,
            )
        return looks
    if kind == "bool":
        return table.boolean(name)
    return table.positive(name) if kind == "float" else table.integer(name)
