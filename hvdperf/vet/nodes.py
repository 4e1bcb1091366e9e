"""The nodes to look at, and the processes on them, from their start to their end: orders go out,
answers come in. In a round all nodes work at the same time, term by term, so that what disturbs all
of them slows all alike; then they exchange bytes in pairs, each round with other partners."""

from __future__ import annotations

import json
import os
import random
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import IO, Any

from hvdperf.errors import UserError
from hvdperf.launch.helpers import guarded
from hvdperf.launch.hub import Hub, Order, Peers
from hvdperf.launch.outer import outer_size, started_by
from hvdperf.launch.slots import addresses
from hvdperf.machine.starting import user_settings
from hvdperf.paths import ROOT
from hvdperf.programs import run
from hvdperf.vet import judge
from hvdperf.worker.vet import CONNECT_S, DRAIN_S, KEY

_NODELIST = "SLURM_JOB_NODELIST"
# Of srun: these would confine a step to a part of the node's cores.
_CONFINING = ("SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_EXACT", "SLURM_CPU_BIND")
_SRUN = ("--nodes=1", "--ntasks=1", "--mpi=none", "--cpu-bind=none", "--quiet")
# Variables of an allocation with GPUs.
_OF_GPUS = ("SLURM_GPUS", "SLURM_JOB_GPUS")
_SSH = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
_ASK_SCONTROL_S = 20.0
# Seconds that a node has to start its process and to connect, by ssh or as a step of Slurm; to
# import TensorFlow, build and train; to answer beyond its work; and to end.
START_S, PREPARE_S, ANSWER_S, END_S = 120.0, 300.0, 60.0, 5.0
# Seconds of a term in a round. A quota of cores is shared out every 0.1 s.
SECONDS = 3.0
# Rounds before the first that counts, and after which progress is reported.
_WARM_UP, _TOLD = 1, 5


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
    if hosts is None:
        nodelist = environment[_NODELIST]
        done = run(["scontrol", "show", "hostnames", nodelist], within_s=_ASK_SCONTROL_S)
        if done.status != 0:
            raise UserError(f"scontrol cannot say which nodes {nodelist} are: {done.why}")
    names = done.output.split() if hosts is None else hosts.split(",")
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


def starting(node: str, by_slurm: bool) -> list[str]:
    """Return the command that starts the process of a node, which reads its plan from its standard
    input. by_slurm: by srun, in the allocation; else by ssh, but on this host. Raises UserError if
    there is no ssh."""
    here = [sys.executable, "-m", "hvdperf.worker.vet"]
    if by_slurm:
        gpus = ["--gpu-bind=none"] * any(name.startswith(_OF_GPUS) for name in os.environ)
        return ["srun", f"--nodelist={node}", *_SRUN, *gpus, f"--chdir={ROOT}", *here]
    if node in (socket.gethostname(), "localhost"):
        return here
    if shutil.which("ssh") is None:
        raise UserError(f"there is no ssh here, by which {node} is reached; install it")
    return ["ssh", *_SSH, node, f"cd {shlex.quote(str(ROOT))} && exec {shlex.join(here)}"]


class Crew(Peers[str]):
    """The processes on the nodes, by name, within its context. An order is a method of
    hvdperf.worker.vet.Node. A node that fails is left out from then on; lost has the
    reason, by the name of the node."""

    def __init__(self, nodes: Sequence[str], network: str, by_slurm: bool) -> None:
        """Listen. network: the one between the nodes, such as 10.77.0.0/24; "" if any will do.
        by_slurm: as `starting` takes it. Raises UserError."""
        self._commands = {node: starting(node, by_slurm) for node in nodes}
        self._addresses = addresses(network)
        super().__init__(Hub("0.0.0.0"), dict(enumerate(nodes)))
        self.nodes = tuple(nodes)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # What the commands print, which says why one has failed.
        self._files = ExitStack()
        self._said: dict[str, IO[bytes]] = {}

    @property
    def there(self) -> list[str]:
        """The nodes that are not lost."""
        return [node for node in self.nodes if node not in self.lost]

    def __enter__(self) -> Crew:
        """Start a process on every node, and wait until it has connected."""
        try:
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self._end()

    def _start(self) -> None:
        # A step of srun gets all of its node, even beside another step.
        kept = {name: value for name, value in os.environ.items() if name not in _CONFINING}
        environment = {**kept, "SLURM_OVERLAP": "1"}
        for number, node in self.keys.items():
            plan = {
                "addresses": self._addresses,
                "port": self.hub.port,
                "token": self.token,
                "node": number,
                # ssh hands on no variable that says where temporary files are.
                "settings": {**user_settings(environment), "TMPDIR": tempfile.gettempdir()},
            }
            errors = tempfile.TemporaryFile()  # noqa: SIM115 - `_end` closes it
            self._said[node] = self._files.enter_context(errors)
            process = self._processes[node] = subprocess.Popen(
                guarded(self._commands[node]),
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
        self.hub.pump_until(self._all_joined_or_ended, self.hub.now() + START_S)
        for node in self.there:
            if node not in self.connections:
                self.lose(node, f"it did not connect within {START_S:.0f} s")

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

    def exchange(
        self, ports: Mapping[str, int], pairs: Sequence[tuple[str, str]], seconds: float
    ) -> list[judge.Pair]:
        """Have all pairs exchange bytes at the same time. A node that fails to is not lost."""
        pairs = [pair for pair in pairs if set(self.there).issuperset(pair)]
        orders: dict[str, Order] = {}
        for one, other in pairs:
            key = secrets.token_hex(KEY // 2)
            orders[one] = (judge.LINK, [seconds, key, [self._address_of(other), ports[other]]])
            orders[other] = (judge.LINK, [seconds, key, []])
        answers = self.answers_to(orders, seconds + CONNECT_S + DRAIN_S + ANSWER_S)
        return [
            judge.Pair(pair, min(float(answers[node].get("value") or 0.0) for node in pair))
            for pair in pairs
            if answers.keys() >= set(pair)
        ]

    def _address_of(self, node: str) -> str:
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

    def _end(self) -> None:
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


def schedule(nodes: Sequence[str], rounds: int, seed: int) -> Iterator[list[tuple[str, str]]]:
    """Yield the pairs of each round. Every node has one partner, another one in each round until it
    has met all; of an odd number, one node has none (the circle method). Nodes that are too few to
    be judged by their links have no partners. seed: of the order."""
    places: list[str] = list(nodes) if len(nodes) >= judge.FEWEST_LINKED else []
    random.Random(seed).shuffle(places)
    if len(places) % 2:
        places.append("")
    half = len(places) // 2
    for _ in range(rounds):
        pairs = zip(places[:half], reversed(places[half:]), strict=True)
        yield [(one, other) for one, other in pairs if one and other]
        places[1:] = [*places[-1:], *places[1:-1]]


def measure(
    crew: Crew,
    rounds: int,
    seconds: float = SECONDS,
    say: Callable[[str], None] = lambda text: None,
) -> judge.Measured:
    """Measure the nodes in so many rounds. seconds: of a term in a round. say: is called with
    progress."""
    began = time.monotonic()
    facts = crew.ask({node: ("prepare", []) for node in crew.there}, PREPARE_S)
    kinds = {node: str(each["kind"]) for node, each in facts.items()}
    ports = {node: int(each["port"]) for node, each in facts.items()}
    digests: dict[str, list[dict[str, str]]] = {node: [] for node in crew.there}

    def compare() -> None:
        for node, digest in crew.ask(dict.fromkeys(crew.there, ("digests", [])), PREPARE_S).items():
            digests[node].append(digest)

    compare()
    alike: dict[str, list[str]] = {}
    for node, kind in kinds.items():
        alike.setdefault(kind, []).append(node)
    seed = secrets.randbits(32)
    schedules = [schedule(members, _WARM_UP + rounds, seed) for members in alike.values()]
    found = []
    for number, pairs in enumerate(zip(*schedules, strict=True), 1 - _WARM_UP):
        if len(crew.there) < 2:
            break
        taken = judge.Round({}, {}, [])
        for term in judge.TERMS:
            able = [node for node in crew.there if term in facts[node]["terms"]]
            orders = dict.fromkeys(able, ("rates", [term, seconds]))
            if answers := crew.ask(orders, seconds + ANSWER_S):
                slowest = {node: min(each, key=each.__getitem__) for node, each in answers.items()}
                taken.slowest[term] = slowest
                taken.rates[term] = {node: answers[node][slowest[node]] for node in slowest}
        taken.pairs.extend(crew.exchange(ports, [pair for part in pairs for pair in part], seconds))
        if number >= 1:
            found.append(taken)
            if number % _TOLD == 0 and number < rounds:
                say(f"round {number} of {rounds}, {time.monotonic() - began:.0f} s")
    compare()
    took = time.monotonic() - began
    return judge.Measured(crew.nodes, kinds, dict(crew.lost), digests, found, took)
