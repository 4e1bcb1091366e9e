"""Apache Otava as a rule of the truth table, in an environment of its own: it pins numpy.

Its algorithm (https://github.com/apache/otava/blob/master/docs/MATH.md) looks for changes in a
series with one figure a run. It is used as it is, with the options that it has without arguments
(https://github.com/apache/otava/blob/master/docs/API.md): windows of 50, p of 0.001, no least size.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.truth_data import NONE
from bench.truth_rules import SERIES, Decision, Recorded, Rule, Said, decided
from hvdperf.errors import UserError
from hvdperf.paths import CACHE
from hvdperf.programs import run

VERSION = "0.8.0"
PLACE = CACHE / f"otava-{VERSION}"
NAME = f"Apache Otava {VERSION}"
GIVEN = (
    f"one figure a run: {SERIES} healthy runs are on file, then up to {SERIES} of the candidate "
    "follow; it looks after each"
)
SOURCE = "[installed](https://pypi.org/project/apache-otava/), with its own options"
# A change may be found at the last healthy run, which is as close as a reader needs.
NEAR = 1
_MINUTES = 60.0
# Runs in Otava's environment: one list of changes [index, mean before, mean after] for each series.
_PROGRAM = """
import json, sys
from otava.analysis import compute_change_points
def changes(series):
    found, _ = compute_change_points(series)
    return [[int(c.index), float(c.stats.mean_1), float(c.stats.mean_2)] for c in found]
json.dump([changes(series) for series in json.load(sys.stdin)], sys.stdout)
"""


def install() -> Path:
    """Return the interpreter of Otava's environment, which is made unless it is there. Raises
    UserError, such as without a network."""
    python = PLACE / "bin" / "python"
    done = PLACE / ".ready"
    if not done.exists():
        pip: list[str | Path] = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        venv: list[str | Path] = [sys.executable, "-m", "venv", "--clear", PLACE]
        for command in (venv, [*pip, f"apache-otava=={VERSION}"]):
            ended = run(command, within_s=5 * _MINUTES)
            if ended.status:
                raise UserError(f"{NAME} cannot be installed: {ended.why}")
        done.touch()
    return python


def changes(
    python: Path, series: Sequence[Sequence[float]]
) -> list[list[tuple[int, float, float]]]:
    """Return the changes that Otava finds in each series: index, and the means before and after.
    Raises UserError."""
    ended = run([python, "-c", _PROGRAM], given=json.dumps(series), within_s=8 * _MINUTES)
    if ended.status:
        raise UserError(f"{NAME}: {ended.why}")
    return [[(at, one, other) for at, one, other in each] for each in json.loads(ended.output)]


def rule(recorded: Sequence[Recorded], python: Path) -> Rule:
    """Return Otava as a rule, with all of its decisions on these recordings. Raises UserError."""
    places = [
        (each, arm, number)
        for each in recorded
        for arm in each.candidates
        for number in range(each.count)
    ]
    series = [_series(*place, runs) for place in places for runs in _lengths(place[0])]
    found = iter(changes(python, series))
    decisions = {
        (id(each), arm, number): _decision(each, arm, number, [next(found) for _ in _lengths(each)])
        for each, arm, number in places
    }

    def decide(each: Recorded, arm: str, number: int) -> Decision | None:
        return decisions[id(each), arm, number]

    return Rule(NAME, GIVEN, SOURCE, decide)


def _history(recorded: Recorded) -> int:
    return min(SERIES, recorded.count // 2)


def _lengths(recorded: Recorded) -> range:
    return range(1, _history(recorded) + 1)


def _series(recorded: Recorded, arm: str, number: int, runs: int) -> list[float]:
    history = _history(recorded)
    healthy = recorded.some(NONE, number - history, history)
    return [run.step for run in [*healthy, *recorded.some(arm, number, runs)]]


def _decision(
    recorded: Recorded, arm: str, number: int, found: Sequence[Sequence[tuple[int, float, float]]]
) -> Decision:
    """Return the decision by the changes that were found after each run of the candidate."""
    history, seconds = _history(recorded), 0.0
    for runs, changed in enumerate(found, 1):
        seconds += recorded.some(arm, number + runs - 1, 1)[0].seconds
        if any(at >= history - NEAR and after > earlier for at, earlier, after in changed):
            return Decision(Said.SLOWER, seconds, runs)
    return decided(False, seconds, len(found))
