"""The commands that list what can be measured, and that propose thresholds."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from hvdperf.cli import Commands, complain
from hvdperf.columns import Columns
from hvdperf.errors import UserError
from hvdperf.files import write_whole
from hvdperf.paths import ROOT
from hvdperf.plan.faults import TRIALS, Fault
from hvdperf.plan.profile import PROFILES, load_profile
from hvdperf.results.archive import read_session
from hvdperf.results.proposed_thresholds import propose
from models.registry import NETWORKS


def add_to(commands: Commands) -> None:
    """Add the commands list and thresholds."""
    add = commands.add_parser("list", help="list networks, profiles, cases or faults")
    lists = add.add_subparsers(required=True, metavar="WHAT")
    lists.add_parser("networks", help="the names for --models").set_defaults(command=list_networks)
    lists.add_parser("profiles", help="the names for --profile").set_defaults(command=list_profiles)
    lists.add_parser("faults", help="the injected faults for --inject").set_defaults(
        command=list_faults
    )
    cases = lists.add_parser("cases", help="the cases that pytest perf/ would measure")
    for option in ("--profile", "--models", "--np"):
        cases.add_argument(option, help="as for pytest perf/")
    cases.set_defaults(command=list_cases)

    add = commands.add_parser("thresholds", help="propose thresholds for the figures")
    tasks = add.add_subparsers(required=True, metavar="TASK")
    task = tasks.add_parser(
        "propose",
        help="write a file for --thresholds, from sessions of unchanged builds",
        description="Propose thresholds for machines like this one, from the rounds of all "
        "given sessions together. Give four or more sessions of an unchanged build.",
    )
    task.add_argument("sessions", type=Path, nargs="+", metavar="SESSION", help="results/runs/...")
    task.add_argument("--out", type=Path, metavar="FILE", help="a new file; default: stdout")
    task.set_defaults(command=propose_thresholds)


def propose_thresholds(arguments: argparse.Namespace) -> int:
    path: Path | None = arguments.out
    if path is not None and os.path.lexists(path):
        raise UserError(f"--out {path}: already exists; give the name of a new file")
    proposal = propose([read_session(directory) for directory in arguments.sessions])
    for line in proposal.left_out:
        complain(f"left out: {line}")
    if path is None:
        print(proposal.text, end="")
        return 0
    try:
        write_whole(path, proposal.text)
    except OSError as error:
        raise UserError(f"--out {path}: {error.strerror}") from None
    return 0


def list_networks(_: argparse.Namespace) -> int:
    table = Columns(
        ("network", -18), ("input", 5), ("gradients", 9), (" task, and tensors of an allreduce", 0)
    )
    print(table.header)
    for each in NETWORKS.values():
        task = f" {each.task.value}, {each.traffic.value}"
        print(table.row(each.name, each.input_size, each.gradient_tensors, task))
    return 0


def list_profiles(_: argparse.Namespace) -> int:
    table = Columns(("profile", -10), ("budget", 7), ("looks", -10), ("networks", 0))
    print(table.header)
    for path in sorted(PROFILES.glob("*.toml")):
        profile = load_profile(path)
        looks = ", ".join(map(str, profile.sampling.looks))
        minutes = f"{profile.budget_s / 60:.0f} min"
        print(table.row(profile.name, minutes, looks, ", ".join(profile.models)))
    return 0


def list_faults(_: argparse.Namespace) -> int:
    print("--inject KIND:KEY=VALUE,...; every kind also takes model= and world_size=")
    for kind, keys in Fault.KINDS.items():
        print(f"  {kind:<8} {', '.join(f'{key}=' for key in keys)}".rstrip())
    print("cases of perf/test_trust.py")
    for name, trial in TRIALS.items():
        print(f"  {name:<8} {trial.fault or 'no fault'}: {trial.verdict.value}")
    return 0


def list_cases(arguments: argparse.Namespace) -> int:
    """List the cases that pytest collects with these options; return pytest's exit status."""
    given = {name: getattr(arguments, name) for name in ("profile", "models", "np")}
    if given["profile"] is not None and given["profile"].endswith(".toml"):
        given["profile"] = os.path.abspath(given["profile"])  # pytest runs in another directory
    options = [f"--{name}={value}" for name, value in given.items() if value is not None]
    command = [sys.executable, "-m", "pytest", "perf", "--collect-only", "-q", *options]
    return subprocess.run(command, cwd=ROOT, check=False).returncode
