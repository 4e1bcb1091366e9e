"""The options that the suite adds to pytest, grouped by purpose."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NoReturn

import pytest

from hvdperf.machine.placement import PACKED, PLACEMENTS
from hvdperf.models.inputs import INPUTS
from hvdperf.plan.arms import PRECISIONS
from hvdperf.plan.options import LAUNCHERS, Options, is_a_share
from hvdperf.plan.settings import ALLOW, REFUSED

# The environment variable that gives the default of --data-dir.
DATA_DIR = "HVDPERF_DATA_DIR"
_KINDS = {int: "a whole number", float: "a number"}


class _Group:
    """Adds the options of one purpose, each by its name with what stands for the value."""

    def __init__(self, parser: pytest.Parser, purpose: str) -> None:
        self.add = parser.getgroup(f"hvdperf: {purpose}").addoption

    def flag(self, name: str, help: str) -> None:
        self.add(name, action="store_true", help=help)

    def text(self, name: str, help: str, default: str | None = None) -> None:
        flag, metavar = name.split()
        self.add(flag, default=default, metavar=metavar, type=_filled(flag), help=help)

    def several(self, name: str, help: str, known: tuple[str, ...] | None = None) -> None:
        flag, metavar = name.split()
        kind = _filled(flag) if known is None else _known(flag, known)
        self.add(flag, action="append", default=[], metavar=metavar, type=kind, help=help)

    def number(self, name: str, kind: type[int] | type[float], help: str) -> None:
        flag, metavar = name.split()
        # A destination names its unit, and an option has its unit as metavar.
        unit = {"dest": "budget_minutes"} if flag == "--budget" else {}
        self.add(flag, type=_number(flag, kind), metavar=metavar, help=help, **unit)

    def choice(
        self, name: str, choices: Iterable[str], help: str, default: str | None = None
    ) -> None:
        known = tuple(choices)
        self.add(name, default=default, choices=known, type=_known(name, known), help=help)


def add_options(parser: pytest.Parser) -> None:
    """Add all options of a session. Values that are no number, and unknown choices, end pytest with
    one line."""
    group = _Group(parser, "what to measure")
    group.text(
        "--profile NAME",
        "Take networks, questions and numbers of rounds from this profile, by name (`hvdperf list "
        "profiles`) or as a TOML file. Default: default.",
        Options.profile,
    )
    group.several(
        "--models A,B",
        "Measure these networks (`hvdperf list networks`). The option may be repeated. Default: "
        "those of the profile.",
    )
    group.several(
        "--workloads FILE",
        "Add the networks that this Python file defines, and without --models measure only them. "
        "The option may be repeated. Default: none.",
    )
    group.several(
        "--script TEXT",
        'Measure this training script as it is, such as "train.py --batch 64", in a copy of its '
        "directory, and without --models only such. The option may be repeated. Default: none.",
    )
    group.choice(
        "--dataset",
        INPUTS,
        "Train on this data set; language models read ptb beside one with images. Default: that of "
        "the profile.",
    )
    group.add(
        "--data-dir",
        default=os.environ.get(DATA_DIR, ""),
        metavar="DIR",
        help="Read the data set from this directory, or several data sets from ptb=DIR,"
        f"imagenet=DIR. Default: {DATA_DIR}, or else small samples that the suite writes.",
    )
    group.number(
        "--batch-size N", int, "Train on N samples a replica and step. Default: as the profile."
    )
    group.number(
        "--image-size PX",
        int,
        "Train on images of PX by PX pixels. Default: the size of each network.",
    )
    group.add(
        "--precision",
        action="append",
        default=[],
        metavar="2%|POLICY",
        type=_precision,
        help="Take rounds until the interval of every selected figure reaches at most so far to "
        "either side, such as 2%%; or train all networks with this precision policy of Keras "
        f"({', '.join(PRECISIONS)}). May be given once of each kind. Default: until the verdict; "
        "float32.",
    )
    group = _Group(parser, "where, and on how many replicas")
    group.number(
        "--np N",
        int,
        "Use N slots; under mpirun, the first N of its ranks. Default: all GPUs, or else all "
        "cores; under mpirun, all its ranks.",
    )
    group.flag(
        "--oversubscribe",
        "Allow more slots than GPUs or cores. Default: --np must not exceed their number.",
    )
    group.text(
        "--world-sizes 1,2,4",
        "Measure with these numbers of replicas. Default: those of the profile, or else powers of "
        "two up to the number of slots, and that number.",
    )
    group.choice(
        "--placement",
        PLACEMENTS,
        "Fill one host before the next (packed), or take one slot of each host in turn (spread). "
        "Default: packed.",
        PACKED,
    )
    group.text(
        "--network CIDR",
        "Connect the hosts through this network, such as 10.77.0.0/24. Default: any network that "
        "reaches the host of rank 0.",
    )
    group.choice(
        "--launcher",
        LAUNCHERS,
        "Start ranks with mpirun (Horovod over MPI), or have each slot start its own (agents; "
        "Horovod over Gloo). Default: mpirun.",
        Options.launcher,
    )
    group.text(
        "--stack PYTHON",
        "Measure the TensorFlow and Horovod of this interpreter. Default: those of pytest's own.",
    )
    group.flag(
        "--require-fit",
        "Measure only if `hvdperf doctor` finds this machine ready; otherwise exit with status 9. "
        "Default: measure, and show the problems.",
    )
    group.several(
        f"{ALLOW} NAME",
        "Measure although this variable makes every launch measure something else "
        f"({', '.join(REFUSED)}). The option may be repeated. Default: refuse to.",
        REFUSED,
    )
    group.several(
        "--inject FAULT",
        "Inject this fault, such as slow:rank=1,factor=2, to try the suite (`hvdperf list "
        "faults`). Default: none.",
    )
    group = _Group(parser, "how long")
    group.number(
        "--budget MIN",
        float,
        "Begin no round that would end after MIN minutes, except the first of each workload. "
        "Default: that of the profile.",
    )
    group.flag(
        "--dry-run",
        "List cases, arms, world sizes and budget, and start no ranks. Default: measure.",
    )
    group.text(
        "--resume DIR",
        "Continue the session of this directory, results/runs/..., where it was interrupted or "
        "left cases undecided. Default: begin a new session.",
    )
    group = _Group(parser, "compare and judge")
    group.text(
        "--thresholds FILE",
        "Judge by the thresholds of this file. Default: those in ci/thresholds for machines like "
        "this one.",
    )
    group.text(
        "--against PYTHON",
        "Compare every case with the same case under the TensorFlow and Horovod of this "
        "interpreter (`make stack`). Default: judge by thresholds.",
    )
    group.text(
        "--baseline DIR",
        "Show the figures of this earlier session, results/runs/..., beside those of the new one, "
        "and judge whether throughputs are lower than its. Default: none.",
    )
    group.choice(
        "--inconclusive",
        ("fail", "ok"),
        "Let INCONCLUSIVE cases stop -x and make the exit status 6 (fail), or do neither (ok). "
        "Default: fail.",
        "fail",
    )
    group = _Group(parser, "output")
    group.text(
        "--results DIR",
        "Write documents below DIR/runs and the page below DIR/report. Default: results.",
        Options.results,
    )


def _filled(option: str) -> Callable[[str], str]:
    """Return a function that refuses an empty value, which scripts give by mistake."""

    def filled(text: str) -> str:
        if not text.strip():
            _refuse(f"{option}: is empty; give a value, or leave it out")
        return text

    return filled


def _number(option: str, kind: type[int] | type[float]) -> Callable[[str], float]:
    def number(text: str) -> float:
        try:
            return kind(text)
        except ValueError:
            shown = text if len(text) <= 40 else f"{text[:40]}..."
            _refuse(f"{option} {shown}: is not {_KINDS[kind]}")

    return number


def _precision(text: str) -> str:
    return text if is_a_share(text) else _known("--precision", PRECISIONS)(text)


def _known(option: str, choices: tuple[str, ...]) -> Callable[[str], str]:
    def known(text: str) -> str:
        if text not in choices:
            shown = f"{option} {text}".strip()
            _refuse(f"{shown}: is unknown; known are {', '.join(choices)}")
        return text

    return known


def _refuse(problem: str) -> NoReturn:
    """End pytest with one line. argparse would print several, with its usage."""
    raise pytest.UsageError(problem)
