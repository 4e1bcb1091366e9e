"""Hosts on this machine, for tests of several: a network, UTS, IPC and mount namespace each, joined
by a bridge in a namespace of its own. It needs root.

A stand-in for ssh enters the namespaces of a host.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from hvdperf.paths import ROOT

PROGRAMS = ("ip", "mount", "nsenter", "unshare")
UNSHARE = ("unshare", "-n", "-u", "-m", "-i")
# The two hosts of a session.
NODES = {"node1": "10.77.0.1", "node2": "10.77.0.2"}
# The host from which those of `small_hosts` are reached.
LOGIN = "login"
# A host's first process, which keeps its namespaces, says when its names are set.
_FIRST = "hostname {node} && mount --bind {names} /etc/hosts && echo ready && exec sleep infinity"
# Open MPI and `hvdperf vet` call it with options, the name of a host and a shell command.
_SSH = """\
#!/bin/sh
while :; do
    case $1 in
        -o) shift 2 ;;
        -*) shift ;;
        *) break ;;
    esac
done
if [ ! -e "$(dirname "$0")/$1.pid" ]; then
    echo "ssh: Could not resolve hostname $1: Name or service not known" >&2
    exit 255
fi
first=$(cat "$(dirname "$0")/$1.pid")
shift
exec nsenter -t "$first" -n -u -m -i env -i PATH=/usr/sbin:/usr/bin:/bin sh -c "$*"
"""


@dataclass(frozen=True)
class Hosts:
    """Hosts with these addresses, by name. first: the id of the first process of each. directory:
    holds the stand-in for ssh."""

    addresses: Mapping[str, str]
    first: Mapping[str, int]
    directory: Path

    @property
    def nodes(self) -> list[str]:
        return [name for name in self.first if name != LOGIN]

    @property
    def remote_shell(self) -> Path:
        return self.directory / "ssh"

    def environment(self) -> dict[str, str]:
        """Return an environment whose ssh reaches these hosts."""
        return {**os.environ, "PATH": f"{self.directory}:{os.environ['PATH']}"}

    def inside(self, node: str) -> list[str]:
        """Return the words that run a command on a host, in the checkout."""
        return [*_entering(self.first[node]), f"--wd={ROOT}"]

    def start(
        self, node: str, command: Sequence[str], env: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        """Start a command on a host in the checkout, with its output in one pipe."""
        return subprocess.Popen(
            [*self.inside(node), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env=env,
        )

    def cut(self) -> None:
        """Have all packets between two hosts vanish silently: no host takes a frame with this
        address."""
        self._neighbours("replace", "lladdr 02:00:00:00:00:01 nud permanent")

    def heal(self) -> None:
        """Undo `cut`."""
        self._neighbours("del", "")

    def _neighbours(self, act: str, how: str) -> None:
        for here, other in (self.nodes, self.nodes[::-1]):
            command = f"ip neigh {act} {self.addresses[other]} {how} dev eth0"
            _run([*self.inside(here), *command.split()])

    def replace(self, node: str, path: Path, by: Path) -> None:
        """Have a file or directory appear as another one on a host."""
        _run([*self.inside(node), "mount", "--bind", str(by), str(path)])

    def kill(self, *nodes: str) -> None:
        """Kill all processes of some hosts but the first one of each, those too that they start
        meanwhile; of all hosts if none is named."""
        while found := self.processes(*nodes):
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)

    def wait_for(self, node: str, name: str) -> None:
        """Wait until a process of a host has this name."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for pid in self.processes(node):
                with suppress(OSError):  # the process has ended
                    if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                        return
            time.sleep(0.05)
        raise TimeoutError(f"there is no {name} on {node}")

    def processes(self, *nodes: str) -> list[int]:
        """Return the ids of the processes of some hosts but the first one of each; of all hosts if
        none is named."""
        networks = {_network_of(self.first[node]) for node in nodes or self.first}
        return sorted(_processes_in(networks) - set(self.first.values()))


@contextmanager
def two_hosts(directory: Path) -> Iterator[Hosts]:
    """Yield the hosts NODES. directory: for their files."""
    with _joined(directory, NODES) as hosts:
        yield hosts


@contextmanager
def small_hosts(count: int) -> Iterator[Hosts]:
    """Yield so many hosts, node1, node2, ..., and LOGIN."""
    names = [*(f"node{number}" for number in range(1, count + 1)), LOGIN]
    with tempfile.TemporaryDirectory(prefix="hvdperf-hosts-") as directory:
        addresses = {node: f"10.78.0.{number}" for number, node in enumerate(names, 1)}
        with _joined(Path(directory), addresses) as hosts:
            yield hosts


@contextmanager
def _joined(directory: Path, addresses: Mapping[str, str]) -> Iterator[Hosts]:
    """Yield hosts, and end everything that runs on them at the end. The test is skipped if this
    machine lacks a program or permits no namespaces."""
    _skip_without_hosts()
    lines = ["127.0.0.1 localhost", *(f"{at} {node}" for node, at in addresses.items())]
    (directory / "hosts").write_text("\n".join(lines) + "\n")
    first: dict[str, int] = {}
    hosts = Hosts(addresses, first, directory)
    hosts.remote_shell.write_text(_SSH)
    hosts.remote_shell.chmod(0o755)
    with ExitStack() as end:
        switch = end.enter_context(_first_process("echo ready && exec sleep infinity"))
        _run([*_entering(switch), "ip", "link", "add", "br0", "type", "bridge"])
        _run([*_entering(switch), "ip", "link", "set", "br0", "up"])
        for number, (node, address) in enumerate(addresses.items()):
            command = _FIRST.format(node=node, names=directory / "hosts")
            pid = first[node] = end.enter_context(_first_process(command))
            (directory / f"{node}.pid").write_text(str(pid))
            ends = f"eth0 netns {pid} type veth peer name p{number} netns {switch}"
            _run(["ip", "link", "add", *ends.split()])
            _run([*_entering(switch), *f"ip link set p{number} master br0 up".split()])
            for settings in (
                f"addr add {address}/24 dev eth0",
                "link set eth0 up",
                "link set lo up",
            ):
                _run([*_entering(pid), "ip", *settings.split()])
        end.callback(hosts.kill)
        yield hosts


def _skip_without_hosts() -> None:
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed; as root: bash ci/slurm.sh")
    tried = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no namespaces are permitted: {tried.stderr.strip()}")


@contextmanager
def _first_process(command: str) -> Iterator[int]:
    """Yield the id of the first process of new namespaces, which runs this shell command."""
    process = subprocess.Popen(
        [*UNSHARE, "sh", "-c", command], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            # A host with this machine's network would change it, and end this machine's processes.
            assert _network_of(process.pid) != _network_of(os.getpid())
            yield process.pid
        finally:
            process.kill()


def _network_of(pid: int | str) -> str:
    """Return the network namespace of a process. Raises OSError."""
    return os.readlink(f"/proc/{pid}/ns/net")


def _processes_in(networks: Container[str]) -> set[int]:
    """Return the ids of all processes in these network namespaces."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # the process has ended
            if entry.name.isdecimal() and _network_of(entry.name) in networks:
                found.add(int(entry.name))
    return found


def _entering(pid: int) -> list[str]:
    """Return the words before a command in the namespaces of a process."""
    return ["nsenter", "-t", str(pid), "-n", "-u", "-m", "-i"]


def _run(command: Sequence[str]) -> None:
    """Run a command to its end. Raises CalledProcessError."""
    subprocess.run(command, check=True)
