"""The compatibility table: which releases of Horovod build, import and train with which
TensorFlow.

It is made from raw results, whose stacks have trained, and from the records of stacks that could
not be built. `make docs` writes the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from datetime import date
from pathlib import Path

from ci.build_horovod import HOROVOD_QUIRKS, TENSORFLOW_QUIRKS, quirks
from hvdperf.errors import UserError
from hvdperf.json_records import Unreadable, decode
from hvdperf.paths import shown
from hvdperf.timeline.releases.raw import Axis, RawResult, check_known, order, releases

NOT_TRIED, NOT_RECORDED, NONE = "not tried", "not recorded", "-"

_TEXT = """\
<!-- made by `make docs` from results/history and results/not-built: do not change this page -->

# Compatibility

Which releases of Horovod and TensorFlow work together, as tried with this suite.

A combination *trains* if the suite's own training loop has trained networks with it and a session
has measured their speed, so it was built and imported before. This does not mean that your script
trains ([Keras's fit](#kerass-fit-since-tensorflow-216)). All builds are of the unpatched source of
a release: a "no" says that this source does not compile, not that a patched one cannot. A
combination does not *build* if its compilation ended with an error, so it cannot be imported
either. For Horovod {newest}, the last release, the table has a line for every TensorFlow release
that the suite knows. For older ones it has a line for every combination that was tried. The date is
that of the last try. `make backfill` builds and measures combinations that are missing.
What was tried without a session, with other Pythons too: [newer
versions](../environments.md#newer-versions-than-the-usual-ones).

## Keras's fit since TensorFlow 2.16

TensorFlow 2.16 and later come with Keras 3, which Horovod 0.28.1 does not know. Tried on two ranks
with TensorFlow 2.18.1 and Keras 3.15.1:

- **`model.fit` with `hvd.DistributedOptimizer` exchanges nothing, without a message**: it ends with
  exit status 0, and the ranks have different weights.
- `hvd.DistributedGradientTape` stops with `'Variable' object has no attribute 'ref'`, and so do
  Horovod's own examples that use it. All four callbacks of `hvd.callbacks` fail.
- With `TF_USE_LEGACY_KERAS=1` and the package `tf-keras`, Keras 2 is used, and `model.fit`
  exchanges gradients.

The suite's loop trains with Keras 3, because it gives Horovod the variables inside those of Keras.

## Combinations
"""
_HEADER = (
    "Horovod",
    "TensorFlow",
    "Keras",
    "Python",
    "compiler",
    "builds",
    "imports",
    "trains",
    "date",
)


@dataclass(frozen=True)
class BuildFailure:
    """The record of a combination that could not be built (ci/build_horovod.py). reason: the first
    error. Records of earlier versions of the suite have fewer fields."""

    horovod: str
    tensorflow: str
    compiler: str
    reason: str
    keras: str | None = None
    python: str | None = None
    tried: date | None = None


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
    newest = releases(Axis.HOROVOD)[-1].version
    tried = {row.tensorflow for row in found if row.horovod == newest}
    found += [
        Row(newest, release.version)
        for release in releases(Axis.TENSORFLOW)
        if release.version not in tried
    ]

    def place(row: Row) -> tuple[int, int, tuple[str, ...]]:
        horovod, tensorflow = order(Axis.HOROVOD), order(Axis.TENSORFLOW)
        return -horovod[row.horovod], -tensorflow[row.tensorflow], astuple(row)

    return sorted(found, key=place)


def _trained(results: Iterable[RawResult]) -> list[Row]:
    """Return a line for each stack that has trained, whatever the number of its sessions."""
    latest: dict[tuple[str, ...], Row] = {}
    for result in sorted(results, key=lambda each: each.measured_at):
        known = result.fingerprint
        stack = (known["horovod"], known["tensorflow"], known["keras"], known["python"])
        compiler = _compiler(result.compiler)
        if compiler == NOT_RECORDED and stack in latest:
            compiler = latest[stack].compiler
        needed = quirks(known["horovod"], known["tensorflow"])
        builds = "yes, with extra settings" if needed else "yes"
        when = result.measured_at.date().isoformat()
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


def page(results: Iterable[RawResult], not_built: Sequence[BuildFailure]) -> str:
    """Return the page as Markdown: the table, the first error of each combination that does not
    build, and the extra settings of releases that need some."""
    newest = releases(Axis.HOROVOD)[-1].version
    parts = [_TEXT.format(newest=newest)]
    lines = [" | ".join(cells) for cells in (_HEADER, ["---"] * len(_HEADER))]
    lines += [" | ".join(astuple(row)) for row in rows(results, not_built)]
    parts.append("".join(f"| {line} |\n" for line in lines))
    reasons: dict[tuple[str, str], list[str]] = {}
    for record in not_built:
        reasons.setdefault((record.horovod, record.reason), []).append(record.tensorflow)
    if reasons:
        parts.append("## First errors\n")
        parts.append(
            "".join(
                f"- Horovod {horovod} with TensorFlow {', '.join(tensorflow)}: ``{reason}``\n"
                for (horovod, reason), tensorflow in reasons.items()
            )
        )
    parts.append("## Extra settings\n")
    for name, known in (("Horovod", HOROVOD_QUIRKS), ("TensorFlow", TENSORFLOW_QUIRKS)):
        for why in dict.fromkeys(quirk.why for quirk in known.values()):
            versions = ", ".join(version for version, quirk in known.items() if quirk.why == why)
            parts.append(f"{name} {versions}: {why}. The suite's build applies it.\n")
    return "\n".join(parts)
