"""The processes on the nodes, from their start to their end: orders go out, answers come in. A node
that fails is left out from then on, with the reason."""

from __future__ import annotations

import itertools
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO, Any

from hvdperf.launch.guard import guarded
from hvdperf.launch.hub import Hub
from hvdperf.launch.slots import addresses
from hvdperf.machine.starting import user_settings
from hvdperf.paths import ROOT
from hvdperf.worker.protocol import Connection, Message

# Seconds that a node has to connect: ssh, a step of Slurm, and the start of Python.
CONNECT_S = 120.0
# Seconds that the processes have to end.
END_S = 5.0

# An order: the name of a method of hvdperf.worker.vet.__main__.Node, and its arguments.
Order = tuple[str, Sequence[Any]]


class Crew:
    """The processes on the nodes (hvdperf.launch.hub.Listener). lost: by the name of a node, why it
    is left out."""

    def __init__(self, nodes: Sequence[str], network: str) -> None:
        """Listen. network: the one between the nodes, such as 10.77.0.0/24; "" if any will do.
        Raises UserError."""
        self.nodes = tuple(nodes)
        self.lost: dict[str, str] = {}
        self._hub = Hub("0.0.0.0")
        self._addresses = addresses(network)
        self._token = self._hub.expect(self).rsplit(":", 1)[1]
        self._numbers = itertools.count()
        self._connections: dict[str, Connection] = {}
        self._answers: dict[int, Message] = {}
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
                "port": self._hub.port,
                "token": self._token,
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
        self._hub.pump_until(self._all_answered_or_ended, self._hub.now() + CONNECT_S)
        for node in self.there:
            if node not in self._connections:
                self._lose(node, f"it did not connect within {CONNECT_S:.0f} s")

    def _all_answered_or_ended(self) -> bool:
        for node in self.there:
            if node not in self._connections and self._processes[node].poll() is not None:
                self._lose(node, "its process ended before it connected")
        return all(node in self._connections for node in self.there)

    def ask(self, orders: Mapping[str, Order], deadline_s: float) -> dict[str, Any]:
        """Give each node its order, all at the same time, and return the answers by node. A node
        whose order fails, or that does not answer in time, is lost."""
        return {
            node: answer["value"]
            for node, answer in self._answers_to(orders, deadline_s).items()
            if not self._is_refused(node, answer)
        }

    def try_to(self, orders: Mapping[str, Order], deadline_s: float) -> dict[str, Any]:
        """Do as `ask`, but a node whose order fails is not lost: its answer is None."""
        found = self._answers_to(orders, deadline_s)
        return {node: answer.get("value") for node, answer in found.items()}

    def _is_refused(self, node: str, answer: Message) -> bool:
        if "error" in answer:
            self._lose(node, str(answer["error"]))
        return "error" in answer

    def _answers_to(self, orders: Mapping[str, Order], deadline_s: float) -> dict[str, Message]:
        numbers = {}
        for node, (name, arguments) in orders.items():
            if node in self.lost:
                continue
            numbers[node] = next(self._numbers)
            order = {"order": name, "number": numbers[node], "arguments": arguments}
            with suppress(OSError):  # `left` is told
                self._connections[node].send(order)

        def all_answered() -> bool:
            return all(n in self._answers or node in self.lost for node, n in numbers.items())

        self._hub.pump_until(all_answered, self._hub.now() + deadline_s)
        found = {}
        for node, number in numbers.items():
            answer = self._answers.pop(number, None)
            if answer is not None:
                found[node] = answer
            elif node not in self.lost:
                what = next(iter(orders[node]))
                self._lose(node, f"no answer to {what!r} within {deadline_s:.0f} s")
        return found

    def address_of(self, node: str) -> str:
        """Return the address at which other nodes reach this one."""
        connected = {name: each.socket for name, each in self._connections.items()}
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

    def _lose(self, node: str, why: str) -> None:
        """Leave a node out. Of a process that has ended before, its last line says why."""
        with suppress(subprocess.TimeoutExpired):
            self._processes[node].wait(0.5)
        errors = self._said[node]
        errors.seek(0)
        lines = errors.read().decode(errors="replace").strip().splitlines()
        ended = self._processes[node].poll()
        told = f": {lines[-1].strip()}" if lines and ended else ""
        self.lost[node] = f"{why}{told}"
        if connection := self._connections.pop(node, None):
            self._hub.drop(connection)

    # As a listener of the hub ----------------------------------------------------------------

    def joined(self, rank: int, connection: Connection, hello: Message) -> None:
        node = self.nodes[rank] if rank in range(len(self.nodes)) else ""
        if not node or node in self._connections or node in self.lost:
            self._hub.drop(connection)
            return
        self._connections[node] = connection

    def received(self, rank: int, message: Message) -> None:
        number = message.get("answers")
        if type(number) is not int or not ("value" in message or "error" in message):
            raise ValueError(f"no node says {json.dumps(message)[:100]}")
        self._answers[number] = message

    def left(self, rank: int, reason: str = "") -> None:
        node = self.nodes[rank]
        if node not in self.lost:
            self._lose(node, reason or "its process has ended")

    def end(self) -> None:
        """Let the processes end; kill the commands that started those that do not."""
        for node in self.there:
            if connection := self._connections.get(node):
                with suppress(OSError):
                    connection.send({"order": "leave"})
        self._hub.close()
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
