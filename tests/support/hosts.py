"""Several hosts on this machine: a network, UTS, IPC and mount namespace each.

mpirun reaches another host by a stand-in for ssh, which enters its namespaces. Everything is gone
when the hosts' first processes have ended.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

NEEDED = ("ip", "nsenter", "unshare")
ROOT = Path(__file__).resolve().parents[2]
# Open MPI calls it with the host's name and the words of a shell command.
REMOTE_SHELL = """\
#!/bin/sh
first=$(cat "$(dirname "$0")/$1.pid")
shift
exec nsenter -t "$first" -n -u -m -i env -i PATH=/usr/sbin:/usr/bin:/bin sh -c "$*"
"""


def missing() -> str:
    """Return why this machine cannot have several hosts; return "" if it can."""
    without = [program for program in NEEDED if shutil.which(program) is None]
    if without:
        return f"{', '.join(without)} is missing: apt-get install iproute2 util-linux"
    if os.geteuid() != 0:
        return "namespaces of other hosts need root"
    done = subprocess.run(["unshare", "-n", "-u", "-m", "-i", "true"], capture_output=True)
    return "" if done.returncode == 0 else f"no namespaces: {done.stderr.decode().strip()}"


class Hosts:
    """Two hosts, node1 and node2, joined by a cable."""

    def __init__(self, directory: Path) -> None:
        """directory: for files of the hosts. Raises CalledProcessError."""
        self._pids: dict[str, int] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        names = directory / "hosts"
        names.write_text("127.0.0.1 localhost\n10.77.0.1 node1\n10.77.0.2 node2\n")
        for node in ("node1", "node2"):
            first = f"hostname {node} && mount --bind {names} /etc/hosts && exec sleep 3600"
            command = ["unshare", "-n", "-u", "-m", "-i", "sh", "-c", first]
            process = subprocess.Popen(command, start_new_session=True)
            self._processes.append(process)
            self._pids[node] = process.pid
            (directory / f"{node}.pid").write_text(str(process.pid))
            self._wait_for(process.pid)
        one, two = self._pids.values()
        cable = f"ip link add eth0 netns {one} type veth peer name eth0 netns {two}"
        subprocess.run(cable.split(), check=True)
        for number, node in enumerate(self._pids, 1):
            for settings in (f"addr add 10.77.0.{number}/24 dev eth0", "link set lo up"):
                self.run(node, ["ip", *settings.split()])
            self.run(node, ["ip", "link", "set", "eth0", "up"])
        self.remote_shell = directory / "remote_shell"
        self.remote_shell.write_text(REMOTE_SHELL)
        self.remote_shell.chmod(0o755)

    def _wait_for(self, pid: int) -> None:
        """Wait until the host's own name and names of hosts are set."""
        deadline = time.monotonic() + 10
        while (Path(f"/proc/{pid}/comm").read_text() != "sleep\n") and time.monotonic() < deadline:
            time.sleep(0.02)

    def _enter(self, node: str) -> list[str]:
        return ["nsenter", "-t", str(self._pids[node]), "-n", "-u", "-m", "-i", f"--wd={ROOT}"]

    def run(self, node: str, command: Sequence[str]) -> None:
        """Run a command on a host. Raises CalledProcessError if it fails."""
        subprocess.run([*self._enter(node), *command], check=True)

    def start(self, node: str, command: Sequence[str], **options: object) -> subprocess.Popen[str]:
        """Start a command on a host, with its output in one pipe."""
        process: subprocess.Popen[str] = subprocess.Popen(
            [*self._enter(node), *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            **options,  # type: ignore[call-overload]
        )
        return process

    def processes(self, node: str) -> list[int]:
        """Return the ids of the host's processes but its first one."""
        own = os.readlink(f"/proc/{self._pids[node]}/ns/net")
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdecimal() and os.readlink(entry / "ns/net") == own:
                    found.append(int(entry.name))
        return [pid for pid in found if pid != self._pids[node]]

    def cut(self, node: str) -> None:
        """Cut the cable without a word to either end's programs."""
        self.run(node, ["ip", "link", "set", "eth0", "down"])

    def close(self) -> None:
        """End everything that runs on the hosts."""
        for node in self._pids:
            for pid in self.processes(node):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.kill()
            process.wait()


@contextmanager
def two_hosts(directory: Path) -> Iterator[Hosts]:
    hosts = Hosts(directory)
    try:
        yield hosts
    finally:
        hosts.close()
