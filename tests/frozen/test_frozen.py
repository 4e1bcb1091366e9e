"""Recorded sessions, simulated years and recorded scripts give the values of November 2026 again,
and no command, option or key has gone unnoticed.

A value may only change with an entry here: a name in NAMES, and anything else in CHANGED with the
reason why the new value is right. New values, tables, options and keys need no entry.
"""

from __future__ import annotations

import json
import lzma
import math
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.frozen import values

# What a name or a word was called, and its name today.
NAMES: dict[str, str] = {"least": "lower", "most": "upper"}
# Places whose values have changed or gone, as patterns of paths, each with the reason.
CHANGED = {
    r"/commands/hvdperf vet/--out": "it held no verdict, which the exit status and the text have",
    r"/commands/pytest/--placement": "groups take slots in the order of the launcher's ranks",
    r"/years/steps-0(60|75)/fell/0/(change|name|since)": "-6 % are planted in one of two "
    "throughputs of a network, a night before: its mean over both was named",
    r"/commands/hvdperf report/--with": "sessions of other layouts have figures of their own",
    r"/commands/pytest/--baseline": "hvdperf compare shows two sessions side by side, and "
    "nights judge throughputs by those of earlier dates",
    r"/commands/hvdperf predict": "outside of its own data its intervals held 7 of 10 values",
    r"/commands/hvdperf history uses": "the published table has what each use does; of a script of "
    "one's own `hvdperf run --check` says it",
    r"/commands/hvdperf bisect/--along": "two Horovods build, and pytest --against compares them",
    r"/commands/hvdperf history changes": "asv lists what looks slower in stored sessions, and "
    "bisect tells whether it is",
    r"/commands/hvdperf history (releases|preview)": "import and publish write what asv reads, and "
    "`make history` serves its sites",
    r"/commands/hvdperf (nightly (run|publish|watch)|regressions)/--branch": "one branch holds the "
    "series of all projects",
    r"/commands/hvdperf nightly run/--summary": "`hvdperf report` writes it",
    r"/commands/hvdperf history backfill/--again": "nothing records what could not be built",
    r"/commands/hvdperf history backfill/--(horovod|tensorflow)": "history measure measures any "
    "other stack",
    r"/commands/hvdperf (list cases|thresholds diff)": "pytest --collect-only and diff do the same",
    r"/commands/hvdperf thresholds check": "propose has limits that hold; pytest --dry-run names "
    "the cases without a limit",
    r"/sessions/[^/]+/tables/wall_time-factors/(wire|hidden)_ms": "Horovod's timeline gives a "
    "lower bound of hidden communication only, so sessions do not record it any more",
    r"/keys/\w+\.schema/(wire_seconds|timeline|activities)": "the same",
    r"/commands/pytest/--inconclusive": "6 is the exit status of INCONCLUSIVE",
    r"/commands/hvdperf (doctor/--pair|nightly run/--no-pair)": "profiles have A/A tests",
    r"/keys/night\.schema/pair": "the same",
    r"/years/(correlated|nodes|steps)-\d+/fell/\d+/(lower|upper)": "the correlation of nights is "
    "that of their differences, and all throughputs have their own: intervals move by 0.0002",
    r"/years/steps-(165|195|225|270|310|364)/(fell|change points)": "the "
    "planted drift is one finding in place of a fall and a row of change points",
    r"/sessions/[^/]+/tables/board/settings": "the head of the report says which figures a setting "
    "touches",
    r"/sessions/[^/]+/tables/wall_time-(speedups|terms-\w+-?\w*)": "Scaling's tables have these "
    "speedups, and the tables of waterfalls these seconds",
    r"/sessions/[^/]+/tables/steps-strategies-.*": "parity has the ratios of these speeds, with "
    "intervals",
    r"/sessions/[^/]+/tables/(changed-verdicts|fingerprint/(before|changed))": "hvdperf compare "
    "has the differences between two sessions",
    r"/sessions/[^/]+/tables/bandwidth-gradients": "the board has the ratio of these times, and a "
    "sweep the bandwidth by size",
    r"/sessions/[^/]+/tables/scaling-strong-steady_state": "a divided step takes as long as one of "
    "weak scaling, which has a table",
    r"/sessions/[^/]+/tables/(aa|communication|convergence_\w+|fixed_time|gradient_reduction|parity|"
    r"recipe)": "the board has these results, with their limits",
    r"/sessions/[^/]+/tables/culprits": "a sentence beside the plot of disturbances names them",
    r"/sessions/[^/]+/tables/board/margin": "the limit is beside the result",
    r"/sessions/[^/]+/tables/wall_time-waterfall-.*/bar": "every term has a bar of its own",
    r"/sessions/[^/]+/tables/convergence-curve-.*/learning_rate": "the documents have it",
    r"/sessions/[^/]+/tables/wall_time-factors/(met_lag_ms|slowest_rank)": "the straggler is the "
    "one rank that is named as slow in a run",
    r"/keys/\w+\.schema/(met_run|late_where_met|slowest)": "the same",
    r"/keys/case\.schema/((usual_|others_|usual_step_|step_)?seconds)": "a cause has its share "
    "and one text",
    r"/keys/raw\.schema": "a raw result is a summary, and has its schema",
    r"/keys/rounds\.schema/(cpu_seconds|nccl|sparse_tensors)": "nothing read them",
    r"/keys/\w+\.schema/compiler": "the same",
    r"/commands/hvdperf vet/--data-dir": "a node reads a temporary file, which TMPDIR can put "
    "anywhere",
    r"/keys/night\.schema/(again|costs|figures|is_gate|samples_per_second|speeds)": "a night has "
    "summaries, with kind, results and values",
    r"/keys/summary\.schema/(core_share|culprits|disturbance|foreign_share|mhz|pid|steal_share|"
    r"taken_share|throttled_seconds|wait_share)": "session.json has them by round, and the summary "
    "in words",
}


@cache
def frozen() -> dict[str, Any]:
    return json.loads(lzma.decompress(values.FROZEN.read_bytes()))  # type: ignore[no-any-return]


def differences(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """Yield the places where a frozen value is missing or another one today. Lists of names, such
    as options, may have new ones."""
    if any(re.fullmatch(pattern, path) for pattern in CHANGED):
        return
    if isinstance(before, dict) and isinstance(now, dict):
        for name, value in before.items():
            at = f"{path}/{name}"
            today = NAMES.get(name, name)
            if today in now:
                yield from differences(value, now[today], at)
            elif not any(re.fullmatch(pattern, at) for pattern in CHANGED):
                yield f"{at} is gone"
    elif path.startswith(("/commands", "/keys")):
        gone = {f"{path}/{each}" for each in before if NAMES.get(each, each) not in now}
        for each in sorted(gone):
            if not any(re.fullmatch(pattern, each) for pattern in CHANGED):
                yield f"{each} is gone"
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, pair in enumerate(zip(before, now, strict=True)):
            yield from differences(*pair, f"{path}/{index}")
    elif not _are_equal(before, now):
        yield f"{path} was {before!r} and is {now!r}"


def _are_equal(before: Any, now: Any) -> bool:
    if isinstance(before, float) and isinstance(now, int | float):
        both_nan = math.isnan(before) and math.isnan(now)
        # Since Python 3.12, `sum` rounds differently.
        return both_nan or math.isclose(before, now, rel_tol=1e-9, abs_tol=1e-12)
    return (NAMES.get(before, before) if isinstance(before, str) else before) == now  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "part",
    [pytest.param(name, marks=[pytest.mark.long] * (name == "years")) for name in values.PARTS],
)
def test_values_are_those_that_were_frozen(part):
    today = json.loads(json.dumps(values.PARTS[part]()))
    assert list(differences(frozen()[part], today, f"/{part}")) == []
