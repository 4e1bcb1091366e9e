"""Change points of lines, found by Apache Otava: E-divisive means (Matteson and James 2014), kept
if Student's t-test separates both sides (Fleming and others 2023, 10.1145/3578244.3583719).

Otava has an environment of its own (ci/otava.sh), since it pins numpy, and is called as a command.
It reads and writes in a temporary directory only, and needs no network.
"""

from __future__ import annotations

import csv
import json
import math
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hvdperf.errors import UserError
from hvdperf.history import places
from hvdperf.history.lines import Line
from hvdperf.paths import shown

COMMAND = places.GENERATED / "otava" / "bin" / "otava"
# As in ci/otava.txt: this module reads the output of this version.
VERSION = "0.8.0"
_DEADLINE_S = 600.0
# Otava keeps the order of points, but leaves out those before --since, so points get artificial
# times, one second apart. It reads a number of ten digits as seconds since 1970.
_FIRST_SECOND = 1_000_000_000


@dataclass(frozen=True)
class Settings:
    """Limits for a change point to be kept. largest_p: of the t-test. smallest_size: relative.
    docs/changes.md has their error rates."""

    largest_p: float = 0.001
    smallest_size: float = 0.03


@dataclass(frozen=True)
class ChangePoint:
    """A change point of a line.

    index, version: of the first point after the change. mean_before, mean_after: samples per
    second, of all points back to the previous change point, and on to the next one. p_value: of the
    t-test between these points, to six decimals.
    """

    index: int
    version: str
    mean_before: float
    mean_after: float
    p_value: float

    @property
    def size(self) -> float:
        """Return the relative change of the means: -0.05 is 5 % slower."""
        return self.mean_after / self.mean_before - 1


def change_points(
    lines: Sequence[Line], settings: Settings = Settings(), command: Path = COMMAND
) -> list[tuple[ChangePoint, ...]]:
    """Return the change points of every line, in the order of the lines.

    Raises UserError if Otava is missing, fails, or prints something unexpected.
    """
    if not lines:
        return []
    with tempfile.TemporaryDirectory(prefix="hvdperf-otava-") as name:
        directory = Path(name)
        tests = {f"line{number}": line for number, line in enumerate(lines)}
        printed = _run(command, _arguments(tests, settings, directory), directory)
    found = _read(printed)
    if found.keys() != tests.keys():
        raise _unexpected(f"it printed results of {len(found)} lines instead of {len(tests)}")
    try:
        return [
            tuple(_change_point(line, each) for each in found[test]) for test, line in tests.items()
        ]
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise _unexpected(f"a change point: {type(error).__name__}: {error}") from None


def _arguments(tests: Mapping[str, Line], settings: Settings, directory: Path) -> list[str]:
    """Write the files that Otava reads; return its arguments."""
    described: dict[str, Any] = {}
    for name, line in tests.items():
        path = directory / f"{name}.csv"
        with open(path, "w", newline="") as stream:
            rows = csv.writer(stream)
            rows.writerow(["time", "speed"])
            rows.writerows(
                [_FIRST_SECOND + second, repr(point.samples_per_second)]
                for second, point in enumerate(line.points)
            )
        described[name] = {"type": "csv", "file": str(path), "metrics": ["speed"]}
    config = directory / "otava.yaml"
    # JSON is YAML, too.
    config.write_text(json.dumps({"tests": described}))
    # One window holds each whole line, because Otava analyses windows separately and then finds
    # less.
    window = 2 * max(len(line.points) for line in tests.values()) + 2
    return [
        *("analyze", *tests),
        *("--config-file", str(config)),
        *("--output", "json"),
        *("--since", str(_FIRST_SECOND)),
        *("--window", str(window)),
        *("-P", str(settings.largest_p)),
        *("--magnitude", str(settings.smallest_size)),
    ]


def _run(command: Path, arguments: Sequence[str], directory: Path) -> str:
    """Run Otava in the directory; return what it prints. Raises UserError if it fails."""
    try:
        done = subprocess.run(
            [command, *arguments],
            cwd=directory,
            # The user's variables are left out, because Otava reads some, such as BRANCH in a CI.
            env={"HOME": str(directory), "TZ": "UTC", "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            text=True,
            errors="replace",
            timeout=_DEADLINE_S,
        )
    except OSError as error:
        raise UserError(
            f"Apache Otava does not start, {shown(command)}: {error.strerror}; "
            "`make changes` installs it"
        ) from None
    except subprocess.TimeoutExpired:
        raise UserError(f"Apache Otava did not end within {_DEADLINE_S:g} s") from None
    complaints = [line for line in done.stderr.splitlines() if line and not line.startswith("INFO")]
    if done.returncode != 0:
        last = complaints[-1] if complaints else "it printed nothing"
        raise UserError(f"Apache Otava failed with exit code {done.returncode}: {last}")
    # If Otava cannot read a line, it goes on with the next one, and its exit code is 0.
    errors = [line for line in complaints if line.startswith("ERROR")]
    if errors:
        raise _unexpected(errors[0])
    return done.stdout


def _read(printed: str) -> dict[str, Any]:
    """Return the output by name of the line. Otava prints one JSON object on each line of it."""
    told: dict[str, Any] = {}
    for text in printed.splitlines():
        try:
            told.update(json.loads(text))
        except (ValueError, TypeError, RecursionError):
            raise _unexpected(f"it printed {text[:60]!r}") from None
    return told


def _change_point(line: Line, told: Mapping[str, Any]) -> ChangePoint:
    """Return a change point as Otava reports it. Raises LookupError, TypeError, ValueError or
    OverflowError if it is not one."""
    (change,) = told["changes"]
    index = int(change["index"])
    before, after, p_value = (float(change[key]) for key in ("mean_before", "mean_after", "pvalue"))
    if not 0 < index < len(line.points):
        raise ValueError(f"index {index} of {len(line.points)} points")
    if not (0 < before < math.inf and 0 < after < math.inf and 0 <= p_value <= 1):
        raise ValueError(f"means {before:g} and {after:g}, p {p_value:g}")
    return ChangePoint(index, line.points[index].version, before, after, p_value)


def _unexpected(what: str) -> UserError:
    return UserError(
        f"Apache Otava: {what}; hvdperf/history/otava.py reads what version {VERSION} prints: "
        "remove .asv/otava and run `make changes`, which installs that"
    )
