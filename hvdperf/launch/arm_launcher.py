"""Starts an arm as a group: opens what a session needs for that, and chooses the arm's slots, its
thread pools and the config of every rank."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from hvdperf.errors import UserError
from hvdperf.launch import launchers
from hvdperf.launch.helpers import scratch_directory
from hvdperf.launch.hub import Hub
from hvdperf.launch.live_launch import LiveLaunch
from hvdperf.launch.processes import Agent, ForkServer, LocalAgent, SlotGone
from hvdperf.launch.slots import RemoteAgent, Slots, interface_settings
from hvdperf.machine.placement import Slot, cores_of, place_group, replicas_per_node
from hvdperf.machine.stack import Stack
from hvdperf.machine.starting import user_settings
from hvdperf.models import inputs
from hvdperf.models.registry import network
from hvdperf.paths import ROOT
from hvdperf.plan import arms
from hvdperf.plan.arms import Arm, BlockKind, Exchange
from hvdperf.plan.data import DataSource, other_data
from hvdperf.plan.options import LAUNCHERS
from hvdperf.plan.questions import FAULT_CASES, Fault
from hvdperf.plan.session_plan import SessionPlan
from hvdperf.worker import protocol
from hvdperf.worker.protocol import Phase, RankConfig
from hvdperf.worker.script.tap import _hvdperf_private as private
from hvdperf.worker.strategies import Strategy

SEED = 20181231
# Something hangs if it takes this many times as long as the known pace predicts.
PATIENCE = 3
# Used if the data has no end, or if the learning rate is constant.
STEPS_OF_AN_EPOCH = 100
# Horovod gives up on a stalled collective before an order's deadline passes, because it names the
# missing ranks.
STALL_CHECK_S = 10
STALL_SHUTDOWN_FACTOR = 0.8
# Faults that are settings of Horovod. They override those of the arm's exchange.
FAULT_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "nofuse": {"fusion_bytes": arms.EXCHANGES["nofuse"].fusion_bytes},
    "cycle": {"cycle_ms": arms.EXCHANGES["cycle"].cycle_ms},
}


@dataclass(frozen=True)
class Threads:
    """The sizes of TensorFlow's two thread pools in one process; 0 lets TensorFlow choose."""

    intra_op: int
    inter_op: int


def threads(strategy: Strategy, slots: Sequence[Slot]) -> Threads:
    """Return the thread pools of one process that runs this strategy on the slots of a group.

    A process of one replica computes on its own slot's cores, with one operation at a time. A
    MirroredStrategy process computes on the cores of all slots. Each of its replicas needs an
    inter-op thread, because replicas that share a thread run one after another. If each slot has
    one core, an intra-op pool of one lets each replica's thread do its own arithmetic. Thus both
    strategies use the same number of cores. On GPUs the pools only feed the device, and TensorFlow
    sizes them by the cores that the process is pinned to. Raises ValueError for MirroredStrategy on
    several hosts.
    """
    share, replicas = len(slots[0].cores), len(slots)
    if slots[0].device is not None:
        return Threads(0, 0)
    if not strategy.spec.one_process:
        return Threads(share, 1)
    if len({slot.host for slot in slots}) > 1:
        raise ValueError(f"{strategy.value} runs in one process on one host")
    return Threads(1 if share == 1 else replicas * share, replicas)


@dataclass(frozen=True)
class Pace:
    """The seconds of a start and of a step of a network, alone on the machine."""

    start_seconds: float = 0.0
    step_seconds: float = 0.0


@dataclass
class ArmLauncher:
    """A launcher of arms on the session's slots.

    stacks: by Arm.stack. launcher: starts the ranks of each. over_mpi: whether Horovod communicates
    over MPI; over Gloo rank 0 has to help the ranks find each other (`meet` in
    worker/session_link.py). data: by the name of the data set. scratch: directory in which every
    launch gets a directory. startup_deadline_s, order_deadline_s: seconds. fault: injected by the
    session. gone: returns the slots that cannot be used any more, by rank. results: directory of
    the session's results. paces: of networks that have been tried, by model. unseen: models that
    are scripts whose exchange cannot be told from computing.
    """

    stacks: Mapping[str, Stack]
    launcher: launchers.Launcher
    over_mpi: bool
    hub: Hub
    slots: Sequence[Slot]
    data: Mapping[str, DataSource]
    scratch: Path
    startup_deadline_s: float
    order_deadline_s: float
    fault: Fault | None = None
    gone: Callable[[], Mapping[int, SlotGone]] = dict
    results: Path = Path()
    paces: dict[str, Pace] = field(default_factory=dict)
    unseen: Collection[str] = ()
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _placed: dict[Arm, tuple[Slot, ...]] = field(default_factory=dict, init=False)
    # By Arm.stack; None while ranks are fresh processes.
    _servers: dict[str, ForkServer] | None = field(default=None, init=False)

    @property
    def cores(self) -> int:
        """Number of cores of all slots together."""
        return len({(slot.host, core) for slot in self.slots for core in slot.cores})

    def start(
        self,
        arm: Arm,
        kinds: Collection[BlockKind],
        data_seed: int,
        share_startup: bool,
        seed: int = SEED,
        last_phase: Phase = Phase.BROADCAST,
        common_order: bool = False,
        without: Collection[str] = (),
    ) -> LiveLaunch:
        """Start a group for the arm, without waiting for it.

        kinds: kinds of blocks that the launch can time. data_seed: seed of everything random in the
        input. seed: seed of the initial weights. share_startup: start up on all of the session's
        cores instead of the arm's own, because other arms start at the same time. last_phase: last
        phase of the start-up. common_order: every strategy trains on the same global batches. Each
        rank then reads all of the data and takes its part of every batch; otherwise it reads only
        its own part of the data. without: variables of the session's environment that
        the ranks, which are then fresh processes, do not get. Raises LaunchError, DataError or
        OSError if the group cannot be started.
        """
        # A script, or TensorFlow itself, may count the cores when it starts.
        share_startup = share_startup and not (arm.workload.is_script or arm.launched)
        placed = self._place(arm)
        fault = self._fault_of(arm)
        injected = fault.kind if fault is not None else ""
        exchange = replace(arms.EXCHANGES[arm.exchange], **FAULT_SETTINGS.get(injected, {}))
        slots_by_rank = [placed] if arm.processes == 1 else [[slot] for slot in placed]
        strategy = arm.strategy.spec
        session_cores = cores_of(self.slots)
        by_gloo = strategy.horovod and not self.over_mpi
        rendezvous = launchers.rendezvous_plan(placed) if by_gloo else None
        configs = []
        for rank, slots in enumerate(slots_by_rank):
            config = self._config(arm, slots, exchange)
            other_data = fault is not None and injected == "data" and fault.rank == rank
            config = config._replace(
                kinds=sorted(kind.value for kind in kinds),
                seed=seed,
                data_seed=data_seed,
                last_phase=last_phase.value,
                common_order=common_order,
                share_startup=share_startup,
                startup_cores=session_cores if share_startup else config.startup_cores,
                rendezvous=rendezvous,
                cluster=strategy.cluster,
                fault=fault.as_config() if fault else None,
                data_dir=str(self._other_data(arm)) if other_data else config.data_dir,
            )
            configs.append(config.message())
        order = self._order(arm, placed, _settings(exchange), without)
        if arm.workload.is_script:
            top, scratch = Path(configs[0]["script_top"]), scratch_directory("hvdperf-")
            plan = private.plan(top, ROOT, scratch, order.scratch, self.results)
            environment = {**order.environment, private.VARIABLE: plan}
            order = replace(order, environment=environment)
        server = None if without else self._server(arm, placed)
        return LiveLaunch(arm.name, self.launcher, self.hub, order, configs, server)

    def _config(self, arm: Arm, slots: Sequence[Slot], exchange: Exchange) -> RankConfig:
        """Return a process's config, as far as it does not depend on the launch. slots: of the
        process."""
        workload, left = arm.workload, arms.LAUNCHES[arm.launched]
        pools = Threads(0, 0) if arms.THREADS in left else threads(arm.strategy, slots)
        # Where mpirun binds a rank, it stays.
        cores = () if arms.BINDING in left else cores_of(slots)
        trains = workload != arms.SWEEP
        known = network(workload.model) if trains else None
        script = shlex.split(known.script) if known is not None else []
        data = self.data[workload.dataset] if trains else DataSource(workload.dataset, "", 0)
        devices = [slot.device for slot in slots if slot.device is not None]
        return RankConfig(
            **asdict(workload),
            strategy=arm.strategy.value,
            world_size=arm.world_size,
            epoch_steps=self.epoch_steps(arm),
            data_dir=data.directory,
            data_id=data.identity,
            data_files=data.files,
            own_network=known.origin if known is not None and not script else "",
            script=script,
            script_place=known.place if known is not None else "",
            script_top=str(private.top_of(Path(known.place))) if known and script else "",
            classes=(known is not None and known.classes) or data.classes,
            # The rest of the exchange is in the rank's environment.
            exchange=protocol.Exchange(
                exchange.compression, exchange.reduction, exchange.groups, exchange.sparse_as_dense
            ),
            passes=arm.passes,
            cores=cores,
            startup_cores=cores,
            device=",".join(devices) if devices else None,
            intra_op=pools.intra_op,
            inter_op=pools.inter_op,
            input_threads=max(1, len(cores_of(slots))),
            seed=SEED,
        )

    def startup_deadline(self, arm: Arm) -> float:
        """Return the seconds that a start of the arm may take."""
        return self.startup_deadline_s + PATIENCE * self.pace(arm).start_seconds

    def pace(self, arm: Arm) -> Pace:
        """Return the pace of the arm's network, of which 0 s stands for an unknown one."""
        return self.paces.get(arm.workload.model, Pace())

    @contextmanager
    def forking(self, tell: Callable[[str], None]) -> Iterator[None]:
        """Within this context, fork the ranks of each stack from one process that has made their
        imports, where `_server` allows it. tell: called with the reason if that process cannot
        fork.

        The context is meant for a round, not for a session: ranks that are forked from one process
        have its memory at the same addresses, so such launches vary less than independent ones.
        """
        before, self._servers = self._servers, {}
        try:
            yield
        finally:
            servers, self._servers = self._servers, before
            for server in servers.values():
                if server.refusal:
                    tell(f"the ranks were started as fresh processes: {server.refusal}")
                server.close()

    def _server(self, arm: Arm, slots: Sequence[Slot]) -> ForkServer | None:
        """Return the process that forks the arm's ranks. Return None if they have to be fresh
        processes: outside of `forking`; for `bare`, which does not import TensorFlow; for a script,
        which may set what TensorFlow reads at its import; on other hosts, which have no server; on
        GPUs, because forking has not been tried with CUDA."""
        here = {slot.host for slot in slots} == {socket.gethostname()}
        on_cpus = all(slot.device is None for slot in slots)
        imports = arm.strategy.spec.trains and not arm.workload.is_script
        # What is forked is not bound by mpirun.
        bound = arms.BINDING in arms.LAUNCHES[arm.launched]
        if self._servers is None or bound or not (imports and here and on_cpus):
            return None
        server = self._servers.get(arm.stack)
        if server is not None and not server.ended:
            return server
        if server is not None:
            server.close()
        interpreter, cores = self.stacks[arm.stack].interpreter, cores_of(self.slots)
        server = ForkServer(interpreter, self.scratch, self.hub.address, cores)
        self._servers[arm.stack] = server
        return server

    def _place(self, arm: Arm) -> tuple[Slot, ...]:
        """Return the arm's slots, the same in every round: the first ones that are not gone. Raises
        SlotGone if it had one that is gone now, or if too few are left on hosts like the first
        ones."""
        gone = self.gone()
        if arm not in self._placed:
            left = [slot for slot in self.slots if slot.rank not in gone]
            fits = len(left) >= arm.world_size and replicas_per_node(
                left, arm.world_size
            ) == replicas_per_node(self.slots, arm.world_size)
            self._placed[arm] = place_group(left if fits else self.slots, arm.world_size)
        placed = self._placed[arm]
        for slot in placed:
            if slot.rank in gone:
                raise gone[slot.rank]
        return placed

    def _fault_of(self, arm: Arm) -> Fault | None:
        """Return the fault that the arm's fault case or the session injects into it, or None."""
        if arm.injected not in ("", arms.AA):
            return FAULT_CASES[arm.injected].injected
        return self.fault if self.fault is not None and self.fault.strikes(arm) else None

    def _other_data(self, arm: Arm) -> Path:
        """Return a directory with other data than the arm's. It is written only once, because
        living groups may read it."""
        dataset = arm.workload.dataset
        into = self.scratch / f"other-{dataset}"
        return into if into.exists() else other_data(self.data[dataset], into)

    def epoch_steps(self, arm: Arm) -> int:
        """Return the steps of one pass over the training data, a whole number of updates. Return
        STEPS_OF_AN_EPOCH if the learning rate is constant or the data has no end."""
        workload = arm.workload
        if workload.learning_rate == "constant":
            return STEPS_OF_AN_EPOCH
        data = self.data[workload.dataset]
        samples = inputs.extent(data.dataset, data.located, workload.input_size).train
        if samples is None:
            return STEPS_OF_AN_EPOCH
        return arm.passes * max(1, samples // (workload.batch * arm.world_size * arm.passes))

    def _order(
        self, arm: Arm, slots: Sequence[Slot], settings: Mapping[str, str], without: Collection[str]
    ) -> launchers.Order:
        """Return an order whose ranks get these settings, then the user's except those named by
        `without`, then Horovod's check for stalled collectives. Earlier ones override later
        ones."""
        within_s = self.order_deadline_s + PATIENCE * self.pace(arm).step_seconds
        shutdown = max(STALL_CHECK_S + 1, int(within_s * STALL_SHUTDOWN_FACTOR))
        defaults = {
            "HOROVOD_STALL_CHECK_TIME_SECONDS": str(STALL_CHECK_S),
            "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": str(shutdown),
        }
        kept = {name: value for name, value in os.environ.items() if name not in without}
        return launchers.Order(
            slots=slots[: arm.processes],
            interpreter=self.stacks[arm.stack].interpreter,
            mpirun=self.stacks[arm.stack].mpirun,
            environment={**dict.fromkeys(without), **defaults, **user_settings(kept), **settings},
            scratch=self.scratch / f"launch-{next(self._numbers)}",
            left=arms.LAUNCHES[arm.launched],
        )


def _settings(exchange: Exchange) -> dict[str, str]:
    """Return the settings of the exchange that Horovod reads from the environment."""
    settings = {
        "HOROVOD_FUSION_THRESHOLD": exchange.fusion_bytes,
        "HOROVOD_CYCLE_TIME": exchange.cycle_ms,
    }
    return {name: str(value) for name, value in settings.items() if value is not None}


def how_launched(launcher: str, slots: Sequence[Slot]) -> str:
    """Return how the ranks of a session are started, in words: by what, with which binding and
    polling, on which cores and with how many threads. launcher: its name."""
    cores = sorted({len(slot.cores) for slot in slots})
    pools = list(dict.fromkeys(threads(Strategy.HOROVOD, [slot]) for slot in slots))
    sizes = " or ".join(f"{pool.intra_op} intra-op and {pool.inter_op} inter-op" for pool in pools)
    if pools == [Threads(0, 0)]:
        sizes = "as many as TensorFlow chooses"
    how, counts = launchers.HOW_LAUNCHED[launcher], " or ".join(map(str, cores))
    each = "core" if cores == [1] else "cores"
    return (
        f"{how}; each rank pinned to the {counts} {each} of its slot; TensorFlow's threads: {sizes}"
    )


def make_launcher(
    over_mpi: bool, processes: int, scratch: Path, slots: Slots | None
) -> launchers.Launcher:
    """Return mpirun, or agents, as a launcher. processes: the most ranks of a launch. slots: the
    ranks of an outer mpirun, or None."""

    if over_mpi:
        return partial(launchers.start_by_mpirun, slots)

    def agent(rank: int) -> Agent:
        if rank == 0 or slots is None:
            interface = slots.interface if slots is not None else None
            return LocalAgent(scratch / f"agent-{rank}", interface_settings(interface))
        return RemoteAgent(slots, rank)

    return partial(launchers.start_by_agents, [agent(rank) for rank in range(processes)])


def make_arm_launcher(
    session_plan: SessionPlan, stacks: Mapping[str, Stack], slots: Slots | None
) -> ArmLauncher:
    """Open a listening socket and a scratch directory, and return an ArmLauncher that uses them.
    stacks: by Arm.stack. Raises UserError if temporary files or a socket cannot be made."""
    sampling = session_plan.profile.sampling
    with ExitStack() as undo:
        try:
            scratch = Path(scratch_directory("hvdperf-"))
        except OSError as error:
            raise UserError(f"no temporary files can be made: {error}; set TMPDIR") from None
        undo.callback(shutil.rmtree, scratch, ignore_errors=True)
        interface = slots.interface if slots is not None else None
        hub = Hub() if interface is None else Hub("0.0.0.0", str(interface.address.ip))
        undo.callback(hub.close)
        over_mpi = LAUNCHERS[session_plan.options.launcher].over_mpi
        arm_launcher = ArmLauncher(
            stacks=stacks,
            launcher=make_launcher(over_mpi, len(session_plan.slots), scratch, slots),
            over_mpi=over_mpi,
            hub=hub,
            slots=session_plan.slots,
            data=session_plan.data,
            scratch=scratch,
            startup_deadline_s=sampling.startup_deadline_s,
            order_deadline_s=sampling.block_deadline_s,
            fault=session_plan.fault,
            gone=slots.gone if slots is not None else dict,
            results=Path(session_plan.options.results).absolute(),
        )
        undo.pop_all()
    return arm_launcher


def dispose(arm_launcher: ArmLauncher) -> None:
    """Close the socket and remove the scratch directory."""
    arm_launcher.hub.close()
    shutil.rmtree(arm_launcher.scratch, ignore_errors=True)
