"""A real Slurm cluster of the two hosts of tests.support.hosts."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.hosts import NODES, Hosts, two_hosts

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun")
# Seconds that the cluster has to start, and that a command of Slurm has to end.
UP_S = 30.0
COMMAND_S = 60.0
_POLL_S = 0.1
# No database, no cgroups and no users of its own: everything runs as root, below one directory.
SETTINGS = """\
ClusterName=test
SlurmctldHost=node1({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmctldPidFile={directory}/slurmctld.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdSpoolDir={directory}/%n
SlurmdPidFile={directory}/%n/slurmd.pid
SlurmdLogFile={directory}/%n/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
InactiveLimit=0
# Seconds between SIGTERM and SIGKILL; the default is 30.
KillWait=5
MinJobAge=600
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Cluster:
    """Slurm on node1, which also has the controller, and on node2. environment: of every command.
    daemons: the ids of Slurm's own processes."""

    hosts: Hosts
    environment: Mapping[str, str]
    daemons: frozenset[int]

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a command on node1 in the checkout, with its output in one pipe."""
        return _start(self.hosts, "node1", command, self.environment)

    def run(self, *command: str) -> str:
        """Run a command on node1, and return its output without the last line's end."""
        with self.start(*command) as process:
            output, _ = process.communicate(timeout=COMMAND_S)
        assert process.returncode == 0, output
        return output.strip()

    def processes(self) -> list[int]:
        """Return the ids of the hosts' processes but those of the cluster itself."""
        return [pid for pid in self.hosts.processes() if pid not in self.daemons]


@contextmanager
def slurm_cluster(directory: Path, environment: Mapping[str, str]) -> Iterator[Cluster]:
    """Yield a cluster, each of whose hosts is confined to a core, and end all of its processes at
    the end. directory: for its files. environment: of its commands, and so of its jobs. The test is
    skipped if Slurm is not installed, or if this machine permits no namespaces."""
    path = f"{environment['PATH']}:/usr/sbin:/sbin"
    missing = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed; as root: bash ci/slurm.sh")
    environment = {**environment, "PATH": path, "SLURM_CONF": str(directory / "slurm.conf")}
    _configure(directory)
    # The hosts' processes are killed before they are waited for.
    with ExitStack() as waiting, two_hosts(directory) as hosts:

        def daemon(node: str, *command: str) -> None:
            log = directory / f"{node}.{command[0]}.out"
            shell = ["sh", "-c", 'exec >"$0" 2>&1 && exec "$@"', str(log), *command]
            waiting.enter_context(_start(hosts, node, shell, environment))

        daemon("node1", *_munged(directory))
        _wait_until((directory / "munge.socket").exists, directory)
        daemon("node1", "slurmctld", "-D")
        for node in NODES:
            daemon(node, "slurmd", "-D", "-N", node)
        sinfo = ["sinfo", "--noheader", "--states=idle", "--format=%D"]
        _wait_until(lambda: _says(hosts, sinfo, environment) == f"{len(NODES)}\n", directory)
        yield Cluster(hosts, environment, frozenset(hosts.processes()))


def _configure(directory: Path) -> None:
    """Write the files that the daemons read, and make the directories that they write to."""
    for name in ("state", *NODES):
        (directory / name).mkdir()
    # With cgroup/v1 the plug-in does nothing at its start; with v2 Slurm 22.05 would end there.
    (directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    nodes = (f"NodeName={node} NodeAddr={at} CPUs=1 State=UNKNOWN" for node, at in NODES.items())
    settings = SETTINGS.format(address=NODES["node1"], directory=directory, nodes="\n".join(nodes))
    (directory / "slurm.conf").write_text(settings)
    key = directory / "munge.key"
    key.touch(mode=0o600)
    key.write_bytes(secrets.token_bytes(1024))


def _munged(directory: Path) -> list[str]:
    """Return the command of a munged that shares nothing with others of this machine."""
    files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log"}
    options = [f"--{name}={directory}/munge.{end}" for name, end in files.items()]
    # The directories of pytest are closed to other users, which munged would refuse.
    return ["munged", "--foreground", "--force", *options, f"--seed-file={directory}/munge.seed"]


def _start(
    hosts: Hosts, node: str, command: Sequence[str], environment: Mapping[str, str]
) -> subprocess.Popen[str]:
    """Start a command on a host, confined to the host's core."""
    cores = sorted(os.sched_getaffinity(0))
    core = cores[list(NODES).index(node) % len(cores)]
    return hosts.start(node, ["taskset", "--cpu-list", str(core), *command], environment)


def _says(hosts: Hosts, command: Sequence[str], environment: Mapping[str, str]) -> str:
    with _start(hosts, "node1", command, environment) as process:
        return process.communicate(timeout=COMMAND_S)[0]


def _wait_until(condition: Callable[[], bool], directory: Path) -> None:
    deadline = time.monotonic() + UP_S
    while not condition():
        if time.monotonic() > deadline:
            logs = sorted(directory.rglob("*.out")) + sorted(directory.rglob("*.log"))
            said = "\n".join(f"{log.name}:\n{log.read_text()[-2000:]}" for log in logs)
            raise RuntimeError(f"Slurm does not start within {UP_S:.0f} s\n{said}")
        time.sleep(_POLL_S)
