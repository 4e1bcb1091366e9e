"""The nodes to look at, and the command that starts a process on each of them."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import sys
from collections import Counter
from collections.abc import Mapping

from hvdperf.errors import UserError
from hvdperf.launch.outer import outer_size, started_by
from hvdperf.paths import ROOT
from hvdperf.programs import run

_NODELIST = "SLURM_JOB_NODELIST"
# Of srun: these would confine a step to a part of the node's cores.
_CONFINING = ("SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_EXACT", "SLURM_CPU_BIND")
_SRUN = ("--nodes=1", "--ntasks=1", "--mpi=none", "--cpu-bind=none", "--quiet")
# Variables of an allocation with GPUs.
_OF_GPUS = ("SLURM_GPUS", "SLURM_JOB_GPUS")
_SSH = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
_ASK_SCONTROL_S = 20.0


def find_nodes(hosts: str | None, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the names of the nodes: of --hosts, or of the allocation of Slurm. Raises UserError if
    there are not two or more, or one of them twice."""
    if outer_size() > 1:
        name = started_by().name
        raise UserError(
            f"{name} has started {outer_size()} of this command: start it once, without {name}; "
            "it starts a process on each node itself"
        )
    if hosts is None and not environment.get(_NODELIST):
        raise UserError(
            "which nodes? In a shell of salloc, or a script of sbatch, they are those of the "
            "allocation; else name them by --hosts a,b,c"
        )
    where = f"--hosts {hosts}" if hosts is not None else "the allocation"
    names = _listed(environment[_NODELIST]) if hosts is None else hosts.split(",")
    names = [name.strip() for name in names if name.strip()]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UserError(f"{where}: names {twice[0]} twice")
    bad = [name for name in names if name.startswith("-") or len(name.split()) != 1]
    if bad:
        raise UserError(f"{where}: {bad[0]!r} is no name of a host")
    if len(names) < 2:
        one = f"{names[0]} alone" if names else "no node"
        raise UserError(f"{where}: {one}; nodes are compared with each other, so give two or more")
    return tuple(names)


def _listed(nodelist: str) -> list[str]:
    done = run(["scontrol", "show", "hostnames", nodelist], within_s=_ASK_SCONTROL_S)
    if done.status != 0:
        raise UserError(f"scontrol cannot say which nodes {nodelist} are: {done.why}")
    return done.output.split()


def starting(node: str, by_slurm: bool) -> list[str]:
    """Return the command that starts the process of a node, which reads its plan from its standard
    input. by_slurm: by srun, in the allocation; else by ssh, but on this host. Raises UserError if
    there is no ssh."""
    here = [sys.executable, "-m", "hvdperf.worker.vet"]
    if by_slurm:
        has_gpus = any(name.startswith(_OF_GPUS) for name in os.environ)
        gpus = ["--gpu-bind=none"] if has_gpus else []
        return ["srun", f"--nodelist={node}", *_SRUN, *gpus, f"--chdir={ROOT}", *here]
    if node in (socket.gethostname(), "localhost"):
        return here
    if shutil.which("ssh") is None:
        raise UserError(f"there is no ssh here, by which {node} is reached; install it")
    return ["ssh", *_SSH, node, f"cd {shlex.quote(str(ROOT))} && exec {shlex.join(here)}"]


def environment_of_starting(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of these commands: a step of srun gets all of its node, even beside
    another step."""
    kept = {name: value for name, value in environment.items() if name not in _CONFINING}
    return {**kept, "SLURM_OVERLAP": "1"}


def draining(node: str, reason: str) -> str:
    """Return the command that takes a node out of service in Slurm."""
    told = shlex.quote(f"hvdperf vet: {reason}")
    return f"scontrol update NodeName={node} State=DRAIN Reason={told}"
