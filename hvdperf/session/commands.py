"""The commands that say what there is to measure."""

from __future__ import annotations

import argparse
import subprocess
import sys

from hvdperf.cli import Commands
from hvdperf.paths import ROOT
from hvdperf.plan.fault_cases import TRIALS
from hvdperf.plan.faults import Fault
from hvdperf.plan.profile import PROFILES, load_profile
from models.registry import NETWORKS


def add_to(commands: Commands) -> None:
    """Add list."""
    add = commands.add_parser("list", help="networks, profiles, cases or faults")
    lists = add.add_subparsers(required=True, metavar="WHAT")
    lists.add_parser("networks", help="what --models takes").set_defaults(command=list_networks)
    lists.add_parser("profiles", help="what --profile takes").set_defaults(command=list_profiles)
    lists.add_parser("faults", help="what --plant takes").set_defaults(command=list_faults)
    cases = lists.add_parser("cases", help="what pytest perf/ would measure, by its options")
    cases.add_argument("options", nargs=argparse.REMAINDER, metavar="OPTION", help="of pytest")
    cases.set_defaults(command=list_cases)


def list_networks(_: argparse.Namespace) -> int:
    print(f"{'network':<18} {'input':>5} {'gradients':>9}  task, and what an allreduce gets")
    for network in NETWORKS.values():
        print(
            f"{network.name:<18} {network.input_size:>5} {network.gradient_tensors:>9}  "
            f"{network.task.value}, {network.traffic.value}"
        )
    return 0


def list_profiles(_: argparse.Namespace) -> int:
    print(f"{'profile':<10} {'budget':>7} {'looks':<10} networks")
    for path in sorted(PROFILES.glob("*.toml")):
        profile = load_profile(path)
        looks = ", ".join(map(str, profile.sampling.looks))
        minutes = f"{profile.budget_s / 60:.0f} min"
        print(f"{profile.name:<10} {minutes:>7} {looks:<10} {', '.join(profile.models)}")
    return 0


def list_faults(_: argparse.Namespace) -> int:
    print("--plant KIND:KEY=VALUE,...; every kind also takes model= and world_size=")
    for kind, keys in Fault.KINDS.items():
        print(f"  {kind:<8} {', '.join(f'{key}=' for key in keys)}".rstrip())
    print("cases of perf/test_trust.py")
    for name, trial in TRIALS.items():
        print(f"  {name:<8} {trial.fault or 'nothing'}: {trial.verdict.value}")
    return 0


def list_cases(arguments: argparse.Namespace) -> int:
    """Returns pytest's status."""
    command = [sys.executable, "-m", "pytest", "perf", "--collect-only", "-q"]
    return subprocess.run([*command, *arguments.options], cwd=ROOT, check=False).returncode
