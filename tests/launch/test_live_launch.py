"""A group whose ranks are threads with real sockets: who is blamed when it goes wrong."""

from __future__ import annotations

import json
import math
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest

from hvdperf.launch.hub import Hub
from hvdperf.launch.launchers import LaunchError, Order
from hvdperf.launch.live_launch import LaunchFailed, LiveLaunch
from hvdperf.launch.processes import SlotGone
from hvdperf.records.outcome import Failure
from hvdperf.records.rounds import Correctness, Metadata
from hvdperf.worker.protocol import DRIVER_VARIABLE, STARTUP, Connection, Message, Phase
from tests.support.groups import failure_of

SOON = 5.0
SHUT_DOWN = {"kind": "InternalError", "message": "Horovod has been shut down. This was caused by"}


Answer = Callable[["FakeRank", Message], None]


class FakeRank:
    """A rank on another host, which is a thread: says hello, starts up, and then answers each order
    as it is told to. last: the phase of the start-up that it reaches. ahead: by how many seconds
    its clock is ahead of this host's."""

    ahead = 0.0

    def __init__(self, address: str, rank: int, answer: Answer, last: Phase = Phase.READY) -> None:
        self.rank = rank
        self.orders: list[Message] = []
        host, port, self._token = address.rsplit(":", 2)
        self.connection = Connection(socket.create_connection((host, int(port)), timeout=SOON))
        self._answer = answer
        self._phases = [*STARTUP[1:], Phase.READY]
        del self._phases[self._phases.index(last) + 1 :]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def say(self, **message: Any) -> None:
        self.connection.send(message)

    def enter(self, phase: Phase, at: float = 0.0, **metadata: Any) -> None:
        self.say(phase=phase.value, at=at, clock=at - 1e9, **metadata)

    def leave(self) -> None:
        self.connection.socket.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        try:
            self.say(hello=self.rank, token=self._token, pid=1000 + self.rank, host="host")
            while True:
                for order in self.connection.receive() or self._closed():
                    if order.get("op") == "time":
                        self.say(time=time.time() + self.ahead)
                        continue
                    self.orders.append(order)
                    if "op" in order:
                        self._answer(self, order)
                        continue
                    for second, phase in enumerate(self._phases):
                        self.enter(phase, at=1e9 + second, metadata={"rank": self.rank})
        except OSError:
            return

    def _closed(self) -> list[Message]:
        raise ConnectionResetError

    @property
    def is_there(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        self._thread.join(SOON)
        self.connection.close()


def obedient(rank: FakeRank, order: Message) -> None:
    """Answers every order, and leaves when it is told to close."""
    if order["op"] == "close":
        rank.enter(Phase.END)
        rank.leave()
    elif order["op"] == "status":
        rank.say(status=standing("ready"))
    else:
        rank.say(reply={"rank": rank.rank, **order})


def standing(phase: str, steps: int = 0, waits: bool = False) -> dict[str, Any]:
    where = "ops.py:1 execute" if waits else "faults.py:22 _hang"
    return {"phase": phase, "steps_begun": steps, "where": where, "waits": waits}


def reports(**other: Any) -> Answer:
    """Answers every order by a report with these fields."""
    return lambda rank, order: rank.say(reply={"loss": 0.5, **other})


def fails(error: Mapping[str, str], phase: str = "block", then: Answer | None = None) -> Answer:
    def answer(rank: FakeRank, order: Message) -> None:
        if order["op"] == "block":
            rank.say(error={"phase": phase, **error})
            if then is not None:
                then(rank, order)

    return answer


BAD_SHAPE = {"kind": "ValueError", "message": "bad shape"}
RAISES = fails(BAD_SHAPE)


def gives_up(rank: FakeRank, order: Message) -> None:
    """Fails as Horovod does when it gives up on another rank."""
    if order["op"] == "block":
        rank.say(error={"phase": "block", **SHUT_DOWN})
    else:
        rank.say(status=standing("block", 4, waits=True))


def leaves(rank: FakeRank, order: Message) -> None:
    rank.leave()


def stands(status: dict[str, Any]) -> Answer:
    """Never answers, but says where it is."""

    def answer(rank: FakeRank, order: Message) -> None:
        if order["op"] == "status":
            rank.say(status=status)

    return answer


def silent(rank: FakeRank, order: Message) -> None:
    """Does not say a word."""


@pytest.fixture
def job() -> Mock:
    """Processes that end only when the test says so. reports: what Horovod's stall inspector has
    written, by rank."""
    made = Mock(reports={})
    made.ended.return_value = None
    made.fate.side_effect = lambda rank: f"(killed by signal 9, as rank {rank})"
    made.tail.side_effect = lambda rank: [*made.reports.get(rank, []), f"last words of {rank}"]
    return made


@pytest.fixture
def launcher(job: Mock) -> Mock:
    return Mock(return_value=job)


def address_for(launcher: Mock) -> str:
    """Return the address that the ranks of the last launch connect to."""
    return str(launcher.call_args.args[0].environment[DRIVER_VARIABLE])


@pytest.fixture
def start(
    hub: Hub, launcher: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """Start a group with a thread for each rank that has an answer, and end it after the test.
    ready: wait for its start-up. last: the phase of it that the last rank reaches."""
    monkeypatch.setattr("hvdperf.launch.live_launch.GRACE_S", 0.5)
    ranks: list[FakeRank] = []
    groups: list[LiveLaunch] = []

    def started(
        *answers: Answer | None, ready: bool = False, last: Phase = Phase.READY
    ) -> tuple[LiveLaunch, list[FakeRank]]:
        order = Order((), "python", {"MINE": "1"}, tmp_path / "launch-0")
        configs = [{"rank": rank} for rank in range(len(answers))]
        group = LiveLaunch("resnet_50_s horovod@2", launcher, hub, order, configs)
        groups.append(group)
        for rank, answer in enumerate(answers):
            if answer is not None:
                reached = last if rank == len(answers) - 1 else Phase.READY
                ranks.append(FakeRank(address_for(launcher), rank, answer, reached))
        if ready:
            group.wait_ready(SOON)
        return group, ranks

    yield started
    for group in groups:
        group.end()
    for rank in ranks:
        rank.connection.close()
        rank.join()


def failure_of_block(group: LiveLaunch, deadline_s: float = SOON) -> Failure:
    group.wait_ready(SOON)
    return failure_of(lambda: group.ask("block", deadline_s, kind="full", steps=10))


def test_a_launch_that_does_not_start_is_expected_no_longer(hub, launcher, start):
    launcher.side_effect = LaunchError("no such file: mpirun")
    with pytest.raises(LaunchError):
        start(None)
    assert hub._listener(address_for(launcher).rsplit(":", 1)[1]) is None


def test_the_clock_of_another_host_is_corrected(start, monkeypatch):
    monkeypatch.setattr(FakeRank, "ahead", 3600.0)
    group, _ = start(obedient, obedient, ready=True)
    group.ask("block", SOON)
    group.close()
    timestamps = group.timestamps()
    for rank, offset in zip(timestamps.ranks, timestamps.offsets, strict=True):
        assert 0.0 < offset.uncertainty < 1.0
        assert abs(offset.seconds - 3600.0) <= offset.uncertainty
        ready = next(each for each in rank if each.phase == "ready")
        assert ready.at == 1e9 + len(STARTUP) - 1 - offset.seconds


MALFORMED: list[Any] = [
    {"time": "noon"},
    {"phase": ["block"], "at": 0.0, "clock": 0.0},
    {"phase": "block", "at": 0.0, "clock": 0.0, "metadata": 3},
    {"error": {"phase": "block", "kind": "E"}},
    {"status": {"phase": "no way!", "steps_begun": 0, "where": "", "waits": False}},
    {"something": "else"},
    [],
]


@pytest.mark.parametrize("message", MALFORMED, ids=json.dumps)
def test_a_malformed_message_fails_the_rank_that_sent_it_and_is_named(start, message):
    def garbles(rank: FakeRank, order: Message) -> None:
        rank.connection.socket.sendall(json.dumps(message).encode() + b"\n")

    group, _ = start(obedient, garbles)
    failure = failure_of_block(group)
    assert failure.rank == 1
    assert "its message cannot be read" in failure.cause


def test_a_rank_that_does_not_take_its_orders_is_named(start, monkeypatch):
    monkeypatch.setattr("hvdperf.launch.hub.SEND_S", 0.2)
    deaf = threading.Event()
    group, _ = start(obedient, lambda rank, order: deaf.wait(SOON), ready=True)
    group._tell(1, {"op": "block"})
    group._tell(1, {"op": "block", "text": "x" * 30_000_000})
    failed = failure_of(lambda: group.ask("block", SOON))
    deaf.set()
    assert failed.rank == 1
    assert "does not receive an order" in failed.cause


# What goes well --------------------------------------------------------------------------------


def test_every_rank_gets_its_config_starts_up_and_carries_out_orders(start, launcher, job):
    group, ranks = start(obedient, obedient, ready=True)
    assert [rank.orders[0] for rank in ranks] == [{"rank": 0}, {"rank": 1}]
    assert [rank.metadata for rank in group.ranks] == [{"rank": 0}, {"rank": 1}]
    assert [rank.pid for rank in group.ranks] == [1000, 1001]
    assert launcher.call_args.args[0].environment["MINE"] == "1"
    replies = group.ask("block", SOON, kind="full", steps=10)
    assert replies == [{"rank": n, "op": "block", "kind": "full", "steps": 10} for n in (0, 1)]
    assert group.ask("evidence", SOON)[0]["op"] == "evidence"
    pids = {0: 1000, 1: 1001}
    group.resume()
    job.signal.assert_not_called()
    group.pause()
    group.pause()
    job.signal.assert_called_once_with(signal.SIGSTOP, pids)
    group.resume()
    assert job.signal.call_args_list[1:] == [call(signal.SIGCONT, pids)]


def test_the_start_up_is_told_phase_by_phase_whatever_the_time_of_day(start):
    group, _ = start(obedient)
    group.launched_at = 1e9 - 3.5
    group.wait_ready(SOON)
    (seconds,) = group.startup_seconds()
    assert list(seconds) == [phase.value for phase in STARTUP]
    (rank,) = group.ranks
    assert seconds["launch"] == pytest.approx(3.5 - rank.offset.seconds)
    # The time of day is set.
    rank.timestamps[3:] = [each._replace(at=each.at + 3600) for each in rank.timestamps[3:]]
    (seconds,) = group.startup_seconds()
    assert {seconds[phase.value] for phase in STARTUP[1:]} == {1.0}
    group.launched_at += 3600
    assert group.startup_seconds()[0]["launch"] == 0.0
    rank.host = socket.gethostname()
    rank.timestamps[0] = rank.timestamps[0]._replace(clock=group._began + 0.25)
    assert group.startup_seconds()[0]["launch"] == pytest.approx(0.25)


def test_a_launch_is_marked_from_outside_too(start, job):
    group, _ = start(obedient, obedient, ready=True)
    group.ask("block", SOON, kind="full", steps=10)
    job.ended.return_value = "ended with status 0"
    group.close(leave_group=True)
    timestamps = group.timestamps()
    assert [asked.op for asked in timestamps.asked] == ["block", "close"]
    times = [time for asked in timestamps.asked for time in asked[1:]]
    assert times == sorted(times)
    assert timestamps.launched_at < timestamps.ended_at
    phases = [phase.value for phase in (*STARTUP[1:], Phase.READY, Phase.END)]
    assert [[timestamp.phase for timestamp in rank] for rank in timestamps.ranks] == [phases] * 2


def test_reports_are_records_in_the_order_of_ranks(start):
    group, _ = start(reports(digests=["a"]), reports(loss=math.nan, digests=["b"]), ready=True)
    first, second = group.reports(Correctness, "correctness", SOON)
    assert first == Correctness(0.5, ["a"])
    assert math.isnan(second.loss)
    assert second.digests == ["b"]


def test_what_one_rank_shares_reaches_all_others_and_one_that_connects_later(start, hub, launcher):
    group, (first, second) = start(obedient, obedient, None)
    assert hub.pump_until(
        lambda: all(rank.connection for rank in group.ranks[:2]), time.monotonic() + SOON
    )
    first.say(share="127.0.0.1:4711")
    assert hub.pump_until(lambda: group._shared, time.monotonic() + SOON)
    late = FakeRank(address_for(launcher), 2, obedient)
    group.wait_ready(SOON)
    group.ask("block", SOON)
    group.end()
    late.join()
    assert late.orders[:2] == [{"rank": 2}, {"shared": "127.0.0.1:4711"}]
    assert {"shared": "127.0.0.1:4711"} in second.orders
    assert {"shared": "127.0.0.1:4711"} not in first.orders


def test_closing_lets_every_rank_end_in_its_own_way_and_ends_who_does_not(start, job, tmp_path):
    group, ranks = start(obedient, obedient)
    (tmp_path / "launch-0").mkdir()
    group.wait_ready(SOON)
    group.pause()
    group.close()
    assert [rank.orders[-1] for rank in ranks] == [{"op": "close", "leave_group": False}] * 2
    assert job.signal.call_args.args[0] == signal.SIGCONT
    assert job.end.call_count == 1
    assert not (tmp_path / "launch-0").exists()
    group.close()
    group.end()
    assert job.end.call_count == 1
    silently, _ = start(silent, ready=True)
    silently.close(deadline_s=0.2)
    assert job.end.call_count == 2


def test_a_second_rank_of_the_same_number_is_turned_away(start, hub, launcher):
    group, _ = start(obedient, ready=True)
    other = FakeRank(address_for(launcher), 0, obedient)
    # However late its greeting comes: the others' connections wait for SOON only.
    while other.is_there:
        hub.pump(0.1)
    assert other.orders == []
    assert group.ask("block", SOON)[0]["rank"] == 0


# What goes wrong -------------------------------------------------------------------------------


def test_an_error_is_told_with_rank_phase_and_cause(start, job):
    error = {"kind": "ValueError", "message": "bad\n  shape x" + 10_000 * "x"}
    group, _ = start(obedient, fails(error, "first step"))
    failed = failure_of_block(group)
    assert (failed.rank, failed.phase) == (1, "first step")
    assert failed.cause.startswith("ValueError: bad shape x")
    assert len(failed.cause) < 400
    assert failed.tail == ["[rank 1] last words of 1"]
    said = "resnet_50_s horovod@2: rank 1 on host failed in phase 'first step'"
    assert str(failed).startswith(said)
    assert job.end.call_count == 1


@pytest.mark.parametrize(
    ("tensors", "sizes", "said"),
    [
        ((4, 6), (1200, 1200), "4 gradients, rank 1 has 6"),
        ((4, 4), (1200, 2400), "1,200 gradient bytes, rank 1 has 2,400"),
        ((4, 4), (1200, 1200), ""),
    ],
)
def test_ranks_that_build_different_networks_are_the_users_mistake(start, tensors, sizes, said):
    def fails_in_first_step(rank: FakeRank, order: Message) -> None:
        if order["op"] == "block":
            own = {"gradient_tensors": tensors[rank.rank], "gradient_bytes": sizes[rank.rank]}
            rank.enter(Phase.INPUT, metadata=own)
            error = {"kind": "FailedPreconditionError", "message": "Mismatched tensor shapes"}
            rank.say(error={"phase": "first step", **error})

    group, _ = start(fails_in_first_step, fails_in_first_step)
    failed = failure_of_block(group)
    assert failed.of_user is bool(said)
    if said:
        assert failed.cause == f"ranks build different networks: rank 0 has {said}"
        assert (failed.rank, failed.phase, failed.tail) == (None, "build", ())


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (reports(), "Object missing required field `digests`"),
        (reports(digests=["a", 3]), "digests[1]: Expected `str`, got `int`"),
    ],
)
def test_a_report_that_cannot_be_read_fails_its_rank_and_is_explained(start, job, answer, said):
    group, _ = start(reports(digests=["a"]), answer, ready=True)
    failed = failure_of(lambda: group.reports(Correctness, "correctness", SOON))
    assert failed.rank == 1
    assert failed.cause == f"its report cannot be read: {said}"
    assert job.end.call_count == 1
    failed = failure_of(lambda: group.metadata(Metadata))
    assert "missing required field `world_size`" in failed.cause


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(
    ("own", "other", "cause"),
    [
        (RAISES, fails(SHUT_DOWN), "ValueError: bad shape"),
        (fails(BAD_SHAPE, then=leaves), leaves, "ValueError: bad shape"),
        (leaves, fails(SHUT_DOWN), "the process ended without a report (killed by signal 9, as "),
    ],
)
def test_errors_come_before_ends_without_a_report_and_these_before_echoes(
    start, first, own, other, cause
):
    answers = [other] * 2
    answers[first] = own
    group, _ = start(*answers)
    failed = failure_of_block(group)
    assert failed.rank == first
    assert failed.cause.startswith(cause)


def test_a_rank_that_the_launcher_ended_does_not_hide_a_lost_host(start, job):
    group, _ = start(leaves, leaves, ready=True)
    job.ended.return_value = SlotGone(1, "node2", "it has ended")
    failed = failure_of(lambda: group.ask("block", SOON))
    assert failed.rank is None
    assert failed.cause == "it ended: the slot of rank 1 on node2 is gone: it has ended"


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_ranks_that_raised_the_first_in_time_is_told(start, first):
    told = threading.Event()

    def raises_first(rank: FakeRank, order: Message) -> None:
        RAISES(rank, order)
        told.set()

    def raises_later(rank: FakeRank, order: Message) -> None:
        if order["op"] == "block":
            assert told.wait(SOON)
            time.sleep(0.1)
            rank.say(error={"phase": "block", "kind": "KeyError", "message": "and so on"})
            rank.leave()

    answers: list[Answer] = [raises_later] * 2
    answers[first] = raises_first
    group, _ = start(*answers)
    failed = failure_of_block(group)
    assert (failed.rank, failed.cause) == (first, "ValueError: bad shape")


WAITS, BEHIND = stands(standing("block", 7, waits=True)), stands(standing("block", 6))
MISSED, MISSED_AND_GIVEN_UP = ["Missing ranks:", "1: [grad_0]"], ["Missing ranks:", "1!: [grad_0]"]
MISSED_LONG_AGO = [
    "[2026-01-31 23:59:59.000001: W x.cc:107] submitted to be reduced, gathered or broadcasted by "
    "subset of ranks for more than 10 seconds.",
    "Missing ranks:",
    "0: [grad_0]",
]
DISAGREES = fails(
    {
        "kind": "FailedPreconditionError",
        "message": "x" * 400 + " Mismatched ALLREDUCE tensor shapes: One rank sent a tensor of "
        "shape [4], but another rank sent a tensor of shape [5].\n\t [[{{node grads/w_0}}]]",
    }
)


@pytest.mark.parametrize(
    ("answers", "report", "rank", "said"),
    [
        ([gives_up, stands(standing("block", 3))], [], 1, "rank 1: block, step 3, in faults.py:22"),
        ([WAITS, BEHIND], [], 1, "rank 0: block, step 7, in ops.py:1 execute; rank 1: "),
        ([BEHIND, WAITS], [], 0, "rank 0: block, step 6, in faults.py:22 _hang"),
        # The rank that Horovod misses, whoever is behind.
        ([WAITS, BEHIND], MISSED, 1, "grad_0"),
        ([WAITS, BEHIND], MISSED_LONG_AGO, 1, "no answer after"),
        ([BEHIND, WAITS], MISSED, 1, "grad_0"),
        ([fails(SHUT_DOWN)] * 2, MISSED_AND_GIVEN_UP, 1, "grad_0"),
        # Horovod does not say who differs.
        ([DISAGREES] * 2, [], None, "shape [5] (tensor grads/w_0)"),
        # At the same step, the one that waits for nobody.
        ([WAITS, stands(standing("block", 7)), WAITS], [], 1, "no answer after"),
        ([WAITS, WAITS], [], None, "no answer after"),
        ([WAITS, silent], [], 1, "does not report its position"),
    ],
)
def test_the_rank_that_others_wait_for_is_named(start, job, answers, report, rank, said):
    job.reports = {0: report}
    group, _ = start(*answers)
    failed = failure_of_block(group, deadline_s=0.5)
    assert failed.rank == rank
    assert said in failed.cause
    named = {rank} if rank is not None else set(range(len(answers)))
    assert {f"[rank {each}] last words of {each}" for each in named} <= set(failed.tail)
    # Call stacks, where ranks hang.
    hangs = "no answer after" in failed.cause
    assert (signal.SIGUSR1 in [sent.args[0] for sent in job.signal.call_args_list]) is hangs
    assert job.end.call_count == 1


@pytest.mark.parametrize(("late", "blamed"), [(SHUT_DOWN, 0), (BAD_SHAPE, 1)])
def test_a_rank_that_fails_while_it_is_asked_does_not_hang(start, late, blamed):
    def fails_when_asked(rank: FakeRank, order: Message) -> None:
        if order["op"] == "status":
            rank.say(error={"phase": "block", **late})
            rank.say(status=standing("block", 4))

    group, _ = start(gives_up, fails_when_asked)
    failed = failure_of_block(group)
    assert failed.rank == blamed
    assert failed.cause.startswith("InternalError" if blamed == 0 else "ValueError: bad shape")


@pytest.mark.parametrize(
    ("op", "limit", "remedy"),
    [
        ("block", {"limit": "some_s"}, "some_s in the profile, or give a smaller --batch-size"),
        ("collective", {"limit": "some_s"}, "some_s in the profile"),
        ("evidence", {}, "startup_deadline_s in the profile"),
    ],
)
def test_an_order_that_took_too_long_is_told_with_its_own_time_and_what_to_do(
    start, op, limit, remedy
):
    group, _ = start(stands(standing("block", 7)), ready=True)
    group._began -= 1000.0  # of a launch that has done much before
    failed = failure_of(lambda: group.ask(op, 0.2, **limit))
    assert re.match(r"no answer after \d s \(rank 0: block, step 7", failed.cause)
    assert failed.cause.endswith(f"; if it is only slow, raise {remedy}")


def test_a_rank_that_does_not_start_is_named(start, hub):
    group, _ = start(obedient, None)
    failed = failure_of(lambda: group.wait_ready(0.3))
    assert (failed.rank, failed.phase) == (1, "launch")
    assert failed.cause.endswith(
        "it never connected; if it is only slow, raise startup_deadline_s in the profile"
    )
    waits, hangs = stands(standing("first step", waits=True)), stands(standing("build"))
    group, _ = start(waits, hangs, last=Phase.BUILD)
    assert hub.pump_until(
        lambda: [rank.phase for rank in group.ranks] == ["ready", "build"], time.monotonic() + SOON
    )
    failed = failure_of(lambda: group.wait_ready(0.3))
    assert (failed.rank, failed.phase) == (1, "build")


def test_processes_that_end_before_they_connect_fail_at_once(start, job):
    job.ended.return_value = "ended with status 1"
    group, _ = start(None, None)
    assert group.failing
    assert group.settled(SOON)
    job.ended.return_value = None
    assert not group.settled(SOON)
    assert group.settled(-1.0)
    job.ended.return_value = "ended with status 1"
    with pytest.raises(LaunchFailed, match="it ended with status 1 before the ranks connected"):
        group.wait_ready(SOON)


@pytest.mark.parametrize("what", ["pause", "resume", "close"])
def test_a_slot_that_is_gone_fails_the_launch_and_is_named(start, job, what):
    group, _ = start(obedient, obedient, ready=True)
    if what != "pause":
        group.pause()

    job.signal.side_effect = SlotGone(1, "node2", "it is stopped")
    failed = failure_of(lambda: getattr(group, what)())
    assert failed.rank == 1
    assert "the slot of rank 1 on node2 is gone: it is stopped" in failed.cause
    assert job.end.call_count == 1
    group.kill()
    group.end()
    assert job.end.call_count == 1
