"""Resources that a session opens before it starts arms: launchers, a socket, a scratch
directory."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.launch import agents, mpirun
from hvdperf.launch.agents import Agent, AgentsLauncher, LocalAgent
from hvdperf.launch.arm_launcher import ArmLauncher, Installed, pinned_and_pooled
from hvdperf.launch.ends.scratch import scratch_directory
from hvdperf.launch.hub import Hub
from hvdperf.launch.job import Launcher
from hvdperf.launch.mpirun import MpirunLauncher
from hvdperf.launch.outer.interfaces import interface_settings
from hvdperf.launch.outer.slots import RemoteAgent, Slots
from hvdperf.machine.placement import Slot
from hvdperf.machine.stack import Stack
from hvdperf.plan.session_plan import SessionPlan


def how_launched(launcher: str, slots: Sequence[Slot]) -> str:
    """Return how the ranks of a session are started, in words: by what, with which binding and
    polling, on which cores and with how many threads. launcher: its name."""
    by = {"mpirun": mpirun.how_launched, "agents": agents.how_launched}[launcher]()
    return f"{by}; {pinned_and_pooled(slots)}"


def make_launcher(
    name: str, executable: str, processes: int, scratch: Path, slots: Slots | None
) -> Launcher:
    """Return the launcher with this name (plan.options.LAUNCHERS). executable: the stack's
    mpirun. processes: the most ranks of a launch. slots: the ranks of an outer mpirun, or None."""

    def agent(rank: int) -> Agent:
        if rank == 0 or slots is None:
            interface = slots.interface if slots is not None else None
            return LocalAgent(scratch / f"agent-{rank}", interface_settings(interface))
        return RemoteAgent(slots, rank)

    makers: Mapping[str, Callable[[], Launcher]] = {
        "mpirun": lambda: MpirunLauncher(executable, slots),
        "agents": lambda: AgentsLauncher([agent(rank) for rank in range(processes)]),
    }
    return makers[name]()


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
        processes, launcher = len(session_plan.slots), session_plan.options.launcher
        installed = {
            name: Installed(
                stack.interpreter,
                make_launcher(launcher, str(stack.mpirun), processes, scratch, slots),
            )
            for name, stack in stacks.items()
        }
        arm_launcher = ArmLauncher(
            stacks=installed,
            hub=hub,
            slots=session_plan.slots,
            data=session_plan.data,
            scratch=scratch,
            startup_deadline_s=sampling.startup_deadline_s,
            order_deadline_s=sampling.block_deadline_s,
            fault=session_plan.fault,
            gone=slots.gone if slots is not None else dict,
        )
        undo.pop_all()
    return arm_launcher


def dispose(arm_launcher: ArmLauncher) -> None:
    """Close the socket and remove the scratch directory."""
    arm_launcher.hub.close()
    shutil.rmtree(arm_launcher.scratch, ignore_errors=True)
