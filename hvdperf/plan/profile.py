"""Named amounts of work, read from ci/profiles/*.toml."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from hvdperf.errors import UserError
from hvdperf.paths import ROOT
from hvdperf.plan.arms import Profile, Question, Runs, Sampling, Schedule
from hvdperf.plan.fault_cases import TRIALS
from hvdperf.toml_file import Table, read_toml, shown

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
