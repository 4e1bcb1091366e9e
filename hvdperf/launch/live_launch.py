"""One launch of an arm: its ranks, driven in step, and the first cause when it fails."""

from __future__ import annotations

import math
import re
import shutil
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar

from hvdperf.json_records import Unreadable, convert
from hvdperf.launch.hub import SEND_S, Hub
from hvdperf.launch.launchers import Job, Launcher, LaunchError, Order
from hvdperf.launch.processes import ForkServer, SlotGone, Stall, mismatch_in, stall_in
from hvdperf.records.outcome import Failure
from hvdperf.records.rounds import Asked, ClockOffset, Timestamp, Timestamps
from hvdperf.worker.process import is_stopped
from hvdperf.worker.protocol import DRIVER_VARIABLE, Connection, Message, Phase, kind_of

Report = TypeVar("Report")

# Seconds for the other ranks to report their own errors once one rank has failed.
GRACE_S = 1.0
# The error of a rank that fails only because another rank has ended.
ECHO = re.compile(
    r"Horovod has been shut down|HorovodInternalError|Connection (closed|reset) by peer|"
    r"Socket closed|Broken pipe|gloo",
    re.IGNORECASE,
)
# Times that a rank on another host is asked for its time of day. The shortest round trip counts,
# because the rank is busy importing.
TIMES_ASKED = 16
# The profile's setting that limits a start, and all orders that name no other one.
STARTUP_LIMIT = "startup_deadline_s"
# Length at which an error message is cut, to fit a line.
MESSAGE_CHARACTERS = 300


class LaunchFailed(Exception):
    """A launch failed."""

    def __init__(self, failure: Failure):
        self.failure = failure
        super().__init__(str(failure))


@dataclass
class Rank:
    """The driver's knowledge of one rank. standing: its last answer to `status`. lost_at: time of
    its error or of the end of its connection, the earlier one, by the monotonic clock. left:
    whether its connection has closed. time_asked: times of day at which the rank was asked for its
    own. offset: that of its clock, by the shortest round trip so far."""

    connection: Connection | None = None
    pid: int = 0
    host: str = ""
    phase: str = Phase.LAUNCH.value
    timestamps: list[Timestamp] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    replies: list[dict[str, Any]] = field(default_factory=list)
    standing: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    lost_at: float = math.inf
    left: bool = False
    time_asked: list[float] = field(default_factory=list)
    offset: ClockOffset = field(default_factory=ClockOffset)

    @property
    def finished(self) -> bool:
        return self.phase == Phase.END.value

    def fail(self, error: dict[str, Any]) -> None:
        self.error = error
        self.lost_at = min(self.lost_at, time.monotonic())


class LiveLaunch:
    """A launch that starts at once; the caller waits until it is ready, gives orders, and closes
    it.

    configs: one per rank, as hvdperf.worker reads it. server: process that forks the ranks; None
    for fresh processes. Every method that waits, except `close`, raises LaunchFailed as soon as a
    rank fails or the deadline (seconds) passes; the group has then been ended.
    """

    def __init__(
        self,
        arm: str,
        launcher: Launcher,
        hub: Hub,
        order: Order,
        configs: Sequence[Mapping[str, Any]],
        server: ForkServer | None = None,
    ) -> None:
        self.arm = arm
        self.server = server
        self.ranks = [Rank() for _ in configs]
        self._configs = configs
        self._hub = hub
        self.address = hub.expect(self)
        self._scratch = order.scratch
        self._paused = False
        self._began = time.monotonic()
        self._began_by_hub, self._stops_before = hub.now(), hub.stops
        self.launched_at = time.time()
        self._ended_at = math.nan
        self._asked: list[Asked] = []
        # Pairs of a rank and the value that it shared, kept for ranks that have yet to connect.
        self._shared: list[tuple[int, str]] = []
        # The current order ("" during the start-up) and its time, in seconds since the launch.
        self._op, self._asked_at, self._asked_by_hub = "", 0.0, self._began_by_hub
        self._limit = STARTUP_LIMIT
        environment = {**order.environment, DRIVER_VARIABLE: self.address}
        stub = tuple(server.command) if server is not None else ()
        self._has_ended = False
        try:
            self._job: Job = launcher(replace(order, environment=environment, stub=stub))
        except LaunchError:
            self._has_ended = True
            self.end()
            raise

    # Messages from the hub -----------------------------------------------------------------

    def joined(self, rank: int, connection: Connection, hello: Message) -> None:
        if not 0 <= rank < len(self.ranks) or self.ranks[rank].connection is not None:
            self._hub.drop(connection)
            return
        state = self.ranks[rank]
        state.connection, state.pid, state.host = connection, hello["pid"], hello["host"]
        self._tell(rank, dict(self._configs[rank]))
        for other, value in self._shared:
            if other != rank:
                self._tell(rank, {"shared": value})
        if state.host != socket.gethostname():
            self._ask_time(rank)

    def received(self, rank: int, message: Message) -> None:
        state = self.ranks[rank]
        kind = kind_of(message)
        if kind == "phase":
            state.phase = message["phase"]
            state.timestamps.append(Timestamp(message["phase"], message["at"], message["clock"]))
            state.metadata.update(message.get("metadata", {}))
        elif kind == "reply":
            state.replies.append(message["reply"])
        elif kind == "error":
            state.fail(message["error"])
        elif kind == "status":
            state.standing = message["status"]
        elif kind == "time":
            self._take_time(rank, message["time"])
        elif kind == "share":
            self._shared.append((rank, message["share"]))
            self._tell_all({"shared": message["share"]}, but=rank)

    def left(self, rank: int, reason: str = "") -> None:
        state = self.ranks[rank]
        state.left, state.connection = True, None
        state.lost_at = min(state.lost_at, time.monotonic())
        if reason and state.error is None:
            state.fail({"phase": state.phase, "kind": "ConnectionError", "message": reason})

    def _ask_time(self, rank: int) -> None:
        self.ranks[rank].time_asked.append(time.time())
        self._tell(rank, {"op": "time"})

    def _take_time(self, rank: int, time_of_day: float) -> None:
        """Take a rank's time of day as that of the middle of the round trip."""
        state, now = self.ranks[rank], time.time()
        if not state.time_asked:
            raise ValueError("it was not asked for the time")
        trip = now - state.time_asked[-1]
        if len(state.time_asked) == 1 or trip / 2 < state.offset.uncertainty:
            state.offset = ClockOffset(time_of_day - (now - trip / 2), trip / 2)
        if len(state.time_asked) < TIMES_ASKED:
            self._ask_time(rank)

    def _tell_all(self, message: Message, but: int | None = None) -> None:
        for rank in range(len(self.ranks)):
            if rank != but:
                self._tell(rank, message)

    def _tell(self, rank: int, message: Message) -> None:
        connection = self.ranks[rank].connection
        if connection is None:
            return  # it has left: waiting for its answer raises the failure
        try:
            connection.send(message)
        except TimeoutError:
            self._hub.drop(connection)
            self.left(rank, f"it does not receive an order within {SEND_S:.0f} s")
        except OSError:
            self.left(rank)  # its last messages may still come

    # Orders of the session -----------------------------------------------------------------

    @property
    def ready(self) -> bool:
        return all(rank.phase == Phase.READY.value for rank in self.ranks)

    @property
    def failing(self) -> bool:
        """Return whether the next wait will raise LaunchFailed."""
        return bool(self._lost()) or (not self._has_ended and self._job.ended() is not None)

    def settled(self, deadline_s: float) -> bool:
        """Return whether wait_ready would return, or raise, at once."""
        return self.ready or self.failing or self._hub.now() > self._began_by_hub + deadline_s

    def wait_ready(self, deadline_s: float) -> None:
        """Wait for the start-up of every rank; the deadline counts from the launch."""
        self._wait(lambda: self.ready, deadline_s)

    def startup_seconds(self) -> list[dict[str, float]]:
        """Return the seconds of each phase of the start-up, by rank. A forked rank has only the
        phases from `init` on, because launch and import are the server's."""
        result = []
        for rank in self.ranks:
            seconds = {Phase.LAUNCH.value: self._launch_seconds(rank)}
            # A start-up that ends early lacks the later phases.
            for timestamp, following in pairwise(rank.timestamps):
                if timestamp.phase == Phase.READY.value:
                    break
                seconds[timestamp.phase] = following.clock - timestamp.clock
            if self.server is not None and not self.server.refusal:
                for phase in (Phase.LAUNCH, Phase.IMPORT):
                    seconds.pop(phase.value, None)
            result.append(seconds)
        return result

    def _launch_seconds(self, rank: Rank) -> float:
        """Return the seconds from the launch to the rank's first timestamp: by the monotonic clock,
        which all processes of a host share. A rank on another host is timed by the time of day,
        corrected by its offset."""
        first = rank.timestamps[0]
        if self._is_here(rank):
            return first.clock - self._began
        return max(0.0, first.at - rank.offset.seconds - self.launched_at)

    def timestamps(self) -> Timestamps:
        """Return the times of the launch. Call it after `close`."""
        ranks = [
            tuple(each._replace(at=each.at - rank.offset.seconds) for each in rank.timestamps)
            for rank in self.ranks
        ]
        offsets = [rank.offset for rank in self.ranks]
        return Timestamps(self.launched_at, self._ended_at, ranks, tuple(self._asked), offsets)

    def _since_launch(self) -> float:
        return time.monotonic() - self._began

    def ask(
        self, op: str, deadline_s: float, limit: str = STARTUP_LIMIT, **arguments: Any
    ) -> list[dict[str, Any]]:
        """Give every rank the same order, and return their replies, by rank. limit: the profile's
        setting that the deadline comes from. arguments: of the order."""
        self._op, self._limit, self._asked_at = op, limit, self._since_launch()
        self._asked_by_hub = self._hub.now()
        for state in self.ranks:
            state.replies.clear()
        self._tell_all({"op": op, **arguments})
        self._wait(lambda: all(state.replies for state in self.ranks), deadline_s)
        self._asked.append(Asked(op, self._asked_at, self._since_launch()))
        return [state.replies[0] for state in self.ranks]

    def reports(
        self, report: type[Report], op: str, deadline_s: float, /, **arguments: Any
    ) -> list[Report]:
        """Give every rank the same order, and return their reports, by rank. arguments: as of
        `ask`."""
        return self._decoded(report, self.ask(op, deadline_s, **arguments))

    def metadata(self, report: type[Report]) -> list[Report]:
        """Return what every rank reported during its start-up, by rank."""
        return self._decoded(report, [rank.metadata for rank in self.ranks])

    def _decoded(self, report: type[Report], replies: Sequence[object]) -> list[Report]:
        found = []
        for rank, reply in enumerate(replies):
            try:
                found.append(convert(reply, report))
            except Unreadable as error:
                raise self._ended_by(rank, f"its report cannot be read: {error}") from None
        return found

    def pause(self) -> None:
        """Stop every process, because an idle Horovod group burns 13-42 % of a core per rank."""
        if not self._paused:
            self._signal(signal.SIGSTOP)
            self._paused = True

    def resume(self) -> None:
        if self._paused:
            self._signal(signal.SIGCONT)
            self._paused = False

    def _signal(self, signum: int) -> None:
        if not self._has_ended:
            pids = {i: rank.pid for i, rank in enumerate(self.ranks) if rank.connection}
            try:
                self._job.signal(signum, pids)
            except SlotGone as gone:
                raise self._ended_by(gone.rank, str(gone)) from None

    def close(self, deadline_s: float = 30.0, leave_group: bool = False) -> None:
        """Have every rank end by itself, then kill and remove whatever is left.

        leave_group: end as a user's script does, which shuts Horovod down and lets the launcher end
        by itself. Without it, ranks end as soon as possible.
        """
        if self._has_ended:
            return
        asked = self._since_launch()
        deadline = self._hub.now() + deadline_s
        try:
            self.resume()
            self._tell_all({"op": "close", "leave_group": leave_group})
            self._hub.pump_until(lambda: all(rank.left for rank in self.ranks), deadline)
            while leave_group and not self._job.ended() and self._hub.now() < deadline:
                time.sleep(0.002)
        finally:
            self._ended_at = time.time()
            self._asked.append(Asked("close", asked, self._since_launch()))
            self.end()

    def kill(self) -> None:
        """Kill every rank without waiting. Call this first to end several groups at once."""
        with suppress(LaunchFailed):
            self._signal(signal.SIGKILL)

    def end(self) -> None:
        """Kill every process of the launch, and remove its files."""
        self._hub.forget(self.address)
        if self.server is not None:
            self.kill()  # the server kills forked ranks, unless it is stopped
        if not self._has_ended:
            self._has_ended = True
            self._job.end({i: rank.pid for i, rank in enumerate(self.ranks) if rank.pid})
        for rank in self.ranks:
            if rank.connection is not None:
                self._hub.drop(rank.connection)
        shutil.rmtree(self._scratch, ignore_errors=True)

    # Failures ------------------------------------------------------------------------------

    def _wait(self, done: Any, deadline_s: float) -> None:
        """Wait until done() is true, for at most deadline_s seconds from the time of the order.
        Raises LaunchFailed if a rank fails or the deadline passes; the launch has then ended."""

        def over() -> bool:
            return self.failing or done()

        ended = self._hub.pump_until(over, self._asked_by_hub + deadline_s)
        if ended and not self.failing:
            return
        if stopped := self._stopped():  # whatever it looks like to the other ranks
            waited = self._since_launch() - self._asked_at
            cause = f"no answer after {waited:.0f} s: a signal has stopped it; see who sent it"
            failure = self._failure(stopped[0], cause, of_node=True)
        else:
            failure = self._first_cause() if ended else self._hang()
        self.end()
        raise failure

    @property
    def was_stopped(self) -> bool:
        """Whether this session was stopped since the launch, so that limits of time in the ranks,
        such as Horovod's for a stall, say nothing."""
        return self.stops > self._stops_before

    @property
    def stops(self) -> int:
        """How often this session has been stopped so far."""
        return self._hub.stops

    def _stopped(self) -> list[int]:
        """Return the ranks of this host that a signal has stopped, which was not this group's."""
        found = []
        for i, rank in enumerate(self.ranks if not self._paused else ()):
            with suppress(FileNotFoundError):  # it has ended
                if rank.pid and self._is_here(rank) and is_stopped(rank.pid):
                    found.append(i)
        return found

    @staticmethod
    def _is_here(rank: Rank) -> bool:
        return rank.host == socket.gethostname()

    def _first_cause(self) -> LaunchFailed:
        """Return the failure of the rank that caused the end of the launch."""
        self._hub.pump_until(
            lambda: len(self._lost()) == len(self.ranks), self._hub.now() + GRACE_S
        )
        if not self._lost():
            ended = self._job.ended() or "ended"
            cause = f"it ended: {ended}" if isinstance(ended, SlotGone) else f"it {ended}"
            if not all(rank.pid for rank in self.ranks):
                cause += " before the ranks connected"
            return self._failure(None, self._with_fate_of_server(cause))
        # If the first error is an echo, Horovod gave up waiting for a rank that has not failed.
        return self._first_failure() or self._hang()

    def _first_failure(self) -> LaunchFailed | None:
        """Return the failure of the rank that failed first. Return None if none has failed, or if
        the first error is an echo and some rank has not failed yet."""
        if different := self._different_networks():
            return self._failure(None, different, Phase.BUILD.value, tail=(), of_user=True)
        lost = self._lost()
        first = min(lost, key=self._order_of_cause, default=None)
        if first is None or (self._echoes(first) and len(lost) < len(self.ranks)):
            return None
        error = self.ranks[first].error
        if error is not None:
            stall = self._stall() if self._echoes(first) else None
            if stall is not None:
                return self._failure(stall.rank_at_fault(len(self.ranks)), str(stall))
            if mismatch := mismatch_in(error["message"]):
                # Horovod gives every rank this error, and does not say which rank differs.
                return self._failure(None, f"{error['kind']}: {mismatch}", error["phase"])
            message = " ".join(error["message"].split())[:MESSAGE_CHARACTERS]
            if error.get("of_user") is True:
                at = f"step {step}: " if (step := error.get("step")) else ""
                return self._failure(first, f"{at}{message}", error["phase"], of_user=True)
            return self._failure(first, f"{error['kind']}: {message}", error["phase"])
        ended = self._job.ended()
        if isinstance(ended, SlotGone) and ended.host != self.ranks[first].host:
            # The launcher ended this rank after it had lost the other host.
            return self._failure(None, f"it ended: {ended}")
        cause = f"the process ended without a report {self._job.fate(first)}".rstrip()
        stall = self._stall()
        if stall is not None and first in stall.tensors:
            cause += f"; {stall}"
        return self._failure(first, self._with_fate_of_server(cause))

    def _different_networks(self) -> str:
        """Return how the networks of two ranks differ, in words; "" if nothing shows that they do.
        The error that Horovod then raises names a tensor, and no rank."""
        for key in ("gradient_tensors", "parameters", "gradient_bytes"):
            unit = key.replace("gradient_tensors", "gradients").replace("_", " ")
            ranks = [i for i, rank in enumerate(self.ranks) if key in rank.metadata]
            sizes = [self.ranks[i].metadata[key] for i in ranks]
            other = next((at for at, size in enumerate(sizes) if size != sizes[0]), 0)
            if other:
                has = f"rank {ranks[0]} has {sizes[0]:,} {unit}"
                also = f"rank {ranks[other]} has {sizes[other]:,}"
                return f"ranks build different networks: {has}, {also}"
        return ""

    def _with_fate_of_server(self, cause: str) -> str:
        """Return the cause, and append the end of the server if it has ended, because that ends its
        ranks."""
        ended = self.server.ended if self.server is not None else ""
        return f"{cause}; {ended}" if ended else cause

    def _lost(self) -> list[int]:
        """Return the ranks that have failed, or have left before they finished."""
        return [
            i
            for i, rank in enumerate(self.ranks)
            if rank.error or (rank.left and not rank.finished)
        ]

    def _order_of_cause(self, rank: int) -> tuple[int, float]:
        """Sort key for the first cause: real errors, then ends without a report, then echoes;
        within each by the time at which the driver learned of it."""
        state = self.ranks[rank]
        if state.error is None:
            return (1, state.lost_at)
        return (2 if self._echoes(rank) else 0, state.lost_at)

    def _echoes(self, rank: int) -> bool:
        """Return whether the rank's error is only a consequence of another rank's."""
        error = self.ranks[rank].error
        return error is not None and bool(ECHO.search(f"{error['kind']} {error['message']}"))

    def _hang(self) -> LaunchFailed:
        """Ask every rank where it stands; return a failure naming the rank that the others wait
        for."""
        waited = f"no answer after {self._since_launch() - self._asked_at:.0f} s"
        for rank in self.ranks:
            rank.standing = None
        self._tell_all({"op": "status"})
        self._hub.pump_until(
            lambda: all(rank.standing for rank in self.ranks if rank.connection),
            self._hub.now() + GRACE_S,
        )
        failed = self._first_failure()
        if failed is not None:
            return failed  # a rank has failed since
        # Find the rank before the signal, which kills a rank that does not handle it yet.
        awaited, cause = self._awaited_rank()
        stall = self._stall()
        if stall is not None:
            cause = f": {stall}{cause}"
            if awaited not in stall.tensors:
                awaited = stall.rank_at_fault(len(self.ranks))
        importing = self.server is not None and self.server.is_importing
        self._signal(signal.SIGUSR1)  # stacks of all threads go to stderr
        if self.server is not None:
            self.server.dump_stacks()
        self._hub.pump(0.5)
        phase = Phase.IMPORT.value if importing else None
        return self._failure(awaited, f"{waited}{cause}", phase)

    def _awaited_rank(self) -> tuple[int | None, str]:
        """Return the rank that the others wait for, or None, and the cause in words."""
        missing = [i for i, rank in enumerate(self.ranks) if rank.connection is None]
        if missing:
            server = f" ({self.server.standing})" if self.server is not None else ""
            return missing[0], f": it never connected{server}; {self._remedy()}"
        silent = [i for i, rank in enumerate(self.ranks) if not rank.standing]
        if silent:
            return silent[0], ": it does not report its position"
        suspects = self._suspects()
        alone = suspects[0] if len(suspects) < len(self.ranks) or len(suspects) == 1 else None
        form = "rank {}: {phase}, step {steps_begun}, in {where}"
        lines = [form.format(i, **(rank.standing or {})) for i, rank in enumerate(self.ranks)]
        return alone, f" ({'; '.join(lines)}); {self._remedy()}"

    def _stall(self) -> Stall | None:
        """Return the stall that Horovod's inspector reported last and that lasts; None if there is
        none. Rank 0 reports for all, and of each process set its first rank."""
        found = (stall_in(self._job.tail(rank)) for rank in range(len(self.ranks)))
        return next((stall for stall in found if stall is not None and stall.lasts), None)

    def _remedy(self) -> str:
        """Return advice for a rank that is only slow, which looks like one that hangs."""
        smaller = ", or give a smaller --batch-size" if self._op in ("block", "run") else ""
        return f"if it is only slow, raise {self._limit} in the profile{smaller}"

    def _suspects(self) -> list[int]:
        """Return the ranks that are furthest behind. Leave out those that wait for other ranks,
        unless all of them do."""
        running = [i for i, rank in enumerate(self.ranks) if rank.error is None]
        progress = {i: _progress(self.ranks[i].standing or {}) for i in running}
        behind = [i for i in running if progress[i] == min(progress.values())]
        return [i for i in behind if not (self.ranks[i].standing or {}).get("waits")] or behind

    def _ended_by(self, rank: int, cause: str) -> LaunchFailed:
        """End the launch because of a rank; return the failure."""
        failure = self._failure(rank, cause)
        self.end()
        return failure

    def _failure(
        self, rank: int | None, cause: str, phase: str | None = None, **more: Any
    ) -> LaunchFailed:
        """Return a failure. more: its other fields."""
        where = phase or (self.ranks[rank].phase if rank is not None else self.ranks[0].phase)
        tail: list[str] = []
        for i in [rank] if rank is not None else range(len(self.ranks)):
            tail += [f"[rank {i}] {line}" for line in self._job.tail(i)]
            if self.server is not None and self.ranks[i].pid == 0:
                tail += [f"[hvd-server] {line}" for line in self.server.tail()]
        host = self.ranks[rank].host if rank is not None else ""
        elsewhere = host if host != socket.gethostname() else ""
        failure = Failure(self.arm, rank, where, cause, tail, host=elsewhere)
        return LaunchFailed(replace(failure, **more))


def _progress(standing: Mapping[str, Any]) -> tuple[int, int]:
    order = [phase.value for phase in Phase]
    # An order that is a method of the trainer is none of them; it comes after a start.
    phase = standing["phase"] if standing["phase"] in order else Phase.READY.value
    return (order.index(phase), standing["steps_begun"])
