"""The processes on the nodes, from their start to their end: orders go out, answers come in. A node
that fails is left out from then on, with the reason."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Any

from hvdperf.launch.guard import guarded
from hvdperf.launch.hub import Hub, Order, Peers
from hvdperf.launch.slots import addresses
from hvdperf.machine.starting import user_settings
from hvdperf.paths import ROOT

# Seconds that a node has to connect: ssh, a step of Slurm, and the start of Python.
CONNECT_S = 120.0
# Seconds that the processes have to end.
END_S = 5.0


class Crew(Peers[str]):
    """The processes on the nodes, by name. An order is a method of
    hvdperf.worker.vet.Node. lost: by the name of a node, why it is left out."""

    def __init__(self, nodes: Sequence[str], network: str) -> None:
        """Listen. network: the one between the nodes, such as 10.77.0.0/24; "" if any will do.
        Raises UserError."""
        super().__init__(Hub("0.0.0.0"), dict(enumerate(nodes)))
        self.nodes = tuple(nodes)
        self._addresses = addresses(network)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # What the commands print, which says why one has failed.
        self._files = ExitStack()
        self._said: dict[str, IO[bytes]] = {}

    @property
    def there(self) -> list[str]:
        """The nodes that are not lost."""
        return [node for node in self.nodes if node not in self.lost]

    def start(self, command: Callable[[str], list[str]], environment: Mapping[str, str]) -> None:
        """Start a process on every node, and wait until it has connected. command: as
        hvdperf.vet.nodes.starting returns it for a node."""
        for number, node in enumerate(self.nodes):
            plan = {
                "addresses": self._addresses,
                "port": self.hub.port,
                "token": self.token,
                "node": number,
                "settings": user_settings(environment),
            }
            errors = tempfile.TemporaryFile()  # noqa: SIM115 - `end` closes it
            self._said[node] = self._files.enter_context(errors)
            process = self._processes[node] = subprocess.Popen(
                guarded(command(node)),
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                cwd=ROOT,
                env=environment,
                start_new_session=True,
            )
            assert process.stdin is not None
            with suppress(OSError):  # it may have ended already
                process.stdin.write(json.dumps(plan).encode() + b"\n")
                process.stdin.close()
        self.hub.pump_until(self._all_joined_or_ended, self.hub.now() + CONNECT_S)
        for node in self.there:
            if node not in self.connections:
                self.lose(node, f"it did not connect within {CONNECT_S:.0f} s")

    def _all_joined_or_ended(self) -> bool:
        for node in self.there:
            if node not in self.connections and self._processes[node].poll() is not None:
                self.lose(node, "its process ended before it connected")
        return all(node in self.connections for node in self.there)

    def ask(self, orders: Mapping[str, Order], deadline_s: float) -> dict[str, Any]:
        """Give each node its order, all at the same time, and return the answers by node. A node
        whose order fails, or that does not answer in time, is lost."""
        found = self.answers_to(orders, deadline_s)
        for node, answer in found.items():
            if "error" in answer:
                self.lose(node, str(answer["error"]))
        return {node: answer["value"] for node, answer in found.items() if "value" in answer}

    def try_to(self, orders: Mapping[str, Order], deadline_s: float) -> dict[str, Any]:
        """Do as `ask`, but a node whose order fails is not lost: its answer is None."""
        found = self.answers_to(orders, deadline_s)
        return {node: answer.get("value") for node, answer in found.items()}

    def address_of(self, node: str) -> str:
        """Return the address at which other nodes reach this one."""
        connected = {name: each.socket for name, each in self.connections.items()}
        theirs = str(connected[node].getpeername()[0])
        own = {str(each.getsockname()[0]) for each in connected.values()}
        if theirs not in own:
            return theirs
        # This host: the address at which another one has reached it.
        others = (
            str(each.getsockname()[0])
            for each in connected.values()
            if each.getpeername()[0] not in own
        )
        return next(others, theirs)

    def lose(self, key: str, why: str) -> None:
        """Leave a node out. Of a process that has ended before, its last line says why."""
        if key in self.lost:
            return
        with suppress(subprocess.TimeoutExpired):
            self._processes[key].wait(0.5)
        errors = self._said[key]
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
        ended = self._processes[key].poll()
        super().lose(key, f"{why}: {lines[-1].strip()}" if lines and ended else why)
        if connection := self.connections.pop(key, None):
            self.hub.drop(connection)

    def end(self) -> None:
        """Let the processes end; kill the commands that started those that do not."""
        for node in self.there:
            self.send(node, {"order": "leave"})
        self.hub.close()
        for process in self._processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(END_S if process.poll() is None else 0)
                continue
            process.kill()
            process.wait()
        self._files.close()


@contextmanager
def crew_of(
    nodes: Sequence[str],
    network: str,
    command: Callable[[str], list[str]],
    environment: Mapping[str, str],
) -> Iterator[Crew]:
    """Yield the processes on these nodes, which have been started, and end them."""
    crew = Crew(nodes, network)
    try:
        crew.start(command, environment)
        yield crew
    finally:
        crew.end()
