"""Writes parts of docs/reference/*.md from the code: `python -m docs.generate`, which `make docs`
and `make schemas` run. The pages say where; the rest of their text is written by hand. It also
writes results/schema/*.schema.json, the JSON schemas of all documents, from their records.

All are tracked, so that they can be read without building the site; tests/docs/test_generate.py and
test_schemas.py fail if one is out of date.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from docs.markdown import filled, table
from hvdperf import __main__ as command
from hvdperf import cli
from hvdperf.files import write_whole
from hvdperf.json_records import schema
from hvdperf.paths import ROOT
from hvdperf.plan import thresholds as limits
from hvdperf.plan.arms import Workload
from hvdperf.plan.comparisons import Comparison, Question
from hvdperf.plan.options import Options
from hvdperf.plan.profile import PROFILES, Profile, Runs, Sampling, load_profile
from hvdperf.plan.questions import FAULT_CASES, Fault
from hvdperf.plan.settings import ROWS, Row
from hvdperf.records.documents import CaseDocument, RoundsDocument, SessionDocument, Summary
from hvdperf.timeline.nights.night import Night
from hvdperf.toml_file import read_toml
from hvdperf.verdict import Band, Ceiling, Floor, SpeedFloor
from hvdperf.work.collectives import Collectives
from hvdperf.worker.script.tap._hvdperf_recorder import PREFIXES

REFERENCE = ROOT / "docs" / "reference"
SCHEMAS = ROOT / "results" / "schema"
DOCUMENTS = {
    "case": CaseDocument,
    "rounds": RoundsDocument,
    "session": SessionDocument,
    "summary": Summary,
    "night": Night,
}
BETTER = {Floor: "higher", SpeedFloor: "higher", Ceiling: "lower", Band: "1"}
LIMIT = {Floor: "floor", SpeedFloor: "floor", Ceiling: "ceiling", Band: "band"}

# Markdown --------------------------------------------------------------------------------------


def code(text: object) -> str:
    return f"`{text}`" if str(text) else ""


def codes(names: Iterable[object]) -> str:
    return ", ".join(map(code, names))


def _wrapped(paragraph: str) -> str:
    if paragraph.startswith(("|", "#", "<", "```", "- ", "1. ")):
        return paragraph
    return textwrap.fill(paragraph, 120, break_long_words=False, break_on_hyphens=False)


def meanings(documented: Any, names: Iterable[str]) -> dict[str, str]:
    """Return what a docstring says about each of these names, in sentences `name: meaning.` or
    `name, name: meaning.`."""
    known = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    start = re.compile(rf"(?:^|(?<=[.;] ))((?:{known})(?:, (?:{known}))*): ")
    found = {}
    for paragraph in (documented.__doc__ or "").split("\n\n"):
        parts = start.split(" ".join(paragraph.split()))[1:]
        for keys, meaning in zip(parts[::2], parts[1::2], strict=True):
            for key in keys.split(", "):
                found[key] = meaning.strip().rstrip(".;")
    return found


# Pages -----------------------------------------------------------------------------------------

# What variants of hvdperf/plan/arms.py need, by question.
NEEDS = {
    "gradient_reduction": "`adasum`: MPI and 2, 4, 8, ... ranks; `dense`: language models",
    "recipe": "`f16`: GPUs",
    "launch": "`threads`: CPUs",
}
# What the variants of hvdperf/plan/arms.py change.
VARIANTS = {
    "fp16": "gradients are exchanged in half precision",
    "group": "all gradients are exchanged as one group",
    "adasum": "gradients are combined by Adasum (arXiv:2006.02924) instead of averaged",
    "dense": "the gradient of an embedding is reduced whole, instead of gathering the rows in use",
    "nofuse": "Horovod fuses no tensors",
    "cycle": "Horovod collects tensors for 25 ms",
    "passes": "the gradients of two batches are added up before they are exchanged",
    "default": "the launch is as Open MPI and TensorFlow have it: all of the following three",
    "polling": "a rank that waits polls, in place of yielding its core",
    "binding": "mpirun binds ranks to cores, in place of the rank itself to those of its slot",
    "threads": "TensorFlow chooses its numbers of threads",
    "bf16": "the network trains in mixed precision with bfloat16",
    "f16": "the network trains in mixed precision with float16",
    "rate": "the learning rate is warmed up, and reduced when training stalls",
}


def cases() -> list[str]:
    asked: dict[Question, tuple[str, str]] = {}
    variants: dict[Question, list[str]] = {}
    for question, variant, file, replicas in _asked():
        asked[question] = file, replicas
        variants.setdefault(question, []).append(variant)
    profiles = {path.stem: load_profile(path) for path in sorted(PROFILES.glob("*.toml"))}
    rows, asking = [], []
    for question in Question:
        spec = question.spec
        file, replicas = asked[question]
        by = [
            name
            for name, profile in profiles.items()
            if not profile.fault_cases
            and not spec.asked_by_line
            and question in (profile.questions or tuple(Question))
        ]
        own = ", ".join(filter(None, (need.text for need in spec.needs)))
        on_gpus = "INFO on GPUs" if spec.work == Collectives.name else ""
        needs = "; ".join(filter(None, (replicas, own, NEEDS.get(question.value), on_gpus)))
        better = BETTER[spec.rule]
        rows.append(
            (
                code(question.value),
                spec.meaning + _list(variants[question], spec.has_variants),
                spec.unit or ("samples/s" if spec.rule is SpeedFloor else "ratio"),
                f"{better} ({LIMIT[spec.rule]})",
                needs,
            )
        )
        asking.append((code(question.value), codes(by), code(f"perf/{file}")))
    changes = [
        (code(question.value), code(name), VARIANTS[name])
        for question in Question
        if question.spec.own_rounds
        for name in dict.fromkeys(variants[question])
    ]
    return [
        table(("question", "figure", "unit", "better", "needs"), rows),
        table(("question", "variant", "what it changes"), changes),
        table(("question", "profiles", "file"), asking),
    ]


def _list(names: Iterable[str], wanted: bool) -> str:
    return f" ({codes(dict.fromkeys(names))})" if wanted else ""


def _asked() -> Iterator[tuple[Question, str, str, str]]:
    """Yield each question and variant with the file in perf/ that asks it, and the number of
    replicas that it needs."""
    workload = Workload("resnet_50_s", "cifar10", 32, 32)
    for path in sorted((ROOT / "perf").glob("test_*.py")):
        if path.stem == "test_trust":
            yield Question.AA, "", path.name, "2 replicas or more"
            continue
        for test in vars(importlib.import_module(f"perf.{path.stem}")).values():
            for mark in getattr(test, "pytestmark", ()):
                found = mark.kwargs["ask"](workload, 2)
                smallest, largest = mark.kwargs.get("smallest", 2), mark.kwargs.get("largest")
                replicas = f"{smallest} replica{'s' * (smallest > 1)}"
                replicas += "" if largest == smallest else " or more"
                replicas = "" if (smallest, largest) == (1, None) else replicas
                for each in [found] if isinstance(found, Comparison) else found:
                    yield each.question, each.variant, path.name, replicas


def options() -> list[str]:
    parser = cli.Parser()
    cli.add_options(parser, Options)
    _, _, *groups = parser._action_groups  # argparse's own come first
    return ["\n\n".join(_section(group) for group in groups)]


def _section(group: argparse._ArgumentGroup) -> str:
    options = table(("option", "meaning"), map(_argument, group._group_actions))
    return f"## {(group.title or '').capitalize()}\n\n{options}"


def commands() -> list[str]:
    return ["\n\n".join(_commands(command.parser(), "hvdperf"))]


def _commands(parser: argparse.ArgumentParser, name: str) -> Iterator[str]:
    subcommands = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    others = [a for a in parser._actions if a not in subcommands and a.dest != "help"]
    if others or not subcommands:
        yield f"## {name}"
        yield parser.description or ""
    if others:
        yield table(("argument", "meaning"), map(_argument, others))
    for action in subcommands:
        for sub, each in action.choices.items():
            yield from _commands(each, f"{name} {sub}")


def _argument(action: argparse.Action) -> tuple[str, str]:
    value = action.metavar or ("|".join(map(str, action.choices or ())))
    if not value and action.nargs != 0:
        value = action.dest.upper()
    text = ", ".join(action.option_strings)
    return code(f"{text} {value}".strip()), (action.help or "") % vars(action)


def profiles() -> list[str]:
    found = {path.stem: path for path in sorted(PROFILES.glob("*.toml"))}
    rows = [
        (code(name), _comment(path), codes(profile.models), f"{profile.budget_s / 60:g} min")
        for name, path in found.items()
        for profile in [load_profile(path)]
    ]
    keys = [
        "\n\n".join([f"## {title}", table(("key", "default", "meaning"), _keys(record))])
        for title, record in (
            ("Keys", Profile),
            ("Keys of [sampling]", Sampling),
            ("Keys of [runs]", Runs),
        )
    ]
    return ["\n\n".join([table(("profile", "what for", "networks", "budget"), rows), *keys])]


def _comment(path: Path) -> str:
    """Return the comment at the beginning of a file, in one line."""
    lines: list[str] = []
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# "))
    return " ".join(lines)


def _keys(record: type[Any]) -> Iterator[tuple[str, str, str]]:
    fields = [field for field in dataclasses.fields(record) if field.name != "name"]
    told = meanings(record, [field.name for field in fields])
    for field in fields:
        default: object = field.default
        plain = PLAIN_KEYS.get(field.name, "")
        if field.default_factory is not dataclasses.MISSING or dataclasses.is_dataclass(default):
            shown, plain = "", "a table of its own, below"
        elif default is dataclasses.MISSING:
            shown = "required"
        elif isinstance(default, Enum):
            shown = code(default.value)
        elif isinstance(default, bool):
            shown = code(str(default).lower())
        else:
            shown = code(list(default) if isinstance(default, tuple) else default)
        yield code(field.name), shown, told.get(field.name, plain)


# Keys that the docstring of Profile takes for known.
PLAIN_KEYS = {
    "models": "the networks (`hvdperf list networks`)",
    "dataset": "the data set, as `--dataset`",
    "schedule": "`alternate`: arms take turns; `fresh`: one arm after the other",
}


def thresholds() -> list[str]:
    parts = []
    for path in sorted(limits.THRESHOLDS.glob("*.toml")):
        match = read_toml(path)["match"]
        machines = ", ".join(f"{key} = {value}" for key, value in match.items())
        lines = [
            (code("/".join(line.pattern)), str(line.rule))
            for line in limits.load_thresholds(path).lines
        ]
        parts.append(f"## {path.name}\n\n{_comment(path)}\n\nMachines: {code(machines)}")
        parts.append(table(("question/network/world size/nodes", "limit"), lines))
    shape = (limits.__doc__ or "").split("::\n", 1)[1].split("\n\nIn each")[0]
    example = "\n".join(line.removeprefix("    ") for line in shape.strip("\n").splitlines())
    return [f"```toml\n{example}\n```", "\n\n".join(parts)]


# Every variable of the suite's own: who sets it, and what it is for. A test compares the names with
# those in the code.
VARIABLES = {
    "HVDPERF_VENV": ("you", "the environment that `activate` puts first, such as `.venv-tf2.15.1`"),
    "HVDPERF_DATA_DIR": ("you", "the default of `--data-dir`, also for `make perf`"),
    "HVDPERF_CONTAINER": ("you", "the image's digest, which goes into the fingerprint"),
    "HVDPERF_LABEL": ("`hvdperf nightly`", "the series of the night, in `session.json`"),
    "HVDPERF_SCREENSHOTS": ("you", "directory for pictures that tests of pages keep"),
    "HVDPERF_SERIES": ("CI", "series of a night in `ci/github/nightly.yml`"),
    "HVDPERF_PROFILE": ("CI", "profile of a night there"),
    "HVDPERF_GPU": ("CI", "whether a night there uses the environment for GPUs"),
    "HVDPERF_RECORD": ("`hvdperf run`", "where the ranks of a script write what they recorded"),
    "HVDPERF_STEPS": ("`hvdperf run`", "the steps after which a script ends; 0: its own end"),
    "HVDPERF_PRIVATE": (
        "the suite",
        "how a run of a script is kept from changing the user's files",
    ),
    "HVDPERF_WRITABLE": (
        "you",
        "directories, separated by colons, that runs of a script may change; `hvdperf run` has "
        "`--writable` for it",
    ),
    "HVDPERF_STAMPS": ("you", "0: `hvdperf run` puts no stamps into the graph of a script"),
    "HVDPERF_AGAINST": ("CI", "reference stack of a night there"),
    "HVDPERF_OPTIONS": ("CI", "further options of a night there"),
    "HVDPERF_DRIVER": ("the suite", "how a rank finds its session"),
    "HVDPERF_DAEMONS": ("the suite", "how Open MPI's daemons start through the slots"),
    "HVDPERF_STATUS_FILE": ("the suite", "the exit status of a session under an outer mpirun"),
}
OTHERS = {
    "CUDA_VISIBLE_DEVICES": "the GPUs that a session uses",
    "NO_COLOR, PY_COLORS, FORCE_COLOR": "colours on the terminal, as for pytest",
    "PYTEST_ADDOPTS": "options for every pytest, as for pytest",
    "CMAKE_BUILD_PARALLEL_LEVEL": "jobs that compile another Horovod",
    "CXX": "the compiler of Horovod",
    "XDG_CACHE_HOME": "where a suite [of another project](../environments.md#from-another-project) "
    "keeps samples and facts",
}


def environment() -> list[str]:
    own = [(code(name), *row) for name, row in VARIABLES.items()]
    others = [(codes(names.split(", ")), meaning) for names, meaning in OTHERS.items()]
    settings = [
        (code(row.variables), row.changes, row.touches.value, _overridden(row))
        for row in ROWS
        if row.changes
    ]
    unknown = codes(row.variables for row in ROWS if not row.changes)
    return [
        f"Variables that begin with {codes(PREFIXES)} are passed to all ranks on all hosts.",
        table(("variable", "set by", "meaning"), own),
        table(("variable", "meaning"), others),
        f"Other variables with these beginnings are recorded and reported as set: {unknown}. Those "
        "that only say where a rank is, how Horovod was built, what is written down, or when "
        "Horovod gives up are left out.\n\n"
        + table(("variables", "what they change", "touches", "has no effect, because"), settings),
    ]


def _overridden(row: Row) -> str:
    where = {"gpu": " (on CPUs)", "mpirun": " (under `--launcher agents`)"}.get(row.unless, "")
    return row.overridden + where if row.overridden else ""


def faults() -> list[str]:
    told = meanings(Fault, Fault.KINDS)
    kinds = [
        (
            code(kind),
            told[kind],
            codes(keys) or "all ranks",
            ", ".join(
                code(f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}")
                for k, v in Fault.DEFAULTS.get(kind, {}).items()
            ),
        )
        for kind, keys in Fault.KINDS.items()
    ]
    trials = [
        (
            code(name),
            code(trial.fault) or "none",
            code(trial.question.value),
            trial.verdict.value,
            trial.term or (trial.doubt.value if trial.doubt else ""),
            ("all" if trial.rank is None else f"{trial.rank}") if trial.term else "",
        )
        for name, trial in FAULT_CASES.items()
    ]
    return [
        table(("kind", "what happens", "keys", "defaults"), kinds),
        table(("case", "fault", "question", "verdict", "attribution or reason", "rank"), trials),
    ]


def documents() -> list[str]:
    rows = [
        (
            f"[{name}](../../results/schema/{name}.schema.json)",
            code(PLACES[name]),
            cli.first_sentence(" ".join((r.__doc__ or "").split())).rstrip("."),
        )
        for name, r in DOCUMENTS.items()
    ]
    sections = (
        f"## {name}\n\n" + table(("field", "type", "meaning"), _fields(record))
        for name, record in DOCUMENTS.items()
    )
    return ["\n\n".join([table(("schema", "file", "content"), rows), *sections])]


PLACES = {
    "case": "results/runs/SESSION/CASE.json",
    "rounds": "results/runs/SESSION/rounds/WORKLOAD-WORK.json",
    "session": "results/runs/SESSION/session.json",
    "summary": "results/runs/SESSION/summary.json, results/history/MACHINE/SESSION.json",
    "night": "results/nights/SERIES/DATE.json",
}


def _fields(record: Any) -> Iterator[tuple[str, str, str]]:
    fields = dataclasses.fields(record)
    told = meanings(record, [field.name for field in fields])
    for field in fields:
        kind = field.type
        for name, plain in PLAIN_TYPES.items():
            kind = re.sub(rf"\b{name}\b", plain, str(kind))
        meaning = told.get(field.name) or PLAIN_FIELDS[field.name]
        yield code(field.name), code(kind), meaning


PLAIN_TYPES = {"Positive": "int", "Moment": "time in UTC", "Day": "date"}
# Fields that the docstrings of the records take for known.
PLAIN_FIELDS = {
    "format": "version of this kind of document",
    "session": "name of the session, its directory in `results/runs`",
    "written_at": "when the document was written",
    "fingerprint": "machine, stack, data and settings",
    "name": "of the case, such as `weak_scaling[vgg_16_s-np2]`",
    "replicas_per_node": "of the candidate, one number a node",
    "outcome": "judgement and observations",
    "profile": "its name",
    "launcher": "as `--launcher`",
    "schedule": "as `schedule` of the [profile](profiles.md)",
    "asked": "the settings that a resumed session must repeat, besides the fingerprint",
    "exit_status": "of pytest; none while the session runs",
    "cases": "a row for each: figure, interval, limit, rounds, verdict and reason",
    "series": "the name that it was given",
    "began_at": "when it began",
    "parts": "the sessions of the night",
}


PAGES: Mapping[str, Callable[[], list[str]]] = {
    "cases": cases,
    "options": options,
    "commands": commands,
    "profiles": profiles,
    "thresholds": thresholds,
    "environment": environment,
    "faults": faults,
    "documents": documents,
}


def text(name: str) -> str:
    """Return the whole text of a page."""
    made = ["\n\n".join(map(_wrapped, part.split("\n\n"))) for part in PAGES[name]()]
    return filled((REFERENCE / f"{name}.md").read_text(), "make docs", made)


def schemas() -> dict[Path, str]:
    """Return the schema of each kind of document, as JSON, by its file."""
    return {
        SCHEMAS / f"{name}.schema.json": json.dumps(schema(kind), indent=1) + "\n"
        for name, kind in DOCUMENTS.items()
    }


if __name__ == "__main__":
    for name in PAGES:
        write_whole(REFERENCE / f"{name}.md", text(name))
    for path, content in schemas().items():
        write_whole(path, content)
