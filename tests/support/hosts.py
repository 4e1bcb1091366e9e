"""Several hosts on this machine: a network, UTS, IPC and mount namespace each.

mpirun reaches another host by a stand-in for ssh, which enters its namespaces.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.small_hosts import (
    UNSHARE,
    entering,
    first_process,
    network_of,
    processes_in,
    run,
)
from tests.support.whole_sessions import ROOT

PROGRAMS = ("ip", "mount", "nsenter", "unshare")
NODES = {"node1": "10.77.0.1", "node2": "10.77.0.2"}
# A host's first process, which keeps its namespaces, says when its names are set.
FIRST = "hostname {node} && mount --bind {names} /etc/hosts && echo ready && exec sleep 3600"
# Open MPI calls it with the host's name and the words of a shell command.
REMOTE_SHELL = """\
#!/bin/sh
first=$(cat "$(dirname "$0")/$1.pid")
shift
exec nsenter -t "$first" -n -u -m -i env -i PATH=/usr/sbin:/usr/bin:/bin sh -c "$*"
"""


@dataclass(frozen=True)
class Hosts:
    """Two hosts, node1 and node2, joined by a cable. first: the id of each host's first process, by
    name. remote_shell: the stand-in for ssh."""

    first: Mapping[str, int]
    remote_shell: Path

    def start(
        self, node: str, command: Sequence[str], env: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        """Start a command on a host in the checkout, with its output in one pipe."""
        return subprocess.Popen(
            [*entering(self.first[node]), f"--wd={ROOT}", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=env,
        )

    def cut(self) -> None:
        """Have all packets between the hosts vanish silently: no host takes a frame with this
        address."""
        for other in NODES:
            self._neighbour(other, "replace", "lladdr 02:00:00:00:00:01 nud permanent")

    def heal(self) -> None:
        """Undo `cut`."""
        for other in NODES:
            self._neighbour(other, "del", "")

    def _neighbour(self, other: str, act: str, how: str) -> None:
        (here,) = NODES.keys() - {other}
        command = f"ip neigh {act} {NODES[other]} {how} dev eth0"
        run([*entering(self.first[here]), *command.split()])

    def replace(self, node: str, path: Path, by: Path) -> None:
        """Have a file or directory appear as another one on a host."""
        run([*entering(self.first[node]), f"--wd={ROOT}", "mount", "--bind", str(by), str(path)])

    def kill(self, node: str) -> None:
        """Kill every process of a host but its first one."""
        for pid in self._processes({node}):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def wait_for(self, node: str, name: str) -> None:
        """Wait until a process of a host has this name."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for pid in self._processes({node}):
                with suppress(OSError):  # the process has ended
                    if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                        return
            time.sleep(0.05)
        raise TimeoutError(f"there is no {name} on {node}")

    def processes(self) -> list[int]:
        """Return the ids of the hosts' processes but their first ones."""
        return self._processes(set(NODES))

    def _processes(self, nodes: Set[str]) -> list[int]:
        networks = {network_of(self.first[node]) for node in nodes}
        return sorted(processes_in(networks) - set(self.first.values()))


@contextmanager
def two_hosts(directory: Path) -> Iterator[Hosts]:
    """Yield two hosts, and end everything that runs on them at the end. directory: for their files.
    The test is skipped if this machine lacks a program or permits no namespaces."""
    skip_without_hosts()
    names, remote_shell = directory / "hosts", directory / "remote_shell"
    addresses = "".join(f"{address} {node}\n" for node, address in NODES.items())
    names.write_text(f"127.0.0.1 localhost\n{addresses}")
    remote_shell.write_text(REMOTE_SHELL)
    remote_shell.chmod(0o755)
    with ExitStack() as end:
        first = {}
        for node in NODES:
            first[node] = end.enter_context(first_process(FIRST.format(node=node, names=names)))
            (directory / f"{node}.pid").write_text(str(first[node]))
        hosts = Hosts(first, remote_shell)
        end.callback(_kill, hosts)
        one, two = first.values()
        run(f"ip link add eth0 netns {one} type veth peer name eth0 netns {two}".split())
        for node, pid in first.items():
            for settings in (
                f"addr add {NODES[node]}/24 dev eth0",
                "link set eth0 up",
                "link set lo up",
            ):
                run([*entering(pid), "ip", *settings.split()])
        yield hosts


def _kill(hosts: Hosts) -> None:
    """Kill all processes of the hosts, those too that they start meanwhile."""
    while found := hosts.processes():
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def skip_without_hosts() -> None:
    """Skip the test if this machine lacks a program or permits no namespaces."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed; as root: bash ci/slurm.sh")
    tried = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no namespaces are permitted: {tried.stderr.strip()}")
