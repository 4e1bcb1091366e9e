"""The compatibility table: which releases of Horovod build, import and train with which
TensorFlow.

It is made from raw results, whose stacks have trained, from the records of stacks that could not
be built, and from what was tried with stacks by use. `make docs` writes it into the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import date
from pathlib import Path

from ci.build_horovod import HOROVOD_QUIRKS, TENSORFLOW_QUIRKS, quirks
from docs.markdown import table
from hvdperf.errors import UserError
from hvdperf.json_records import Unreadable, decode
from hvdperf.paths import shown
from hvdperf.timeline import store
from hvdperf.timeline.history import Axis, RawResult, check_known, order, releases
from hvdperf.timeline.stacks import TENSORFLOW

NOT_TRIED, NOT_RECORDED, NONE = "not tried", "not recorded", "-"


@dataclass(frozen=True)
class BuildFailure:
    """The record of a combination that could not be built (ci/build_horovod.py). reason: the first
    error. keras, python, tried: None in records that do not say them."""

    horovod: str
    tensorflow: str
    compiler: str
    reason: str
    keras: str | None = None
    python: str | None = None
    tried: date | None = None


@dataclass(frozen=True)
class UsesOfStack:
    """What was tried with a stack, a document of results/uses. keras: the version of what tf.keras
    is. tried_at: the day, in UTC. uses: each with its name, `use`, and its `problem` in a line, ""
    if it does what it promises."""

    tensorflow: str
    keras: str
    python: str
    tried_at: date
    uses: tuple[Mapping[str, str], ...]


@dataclass(frozen=True)
class Row:
    """A line of the table, with the words of its cells."""

    horovod: str
    tensorflow: str
    keras: str = NONE
    python: str = NONE
    compiler: str = NONE
    builds: str = NOT_TRIED
    imports: str = NOT_TRIED
    trains: str = NOT_TRIED
    date: str = NONE


def read_not_built(directory: Path) -> tuple[list[BuildFailure], list[str]]:
    """Return the records of a directory, and one line for each that cannot be read."""
    found, refused = [], []
    for path in sorted(directory.glob("*.json")):
        try:
            record = decode(path.read_bytes(), BuildFailure)
            for axis in Axis:
                check_known(axis, axis.value, getattr(record, axis.value))
            found.append(record)
        except (Unreadable, UserError) as error:
            refused.append(f"{shown(path)}: refused: {error}")
    return found, refused


def rows(results: Iterable[RawResult], not_built: Iterable[BuildFailure]) -> list[Row]:
    """Return the lines, the newest Horovod first, and for each the newest TensorFlow first."""
    found = [*_trained(results), *map(_failed, not_built)]
    newest = [*releases(Axis.HOROVOD)][-1]
    tried = {row.tensorflow for row in found if row.horovod == newest}
    found += [Row(newest, tensorflow) for tensorflow in TENSORFLOW if tensorflow not in tried]

    def place(row: Row) -> tuple[int, int, tuple[str, ...]]:
        horovod, tensorflow = order(Axis.HOROVOD), order(Axis.TENSORFLOW)
        return -horovod[row.horovod], -tensorflow[row.tensorflow], astuple(row)

    return sorted(found, key=place)


def _trained(results: Iterable[RawResult]) -> list[Row]:
    """Return a line for each stack that has trained, whatever the number of its sessions."""
    latest: dict[tuple[str, ...], Row] = {}
    for result in sorted(results, key=lambda each: each.written_at):
        known = result.fingerprint
        stack = (known["horovod"], known["tensorflow"], known["keras"], known["python"])
        compiler = _compiler(result.compiler)
        if compiler == NOT_RECORDED and stack in latest:
            compiler = latest[stack].compiler
        needed = quirks(known["horovod"], known["tensorflow"])
        builds = "yes, with extra settings" if needed else "yes"
        when = result.written_at.date().isoformat()
        latest[stack] = Row(*stack, compiler, builds, "yes", "yes", when)
    return list(latest.values())


def _failed(record: BuildFailure) -> Row:
    return Row(
        record.horovod,
        record.tensorflow,
        record.keras or NOT_RECORDED,
        record.python or NOT_RECORDED,
        _compiler(record.compiler),
        "no",
        NONE,
        NONE,
        NOT_RECORDED if record.tried is None else record.tried.isoformat(),
    )


def _compiler(text: str | None) -> str:
    """Return the name and version of a compiler, without the package that it came in."""
    return re.sub(r" \([^)]*\)", "", text) if text else NOT_RECORDED


def read_uses(directory: Path) -> tuple[list[UsesOfStack], list[str]]:
    """Return what was tried with each stack and Keras, the newest TensorFlow and Keras first, and
    one line for each document that cannot be read."""
    paths = sorted(directory.glob("*.json"))
    found, refused = store.read_all(paths, lambda path: decode(path.read_bytes(), UsesOfStack))
    tensorflow = order(Axis.TENSORFLOW)

    def place(each: UsesOfStack) -> tuple[int, list[int]]:
        return tensorflow.get(each.tensorflow, -1), [int(n) for n in each.keras.split(".")[:2]]

    return sorted(found, key=place, reverse=True), refused


def _by_use(tried: Sequence[UsesOfStack]) -> Iterator[str]:
    """Yield the table of uses, a column for stacks and Keras with which all of them do the same,
    and the errors behind it."""
    errors: dict[str, int] = {}
    names = list(dict.fromkeys(each["use"] for stack in tried for each in stack.uses))
    columns: dict[tuple[str, ...], list[UsesOfStack]] = {}
    for stack in tried:
        problems = {each["use"]: each["problem"] for each in stack.uses}
        cells = tuple(_cell(problems.get(use, NOT_TRIED), errors) for use in names)
        columns.setdefault(cells, []).append(stack)
    shown = [f"`{use}`" if use.isidentifier() else use for use in names]
    head = ["use", *map(_heading, columns.values())]
    yield table(head, zip(shown, *columns, strict=True)) + "\n\n"
    yield from (f"{number}. ``{problem}``\n" for problem, number in errors.items())
    days = sorted({f"{each.tried_at}" for each in tried})
    pythons = sorted({each.python for each in tried})
    yield f"\nTried on {', '.join(days)} with Python {', '.join(pythons)}.\n"


def _cell(problem: str, errors: dict[str, int]) -> str:
    """Return what became of a use. errors: numbers those that are met first."""
    # How a problem begins that no error shows.
    if problem.startswith("the ranks have different"):
        return "**no, in silence**"
    if problem and problem != NOT_TRIED:
        return f"no ({errors.setdefault(problem, len(errors) + 1)})"
    return problem or "yes"


def _heading(stacks: Sequence[UsesOfStack]) -> str:
    """Return the releases of TensorFlow and of Keras in a column. stacks: the newest first."""
    texts = []
    for versions in ([each.tensorflow for each in stacks], [each.keras for each in stacks]):
        first, last = versions[-1], versions[0]
        texts.append(first if first == last else f"{first} to {last}")
    return f"{texts[0]}, Keras {texts[1]}"


def tables(
    results: Iterable[RawResult],
    not_built: Sequence[BuildFailure],
    uses: Sequence[UsesOfStack] = (),
) -> str:
    """Return what the page has below its text: what works by use, the table, the first error of
    each combination that does not build, and the extra settings of releases that need some."""
    parts = ["".join(_by_use(uses)), "## Combinations\n"]
    head = ("Horovod", "TensorFlow", "Keras", "Python", *(each.name for each in fields(Row)[4:]))
    parts.append(table(head, map(astuple, rows(results, not_built))) + "\n")
    reasons: dict[tuple[str, str], list[str]] = {}
    for record in not_built:
        reasons.setdefault((record.horovod, record.reason), []).append(record.tensorflow)
    lines = (
        f"- Horovod {horovod} with TensorFlow {', '.join(tensorflow)}: ``{reason}``\n"
        for (horovod, reason), tensorflow in reasons.items()
    )
    parts += ["## First errors\n", "".join(lines), "## Extra settings\n"]
    for name, known in (("Horovod", HOROVOD_QUIRKS), ("TensorFlow", TENSORFLOW_QUIRKS)):
        for why in dict.fromkeys(quirk.why for quirk in known.values()):
            versions = ", ".join(version for version, quirk in known.items() if quirk.why == why)
            parts.append(f"{name} {versions}: {why}. The suite's build applies it.\n")
    return "\n".join(parts).strip()
