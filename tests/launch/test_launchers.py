"""The launchers, what they start and what they tell; and what a session opens for them."""

from __future__ import annotations

import errno
import socket
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from hvdperf.errors import UserError
from hvdperf.launch import arm_launcher
from hvdperf.launch.arm_launcher import (
    ArmLauncher,
    how_launched,
    make_arm_launcher,
    threads,
)
from hvdperf.launch.hub import Hub
from hvdperf.launch.launchers import (
    SETTINGS,
    LaunchError,
    MpirunJob,
    Order,
    check_can_start,
    command,
    rendezvous_plan,
    start_by_agents,
)
from hvdperf.launch.processes import TAIL_LINES, with_defaults
from hvdperf.machine.placement import Offer, Slot, place
from hvdperf.machine.stack import NO_MPIRUN
from hvdperf.plan.arms import Arm, BlockKind
from hvdperf.plan.data import DataSource
from hvdperf.plan.options import LAUNCHERS, Options
from hvdperf.plan.profile import Sampling
from hvdperf.worker.protocol import address_towards
from hvdperf.worker.strategies import Strategy
from tests.support.rounds import WORKLOAD
from tests.support.stores import STACK


def slots(*hosts: str) -> list[Slot]:
    return [Slot(rank, host, (rank,)) for rank, host in enumerate(hosts)]


def columns(plan: list[dict[str, object]], *names: str) -> list[tuple[object, ...]]:
    return [tuple(entry[name] for name in names) for entry in plan]


@pytest.mark.parametrize(
    ("hosts", "local", "cross"),
    [
        ("aa", [(0, 2), (1, 2)], [(0, 1), (0, 1)]),
        ("aaaabbbb", [(rank, 4) for rank in range(4)] * 2, [(0, 2)] * 4 + [(1, 2)] * 4),
        ("abab", [(0, 2), (0, 2), (1, 2), (1, 2)], [(0, 2), (1, 2), (0, 2), (1, 2)]),
        # Of the third local rank there is one on host b alone.
        (
            "aabbbc",
            [(0, 2), (1, 2), (0, 3), (1, 3), (2, 3), (0, 1)],
            [(0, 3), (0, 2), (1, 3), (1, 2), (0, 1), (2, 3)],
        ),
    ],
)
def test_ranks_are_numbered_within_their_host_and_across_hosts(hosts, local, cross):
    plan = rendezvous_plan(slots(*hosts))
    assert columns(plan, "local_rank", "local_size") == local
    assert columns(plan, "cross_rank", "cross_size") == cross
    ranks = [(host, rank, len(hosts)) for rank, host in enumerate(hosts)]
    assert columns(plan, "hostname", "rank", "size") == ranks


def order(processes: int) -> Order:
    return Order(slots("a", "a")[:processes], "python", {"MINE": "1"}, Path("scratch/launch-3"))


def test_every_rank_is_started_by_its_own_agent_and_told_its_own_entry():
    agents = [Mock(), Mock()]
    start_by_agents(agents, order(2))
    for own, agent in zip(rendezvous_plan(slots("a", "a")), agents, strict=True):
        launch, environment, _ = agent.start.call_args.args
        assert launch == "launch-3"
        assert {f"HOROVOD_{name.upper()}": str(own[name]) for name in own}.items() <= (
            environment.items()
        )
        assert environment["MINE"] == "1"
        assert environment["HOROVOD_CPU_OPERATIONS"] == "gloo"
        assert environment["HOROVOD_GLOO_IFACE"] == "lo"
        # Gloo waits longer than any group is stopped.
        assert int(environment["HOROVOD_GLOO_TIMEOUT_SECONDS"]) > 24 * 3600
    start_by_agents(agents, replace(order(2), slots=slots("a", "b")))
    assert "HOROVOD_GLOO_IFACE" not in agents[0].start.call_args.args[1]


def test_ranks_already_started_end_when_one_cannot_be_even_if_another_cannot_end():
    stubborn = Mock(end=Mock(side_effect=OSError("slot of rank 0: Operation not permitted")))
    broken = Mock(start=Mock(side_effect=OSError("no such file: python")))
    agents = [stubborn, Mock(), broken]
    with pytest.raises(LaunchError, match="rank 2 could not be started: no such file"):
        start_by_agents(agents, replace(order(2), slots=slots("a", "a", "a")))
    agents[1].end.assert_called_once_with("launch-3")


@pytest.mark.parametrize(
    ("statuses", "ended", "fate"),
    [
        ((None, None), None, ""),
        ((3, None), None, "(exit status 3)"),
        ((-9, 0), "ended with status [-9, 0]", "(killed by signal 9, SIGKILL)"),
        # Batch systems use real-time signals, too.
        ((-36, None), None, "(killed by signal 36, which has no name)"),
    ],
)
def test_how_ranks_ended_is_told_in_words(statuses, ended, fate):
    agents = [Mock(status=Mock(return_value=status)) for status in statuses]
    job = start_by_agents(agents, order(2))
    assert job.ended() == ended
    assert job.fate(0) == fate


def job(scratch: Path, stderr: str) -> MpirunJob:
    (scratch / "stderr").write_text(stderr)
    return MpirunJob(Mock(wait=Mock(return_value=1)), scratch)


def test_lines_that_were_tagged_in_pieces_are_whole_again(tmp_path):
    found = job(
        tmp_path,
        "mpirun has a word\n"
        "[1,0]<stderr>:# Size\n"
        "[1,1]<stderr>:other[1,0]<stderr>:65536   \n"
        "[1,0]<stderr>:1048576 [1,0]<stderr>:  10.5[1,0]<stderr>:\n"
        "[1,1]<stderr>:'s\n"
        "[1,10]<stderr>:rank 10\n",
    )
    assert found.tail(0) == ["# Size", "65536   ", "1048576   10.5"]
    assert found.tail(1) == ["other's"]
    assert found.tail(10) == ["rank 10"]
    # Behind words of mpirun.
    found = job(tmp_path, "mpirun is inter[1,1]<stderr>:no such [1,0]<stderr>:file\nrupted\n")
    assert found.tail(0) == ["file"]
    assert found.tail(1) == ["no such "]


def test_a_rank_that_has_written_nothing_has_mpiruns_last_words(tmp_path):
    found = job(tmp_path, "[1,1]<stderr>:no such luck\n-----\nterminated\n")
    assert found.tail(1) == ["no such luck"]
    assert found.tail(0) == ["[1,1]<stderr>:no such luck", "-----", "terminated"]
    numbers = [str(number) for number in range(TAIL_LINES + 1)]
    for tag in ("[1,0]<stderr>:", ""):
        last = job(tmp_path, "".join(f"{tag}{number}\n" for number in numbers))
        assert last.tail(0) == numbers[1:]


def test_the_signal_that_mpirun_reports_is_told(tmp_path):
    told = "mpirun noticed that process rank 1 with PID 4711 on node x exited on signal 36"
    found = job(tmp_path, told)
    assert found.fate(1) == "(killed by signal 36, which has no name)"
    assert found.fate(0) == ""


def test_the_users_settings_reach_the_ranks_of_other_hosts(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "3.5")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")
    launcher = Mock(side_effect=LaunchError("it only records"))
    hub = Hub()
    arm_launcher = ArmLauncher(
        stacks={"": STACK},
        launcher=launcher,
        over_mpi=True,
        hub=hub,
        slots=place([Offer(0, "here", (0,)), Offer(1, "there", (0,))]),
        data={WORKLOAD.dataset: DataSource(WORKLOAD.dataset, "", 10)},
        scratch=tmp_path,
        startup_deadline_s=1.0,
        order_deadline_s=1.0,
    )
    arm = Arm(WORKLOAD, Strategy.HOROVOD, 2)
    for each in (replace(arm, exchange="nofuse"), replace(arm, injected="cycle")):
        with pytest.raises(LaunchError):
            arm_launcher.start(each, {BlockKind.FULL}, data_seed=1, share_startup=False)
    hub.close()
    order, injected = (call.args[0] for call in launcher.call_args_list)
    assert order.environment["HOROVOD_FUSION_THRESHOLD"] == "0"
    assert order.environment["HOROVOD_CYCLE_TIME"] == "3.5"
    assert injected.environment["HOROVOD_CYCLE_TIME"] == "25.0", "a fault's setting comes first"
    exported = command(order, "10.77.0.0/24", None)
    for name in ("HOROVOD_CYCLE_TIME", "NCCL_SOCKET_IFNAME", "HOROVOD_STALL_CHECK_TIME_SECONDS"):
        assert exported[exported.index(name) - 1] == "-x"
    # mpirun complains of a variable that it is to pass on and does not have.
    without = replace(order, environment={**order.environment, "NCCL_SOCKET_IFNAME": None})
    assert "NCCL_SOCKET_IFNAME" not in command(without, "10.77.0.0/24", None)
    # A launch without a variable of the user's has the session's own.
    own = {"HOROVOD_GLOO_IFACE": "ib0", "NCCL_SOCKET_IFNAME": "ib0"}
    given = {"HOROVOD_GLOO_IFACE": None, "NCCL_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": None}
    assert with_defaults(given, own) == {**given, "HOROVOD_GLOO_IFACE": "ib0"}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_how_ranks_are_launched_is_told_as_they_are_launched(tmp_path, launcher):
    slots = place([Offer(0, "first", (0, 1)), Offer(1, "second", (0, 1))])
    told = how_launched(launcher, slots)
    pools = threads(Strategy.HOROVOD, slots[:1])
    assert f"{pools.intra_op} intra-op and {pools.inter_op} inter-op" in told
    assert f"the {len(slots[0].cores)} cores" in told
    tokens = command(Order(slots[:1], "python", {}, tmp_path), "", None)
    used = ["--bind-to " + tokens[tokens.index("--bind-to") + 1]]
    used += [f"--mca {name} {value}" for name, value in SETTINGS.items()]
    assert all((each in told) is (launcher == "mpirun") for each in used)
    # What is told is on every command line.
    assert all(each in " ".join(tokens) for each in used)
    gpus = place([Offer(0, "first", (0, 1, 2), ("GPU-0", "GPU-1"))])
    assert "TensorFlow chooses" in how_launched(launcher, gpus)
    assert "1 or 2 cores" in how_launched(launcher, [Slot(0, "a", (0,)), Slot(1, "a", (1, 2))])


def test_a_start_that_fails_leaves_nothing(tmp_path, monkeypatch):
    opened: list[Hub] = []

    def open_hub(*addresses: str) -> Hub:
        opened.append(Hub(*addresses))
        return opened[-1]

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(arm_launcher, "Hub", open_hub)
    failing = Mock(side_effect=ConnectionError("a slot is gone"))
    monkeypatch.setattr(arm_launcher, "make_launcher", failing)
    session_plan: Any = SimpleNamespace(
        slots=place([Offer(0, "first", (0, 1))]),
        profile=SimpleNamespace(sampling=Sampling()),
        options=Options(),
    )
    with pytest.raises(ConnectionError):
        make_arm_launcher(session_plan, {"": STACK}, None)
    assert list(tmp_path.iterdir()) == []
    refused = OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
    monkeypatch.setattr(socket, "create_server", Mock(side_effect=refused))
    with pytest.raises(UserError, match=r"no socket can be opened .*: Cannot assign requested"):
        make_arm_launcher(session_plan, {}, None)
    assert list(tmp_path.iterdir()) == []
    assert [hub._server.fileno() for hub in opened] == [-1]


def test_this_host_reaches_itself_by_loopback():
    assert address_towards("127.0.0.1", 9) == "127.0.0.1"


MPICH = "HYDRA build details: Version: 5.0.2"


@pytest.mark.parametrize(
    ("built", "version", "library", "told"),
    [
        ("mpi gloo", "mpirun (Open MPI) 4.1.8", "Open MPI v4.1.8", {}),
        ("mpi gloo", "orterun (OpenRTE) 4.1.4", "Open MPI v4.1.8", {}),
        ("mpi gloo", "mpirun (Open MPI) 5.0.11", "Open MPI v5.0.11", {"mpirun": "add --launcher"}),
        ("mpi gloo", MPICH, "MPICH Version: 5.0.2", {"mpirun": "another MPI.*; or add --launcher"}),
        # Where the environment has no mpirun, the one on PATH is of something else.
        ("mpi gloo", "mpirun (Open MPI) 4.1.8", "MPICH Version: 5.0.2", {"mpirun": "loads MPICH"}),
        ("gloo", "mpirun (Open MPI) 4.1.8", None, {"mpirun": "without MPI.*; or add --launcher"}),
        ("mpi", "mpirun (Open MPI) 4.1.8", "Open MPI v4.1.8", {"agents": "leave out --launcher"}),
        ("mpi", MPICH, "MPICH Version: 5.0.2", dict.fromkeys(LAUNCHERS, "HOROVOD_WITH_GLOO=1")),
    ],
)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_launcher_that_cannot_start_a_stack_is_refused_with_what_can(
    launcher: str, built: str, version: str, library: str | None, told: dict[str, str]
) -> None:
    flags = tuple(built.split())
    stack = replace(STACK, mpirun_version=version, mpi_library=library, horovod_flags=flags)
    if launcher not in told:
        check_can_start(launcher, stack)
        return
    with pytest.raises(UserError, match=told[launcher]) as caught:
        check_can_start(launcher, stack)
    assert "\n" not in str(caught.value)


def test_without_an_mpirun_ranks_start_by_agents_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    stack = replace(STACK, interpreter=str(tmp_path / "python"), mpirun_version=NO_MPIRUN)
    check_can_start("agents", stack)
    with pytest.raises(UserError, match=r"there is no mpirun.*make env.*--launcher agents"):
        check_can_start("mpirun", stack)
    broken = tmp_path / "mpirun"
    broken.write_text("#!/bin/sh\necho libopen-rte.so.40: not found >&2; exit 127\n")
    broken.chmod(0o755)
    with pytest.raises(UserError, match=r"exit status 127\): libopen-rte.so.40: not found"):
        check_can_start("mpirun", stack)
