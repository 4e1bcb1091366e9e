"""What a session opens before it can start anything: launchers, a socket, a scratch directory."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.launch.agent import Agent, LocalAgent
from hvdperf.launch.agents import AgentsLauncher
from hvdperf.launch.arm_launcher import Installed, Starter
from hvdperf.launch.hub import Hub
from hvdperf.launch.job import Launcher
from hvdperf.launch.mpirun import MpirunLauncher
from hvdperf.launch.slots import Slots
from hvdperf.machine.placement import Slot
from hvdperf.machine.stack import Stack
from hvdperf.plan.session_plan import Campaign
from hvdperf.worker.protocol import address_towards

# That ranks on other hosts connect to, where a user knows better.
ADDRESS_VARIABLE = "HVDPERF_ADDRESS"


def make_launcher(campaign: Campaign, stack: Stack, scratch: Path, slots: Slots | None) -> Launcher:
    """The launcher that the options name; slots: the other ranks under an outer mpirun."""
    if campaign.options.launcher == "mpirun":
        return MpirunLauncher(str(stack.mpirun))
    agents: list[Agent] = [LocalAgent(scratch / "agent-0")]
    for rank in range(1, len(campaign.slots)):
        agents.append(LocalAgent(scratch / f"agent-{rank}") if slots is None else slots.agent(rank))
    return AgentsLauncher(agents)


def reachable_address(slots: Sequence[Slot]) -> str:
    """By which ranks on other hosts reach this one: what the environment says, or that of the route
    to one of them. Raises UserError if there is none but loopback."""
    if named := os.environ.get(ADDRESS_VARIABLE):
        return named
    this = socket.gethostname()
    others = [host for host in dict.fromkeys(slot.host for slot in slots) if host != this]
    for host in [*others, this]:
        try:
            # Whatever port: nothing is sent.
            address = address_towards(host, 9)
        except OSError:
            continue
        if not ipaddress.ip_address(address).is_loopback:
            return address
    raise UserError(
        f"no address is known by which {others[0]} can reach {this}: set "
        f"{ADDRESS_VARIABLE} to one, or give the name {this} a routable address in /etc/hosts"
    )


def make_starter(campaign: Campaign, stacks: Mapping[str, Stack], slots: Slots | None) -> Starter:
    """Everything that is needed to start arms: a listening socket and a scratch directory. stacks:
    by Arm.stack. Raises UserError if there is no place for temporary files, or other hosts cannot
    reach this one."""
    one_host = len({slot.host for slot in campaign.slots}) == 1
    address = "" if one_host else reachable_address(campaign.slots)
    sampling = campaign.profile.sampling
    with ExitStack() as undo:
        try:
            scratch = Path(tempfile.mkdtemp(prefix="hvdperf-"))
        except OSError as error:
            raise UserError(f"no temporary files can be made: {error}; set TMPDIR") from None
        undo.callback(shutil.rmtree, scratch, ignore_errors=True)
        hub = Hub() if one_host else Hub("0.0.0.0", advertised=address)
        undo.callback(hub.close)
        starter = Starter(
            stacks={
                name: Installed(stack.interpreter, make_launcher(campaign, stack, scratch, slots))
                for name, stack in stacks.items()
            },
            hub=hub,
            slots=campaign.slots,
            data=campaign.data,
            scratch=scratch,
            startup_deadline_s=sampling.startup_deadline_s,
            order_deadline_s=sampling.block_deadline_s,
            fault=campaign.fault,
        )
        undo.pop_all()
    return starter


def dispose(starter: Starter) -> None:
    """Close the socket and remove the scratch directory."""
    starter.hub.close()
    shutil.rmtree(starter.scratch, ignore_errors=True)
