"""The ranks of the outer mpirun or srun: rank 0 is the pytest session, the others lend their slots.

A slot connects to rank 0 over TCP and starts processes on its host when rank 0 tells it to. MPI is
not used, because its ranks poll while they wait, and none can leave without all others.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hvdperf.errors import UserError
from hvdperf.launch import outer
from hvdperf.launch.hub import Hub, Peers, silent
from hvdperf.launch.outer import launcher, outer_rank, outer_size
from hvdperf.launch.processes import LocalAgent, SlotGone, Variables
from hvdperf.machine.host import local_machine
from hvdperf.machine.placement import Offer
from hvdperf.paths import CACHE
from hvdperf.worker import process
from hvdperf.worker.protocol import Connection, Message, connection_to

if TYPE_CHECKING:
    from hvdperf.machine.stack import Stack

# Seconds that a slot has to answer, and to leave.
ANSWER_S = 30.0
LEAVE_S = 10.0
# Seconds that a slot has to import TensorFlow and Horovod once.
PROBE_S = 150.0
# Seconds between two looks at processes that run.
LOOK_S = 0.2
# Seconds after which a wait is reported, and slots that are named.
SOON_S = 5.0
MOST_NAMED = 4


def dismiss_slots(exit_status: int) -> None:
    """Let the slots leave if this session has ended without publishing its address. exit_status: as
    `Slots.release` takes it."""
    if not Slots.published:
        with suppress(UserError):  # mpirun ends them
            Slots().release(exit_status)


class Slots(Peers[int]):
    """Rank 0's view of all ranks; only made if there are two or more.

    published: whether this process has published its address. interface: the one at which other
    hosts have reached this one; None if there is no other host.
    """

    published = False

    def __init__(self, network: str = "") -> None:
        """Publish the addresses of this rank, at which the others connect. network: the one to use
        between hosts, such as 10.77.0.0/24; "" if any will do. Raises UserError."""
        one_host = outer.started_by().on_one_host()
        hub = Hub("127.0.0.1") if one_host else Hub("0.0.0.0")
        super().__init__(hub, {rank: rank for rank in range(1, outer_size())})
        session = {
            "host": socket.gethostname(),
            "addresses": [] if one_host else addresses(network),
            "port": hub.port,
            "token": self.token,
        }
        outer.started_by().publish(json.dumps(session))
        Slots.published = True
        self._hosts: dict[int, str] = {}
        self.interface: Interface | None = None
        self._exits: dict[tuple[int, str], int] = {}

    def offers(self, tell: Callable[[str], None] = lambda text: None) -> list[Offer]:
        """Return the offer of every rank, by rank. Raises UserError if a slot does not answer, or
        if a rank cannot determine its offer; the message names the slot. tell: called with what is
        waited for, if that takes long."""
        # Imported only here and below, because slots start faster without it.
        from hvdperf.json_records import convert

        # A slot gives up after as many seconds, so no slot finds this rank gone.
        deadline = self.hub.now() + outer.JOIN_S
        if not self.hub.pump_until(self._all_joined, self.hub.now() + SOON_S):
            tell(f"wait for {self._missing()} to connect, {outer.JOIN_S:.0f} s at most")
            self.hub.pump_until(self._all_joined, deadline)
        outer.started_by().withdraw()
        if not self._all_joined():
            waited = f"{self._missing()} did not connect within {outer.JOIN_S:.0f} s"
            raise UserError(f"{waited}: {outer.who_is_missing()}")
        try:
            answers = self.answers_to(dict.fromkeys(self.keys, ("offer", ())), ANSWER_S)
            fields = ({**self._value(rank, answers), "rank": rank} for rank in self.keys)
            return [own_offer(), *(convert(each, Offer) for each in fields)]
        except SlotGone as gone:
            raise UserError(f"{gone}; start the session again without that slot") from None
        except OSError as error:
            raise UserError(str(error)) from None

    def _missing(self) -> str:
        """Return the slots that have not connected, in words."""
        ranks = [each for each in self.keys if each not in {*self.connections, *self.closed}]
        named = ", ".join(map(str, ranks[:MOST_NAMED])) + ", ..." * (len(ranks) > MOST_NAMED)
        return f"{len(ranks)} of {len(self.keys)} slots (rank {named})"

    def stacks(self, interpreter: str) -> dict[str, Stack]:
        """Return the stack of the interpreter on every other host, by host. Raises UserError if
        one has none that works; the message names the host."""
        from hvdperf.json_records import convert
        from hvdperf.machine.stack import Stack

        first = {host: rank for rank, host in sorted(self._hosts.items(), reverse=True)}
        first.pop(socket.gethostname(), None)
        # All hosts are asked before any has to answer, because importing TensorFlow takes long.
        orders = {rank: ("stack", [interpreter]) for rank in first.values()}
        answers, found = self.answers_to(orders, PROBE_S), {}
        for host, rank in sorted(first.items()):
            try:
                found[host] = convert(self._value(rank, answers), Stack)
            except OSError as error:
                raise UserError(f"{host}: {error}") from None
        return found

    def _all_joined(self) -> bool:
        return len(self.connections) + len(self.closed) == len(self.keys)

    def joined(self, rank: int, connection: Connection, hello: Message) -> None:
        super().joined(rank, connection, hello)
        if self.connections.get(rank) is connection:
            self._hosts[rank] = hello["host"]
            if hello["host"] != socket.gethostname():
                self.interface = interface_of(connection.socket.getsockname()[0])

    def received(self, rank: int, message: Message) -> None:
        exited = message.get("exited")
        if isinstance(exited, dict) and all(type(status) is int for status in exited.values()):
            self._exits |= {(rank, launch): status for launch, status in exited.items()}
        else:
            super().received(rank, message)

    def gone(self) -> Mapping[int, SlotGone]:
        """Return the slots that cannot be used any more, by rank."""
        self.hub.pump(0.0)
        return {rank: self._slot_gone(rank) for rank in self.lost}

    def _slot_gone(self, rank: int) -> SlotGone:
        return SlotGone(rank, self._hosts.get(rank, ""), self.lost[rank])

    def call(self, rank: int, method: str, *arguments: Any) -> Any:
        """Have a slot run a method of its agent, and return the method's result. Raises OSError if
        the method fails. Raises SlotGone if the slot does not answer within ANSWER_S, and from then
        on at once."""
        return self._value(rank, self.answers_to({rank: (method, arguments)}, ANSWER_S))

    def _value(self, rank: int, answers: Mapping[int, Message]) -> Any:
        """Return the value of a slot's answer. Raises as `call` does."""
        if rank not in answers:
            raise self._slot_gone(rank)
        if "error" in answers[rank]:
            raise OSError(f"slot of rank {rank}: {answers[rank]['error']}")
        return answers[rank]["value"]

    def status(self, rank: int, launch: str) -> int | None:
        """Return the exit status that the slot has reported for the launch; None before it has."""
        self.hub.pump(0.0)
        return self._exits.get((rank, launch))

    def release(self, exit_status: int) -> None:
        """Let every slot leave. If one is gone or does not leave, end this process with
        exit_status, or with 1 if that is 0: mpirun then ends the slot."""
        # A session that has measured nothing may not have taken notice of its slots yet.
        self.hub.pump_until(self._all_joined, self.hub.now() + LEAVE_S)
        # Slots that never joined must not use up the time in which the others leave.
        deadline = self.hub.now() + LEAVE_S
        outer.started_by().withdraw()
        self.hub.pump(0.0)
        for rank in self.keys:
            self.send(rank, {"order": "leave"})
        lost = {*self.lost}
        self.hub.pump_until(lambda: len(self.closed) == len(self.keys), deadline)
        for rank in {*self.keys} - self.closed:
            self.lose(rank, silent("leave", LEAVE_S))
            lost.add(rank)
        self.hub.close()
        for rank in sorted(lost):
            print(f"ERROR: {self._slot_gone(rank)}", file=sys.stderr, flush=True)
        if lost:
            sys.stdout.flush()
            outer.leave_status(exit_status or 1)
            os._exit(exit_status or 1)


class RemoteAgent:
    """An agent on another rank's host; see hvdperf.launch.processes.Agent."""

    def __init__(self, slots: Slots, rank: int) -> None:
        self._slots = slots
        self._rank = rank

    def start(self, launch: str, environment: Variables, command: Sequence[str]) -> None:
        self._slots.call(self._rank, "start", launch, dict(environment), list(command))

    def status(self, launch: str) -> int | None:
        status = self._slots.status(self._rank, launch)
        gone = self._slots.gone()
        if status is None and self._rank in gone:
            raise gone[self._rank]
        return status

    def signal(self, launch: str, signum: int) -> None:
        self._slots.call(self._rank, "signal", launch, signum)

    def tail(self, launch: str) -> list[str]:
        return list(self._slots.call(self._rank, "tail", launch))

    def end(self, launch: str) -> None:
        self._slots.call(self._rank, "end", launch)


def own_offer() -> Offer:
    """Return the resources that this rank can lend."""
    return Offer.of(outer_rank(), local_machine())


def _own_stack(interpreter: str) -> dict[str, Any]:
    """Return the fields of this host's stack. Raises UserError."""
    from hvdperf.machine.stack import probe

    # Hosts may share the checkout, but not what its cache says of their files.
    return asdict(probe(interpreter, CACHE / socket.gethostname()))


def addresses(network: str) -> list[str]:
    """Return the addresses at which other hosts may reach this one: those in the network, or those
    of all interfaces. Raises UserError if there is none."""
    within = check_network(network)
    every = interfaces()
    found = [str(each.address.ip) for each in every if each.address.ip in within]
    if not found:
        has = ", ".join(f"{each.network} ({each.name})" for each in every) or "no network at all"
        raise UserError(
            f"{socket.gethostname()}, the host of rank 0, has no address in the network "
            f"{within}: it has {has}; name one of these by --network"
        )
    return found


def lend_slot() -> NoReturn:
    """Serve rank 0 instead of running pytest, on a rank above 0; end the process."""
    # mpirun passes Ctrl-C on as SIGTERM. The slot stays until rank 0 has written its results.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    process.take_name(f"hvd-slot-{outer_rank()}")
    try:
        connection = _connect(**json.loads(outer.started_by().look_up()))
    except UserError as error:
        sys.exit(f"ERROR: the slot of rank {outer_rank()}: {error}")
    with tempfile.TemporaryDirectory(prefix="hvdperf-slot-") as scratch:
        interface = interface_of(connection.socket.getsockname()[0])
        agent = LocalAgent(Path(scratch), interface_settings(interface))
        lost = False
        try:
            _serve(agent, connection)
        except OSError:
            lost = True
        agent.end_all()
    if lost and launcher() != os.getpid():
        # Open MPI's daemon would wait for 15 minutes for the host of rank 0.
        os.kill(launcher(), signal.SIGKILL)
    sys.exit(0)


def _connect(host: str, addresses: Sequence[str], port: int, token: str) -> Connection:
    """Return a connection to rank 0 on that host, at the first of its addresses that answers.
    Raises UserError."""
    here = socket.gethostname()
    if host == here:
        addresses = ["127.0.0.1"]
    else:
        # Bridges of containers have the same address on every host.
        own = {str(each.address.ip) for each in interfaces()}
        addresses = [address for address in addresses if address not in own]
    try:
        return connection_to(addresses, port, outer_rank(), token)
    except OSError as error:
        raise UserError(
            f"{here} cannot reach {host}, the host of rank 0, at port {port} ({error}): open that "
            "route in the firewall, or name a network of both by --network"
        ) from None


def _serve(agent: LocalAgent, connection: Connection) -> None:
    """Carry out the orders of rank 0 until it lets this slot leave, or is gone. Raises OSError."""
    reported: set[str] = set()
    while True:
        statuses = agent.statuses()
        news = {k: v for k, v in statuses.items() if v is not None and k not in reported}
        if news:
            reported.update(news)
            connection.send({"exited": news})
        # Kernels before 5.3 have no pidfd, which would tell the end of a process.
        within = LOOK_S if None in statuses.values() else None
        if not select.select([connection.socket], [], [], within)[0]:
            continue
        messages = connection.receive()
        for message in messages or [{"order": "leave"}]:
            if message["order"] == "leave":
                return
            answer = _carry_out(agent, message["order"], message["arguments"])
            connection.send({"answers": message["number"], **answer})


# The orders that rank 0 may give a slot, each with the function that carries it out.
_ORDERS: Mapping[str, Callable[..., Any]] = {
    "offer": lambda agent: asdict(own_offer()),
    "stack": lambda agent, interpreter: _own_stack(interpreter),
    "start": LocalAgent.start,
    "signal": LocalAgent.signal,
    "tail": LocalAgent.tail,
    "end": LocalAgent.end,
}


def _carry_out(agent: LocalAgent, order: str, arguments: Sequence[Any]) -> Message:
    if order not in _ORDERS:
        return {"error": f"a slot does not know the order {order!r}"}
    try:
        return {"value": _ORDERS[order](agent, *arguments)}
    except (OSError, UserError) as error:
        return {"error": str(error)}


_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B


@dataclass(frozen=True)
class Interface:
    """A network interface of this host. address: the address and the prefix length."""

    name: str
    address: IPv4Interface

    @property
    def network(self) -> str:
        """The interface's network, such as 10.77.0.0/24."""
        return str(self.address.network)


def check_network(text: str) -> IPv4Network:
    """Return the network of --network; "" is every network. Raises UserError."""
    try:
        return IPv4Network(text or "0.0.0.0/0", strict=False)
    except ValueError:
        raise UserError(
            f"--network {text}: is not a network of IPv4 addresses such as 10.77.0.0/24"
        ) from None


def interfaces() -> list[Interface]:
    """Return the interfaces of this host that have an IPv4 address, but loopback."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode())
            with suppress(OSError):  # an interface without an address
                address, mask = (
                    socket.inet_ntoa(fcntl.ioctl(probe.fileno(), asked, request)[20:24])
                    for asked in (_SIOCGIFADDR, _SIOCGIFNETMASK)
                )
                found.append(Interface(name, IPv4Interface(f"{address}/{mask}")))
    return [each for each in found if not each.address.is_loopback]


def interface_of(address: str) -> Interface | None:
    """Return the interface of this host that has the address; None for loopback."""
    return next((each for each in interfaces() if str(each.address.ip) == address), None)


def interface_settings(interface: Interface | None) -> dict[str, str]:
    """Return the variables by which Horovod over Gloo and NCCL take this interface."""
    if interface is None:
        return {}
    return {"HOROVOD_GLOO_IFACE": interface.name, "NCCL_SOCKET_IFNAME": interface.name}
