"""Hosts on this machine, for tests of several: a network, UTS, IPC and mount namespace each, joined
by a bridge in a namespace of its own. It needs root.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hvdperf.paths import ROOT

UNSHARE = ("unshare", "-n", "-u", "-m", "-i")
_FIRST = "hostname {node} && mount --bind {names} /etc/hosts && echo ready && exec sleep infinity"
# What `hvdperf vet` calls as ssh, with options, the name of a host and a shell command.
_SSH = """\
#!/bin/sh
while [ "$1" = -o ]; do shift 2; done
if [ ! -e "$(dirname "$0")/$1.pid" ]; then
    echo "ssh: Could not resolve hostname $1: Name or service not known" >&2
    exit 255
fi
first=$(cat "$(dirname "$0")/$1.pid")
shift
exec nsenter -t "$first" -n -u -m -i env -i PATH=/usr/sbin:/usr/bin:/bin sh -c "$*"
"""
# The host from which nodes are reached.
LOGIN = "login"


@dataclass(frozen=True)
class SmallHosts:
    """Hosts node1, node2, ..., and LOGIN. first: the id of the first process of each host, by name.
    directory: holds the stand-in for ssh."""

    first: Mapping[str, int]
    directory: Path

    @property
    def nodes(self) -> list[str]:
        return [name for name in self.first if name != LOGIN]

    def inside(self, node: str) -> list[str]:
        """Return the words that run a command on a host, in the checkout."""
        return [*entering(self.first[node]), f"--wd={ROOT}"]

    def environment(self) -> dict[str, str]:
        """Return an environment whose ssh reaches these hosts."""
        return {**os.environ, "PATH": f"{self.directory}:{os.environ['PATH']}"}

    def kill(self, node: str) -> None:
        """Kill every process of a host but its first one."""
        for pid in self.processes(node):
            with suppress(ProcessLookupError):
                os.kill(pid, 9)

    def processes(self, node: str) -> list[int]:
        """Return the ids of the processes of a host but its first one."""
        return sorted(processes_in({network_of(self.first[node])}) - {self.first[node]})


def network_of(pid: int | str) -> str:
    """Return the network namespace of a process. Raises OSError."""
    return os.readlink(f"/proc/{pid}/ns/net")


def processes_in(networks: Container[str]) -> set[int]:
    """Return the ids of all processes in these network namespaces."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # the process has ended
            if entry.name.isdecimal() and network_of(entry.name) in networks:
                found.add(int(entry.name))
    return found


@contextmanager
def small_hosts(count: int) -> Iterator[SmallHosts]:
    """Yield so many hosts, and end everything that runs on them at the end."""
    with ExitStack() as end:
        directory = Path(end.enter_context(tempfile.TemporaryDirectory(prefix="hvdperf-hosts-")))
        names = [*(f"node{number}" for number in range(1, count + 1)), LOGIN]
        addresses = {node: f"10.78.0.{number}" for number, node in enumerate(names, 1)}
        lines = ["127.0.0.1 localhost", *(f"{at} {node}" for node, at in addresses.items())]
        (directory / "hosts").write_text("\n".join(lines) + "\n")
        (directory / "ssh").write_text(_SSH)
        (directory / "ssh").chmod(0o755)
        switch = end.enter_context(first_process("echo ready && exec sleep infinity"))
        run([*entering(switch), "ip", "link", "add", "br0", "type", "bridge"])
        run([*entering(switch), "ip", "link", "set", "br0", "up"])
        first = {}
        for number, node in enumerate(names, 1):
            command = _FIRST.format(node=node, names=directory / "hosts")
            pid = first[node] = end.enter_context(first_process(command))
            (directory / f"{node}.pid").write_text(str(pid))
            ends = f"eth0 netns {pid} type veth peer name p{number} netns {switch}"
            run(["ip", "link", "add", *ends.split()])
            run([*entering(switch), *f"ip link set p{number} master br0 up".split()])
            address = f"addr add {addresses[node]}/24 dev eth0"
            for settings in (address, "link set eth0 up", "link set lo up"):
                run([*entering(pid), *f"ip {settings}".split()])
        hosts = SmallHosts(first, directory)
        for node in names:
            end.callback(hosts.kill, node)
        yield hosts


@contextmanager
def first_process(command: str) -> Iterator[int]:
    """Yield the id of the first process of new namespaces, which runs this shell command."""
    process = subprocess.Popen(
        [*UNSHARE, "sh", "-c", command],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise OSError("no namespaces are permitted here")
            # A host with this machine's network would change it, and end this machine's processes.
            assert network_of(process.pid) != network_of(os.getpid())
            yield process.pid
        finally:
            process.kill()


def entering(pid: int) -> list[str]:
    """Return the words before a command in the namespaces of a process."""
    return ["nsenter", "-t", str(pid), "-n", "-u", "-m", "-i"]


def run(command: Sequence[str]) -> None:
    """Run a command to its end. Raises CalledProcessError."""
    subprocess.run(command, check=True)
