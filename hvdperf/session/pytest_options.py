"""The options that the suite adds to pytest, grouped by purpose."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from hvdperf import cli
from hvdperf.errors import UserError
from hvdperf.machine.placement import PLACEMENTS
from hvdperf.models.inputs import INPUTS
from hvdperf.plan.arms import PRECISIONS
from hvdperf.plan.options import LAUNCHERS, Options, is_a_share
from hvdperf.plan.settings import REFUSED

# The environment variable that gives the default of --data-dir.
DATA_DIR = "HVDPERF_DATA_DIR"
# Values of options, the usual one first.
_INPUTS, _LAUNCHERS, _INCONCLUSIVE = tuple(INPUTS), tuple(LAUNCHERS), ("fail", "ok")
_KNOWN = {"--allow-setting": REFUSED, "--precision": PRECISIONS}
_POLICIES, _REFUSED = ", ".join(PRECISIONS), ", ".join(REFUSED)


@dataclass(frozen=True)
class SessionOptions:
    """The options of a session.

    what to measure
        --profile NAME: Take networks, questions and numbers of rounds from this profile, by name
            (`hvdperf list profiles`) or as a TOML file. Default: default.
        --models A,B: Measure these networks (`hvdperf list networks`). The option may be repeated.
            Default: those of the profile.
        --workloads FILE: Add the networks that this Python file defines, and without --models
            measure only them. The option may be repeated. Default: none.
        --script TEXT: Measure this training script as it is, such as "train.py --batch 64", in a
            copy of its directory, and without --models only such. The option may be repeated.
            Default: none.
        --dataset {_INPUTS}: Train on this data set; language models read ptb beside one with
            images. Default: that of the profile.
        --data-dir DIR: Read the data set from this directory, or several data sets from
            ptb=DIR,imagenet=DIR. Default: {DATA_DIR}, or else small samples that the suite writes.
        --batch-size N: Train on N samples a replica and step. Default: as the profile.
        --image-size PX: Train on images of PX by PX pixels. Default: the size of each network.
        --precision 2%|POLICY: Take rounds until the interval of every selected figure reaches at
            most so far to either side, such as 2%; or train all networks with this precision policy
            of Keras ({_POLICIES}). May be given once of each kind. Default: until the verdict;
            float32.

    where, and on how many replicas
        --np N: Use N slots; under mpirun, the first N of its ranks. Default: all GPUs, or else all
            cores; under mpirun, all its ranks.
        --oversubscribe: Allow more slots than GPUs or cores. Default: --np must not exceed their
            number.
        --world-sizes 1,2,4: Measure with these numbers of replicas. Default: those of the profile,
            or else powers of two up to the number of slots, and that number.
        --placement {PLACEMENTS}: Fill one host before the next (packed), or take one slot of each
            host in turn (spread). Default: packed.
        --network CIDR: Connect the hosts through this network, such as 10.77.0.0/24. Default: any
            network that reaches the host of rank 0.
        --launcher {_LAUNCHERS}: Start ranks with mpirun (Horovod over MPI), or have each slot start
            its own (agents; Horovod over Gloo). Default: mpirun.
        --stack PYTHON: Measure the TensorFlow and Horovod of this interpreter. Default: those of
            pytest's own.
        --require-fit: Measure only if `hvdperf doctor` finds this machine ready; otherwise exit
            with status 9. Default: measure, and show the problems.
        --allow-setting NAME: Measure although this variable makes every launch measure something
            else ({_REFUSED}). The option may be repeated. Default: refuse to.
        --inject FAULT: Inject this fault, such as slow:rank=1,factor=2, to try the suite (`hvdperf
            list faults`). Default: none.

    how long
        --budget MIN: Begin no round that would end after MIN minutes, except the first of each
            workload. Default: that of the profile.
        --dry-run: List cases, arms, world sizes and budget, and start no ranks. Default: measure.
        --resume DIR: Continue the session of this directory, results/runs/..., where it was
            interrupted or left cases undecided. Default: begin a new session.

    compare and judge
        --thresholds FILE: Judge by the thresholds of this file. Default: those in ci/thresholds for
            machines like this one.
        --against PYTHON: Compare every case with the same case under the TensorFlow and Horovod of
            this interpreter (`make stack`). Default: judge by thresholds.
        --baseline DIR: Show the figures of this earlier session, results/runs/..., beside those of
            the new one, and judge whether throughputs are lower than its. Default: none.
        --inconclusive {_INCONCLUSIVE}: Let INCONCLUSIVE cases stop -x and make the exit status 6
            (fail), or do neither (ok). Default: fail.

    output
        --results DIR: Write documents below DIR/runs and the page below DIR/report. Default:
            results.
    """

    profile: str = Options.profile
    models: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    script: tuple[str, ...] = ()
    dataset: str | None = None
    data_dir: str = os.environ.get(DATA_DIR, "")
    batch_size: int | None = None
    image_size: int | None = None
    precision: tuple[str, ...] = ()
    np: int | None = None
    oversubscribe: bool = False
    world_sizes: str | None = None
    placement: str = PLACEMENTS[0]
    network: str | None = None
    launcher: str = Options.launcher
    stack: str | None = None
    require_fit: bool = False
    allow_setting: tuple[str, ...] = ()
    inject: tuple[str, ...] = ()
    budget_minutes: float | None = None
    dry_run: bool = False
    resume: str | None = None
    thresholds: str | None = None
    against: str | None = None
    baseline: str | None = None
    inconclusive: str = _INCONCLUSIVE[0]
    results: str = Options.results


def add_options(parser: pytest.Parser) -> None:
    """Add all options of a session. A value that is empty, no number or an unknown choice ends
    pytest with one line, where argparse would print several, with its usage."""
    for heading, flag, added in cli.options_of(SessionOptions):
        if "type" in added:
            added["type"] = partial(_read, flag, added["type"])
        parser.getgroup(f"hvdperf: {heading}").addoption(flag, **added)


def _read(flag: str, read: Callable[[str], Any], text: str) -> Any:
    is_share = flag == "--precision" and is_a_share(text)
    try:
        if flag in _KNOWN and not is_share:
            return cli.read(flag, str, _KNOWN[flag], text)
        value = read(text)
        # Scripts give an empty value by mistake; an empty directory is that of the samples.
        if not text.strip() and flag != "--data-dir":
            raise UserError(f"{flag}: is empty; give a value, or leave it out")
        return value
    except UserError as error:
        raise pytest.UsageError(str(error)) from None
