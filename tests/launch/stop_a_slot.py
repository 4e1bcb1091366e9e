"""Under mpirun: rank 0 stops rank 1, and goes on as a session does. Prints what it is told."""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from hvdperf.errors import UserError  # noqa: E402
from hvdperf.launch import slots as slots_of_mpirun  # noqa: E402
from hvdperf.launch.launchers import (  # noqa: E402
    AgentsLauncher,
    LaunchError,
    Order,
)
from hvdperf.launch.outer import outer_rank  # noqa: E402
from hvdperf.launch.processes import Agent, LocalAgent  # noqa: E402
from hvdperf.launch.slots import RemoteAgent, Slots, lend_slot  # noqa: E402
from hvdperf.machine.placement import place  # noqa: E402

slots_of_mpirun.ANSWER_S = slots_of_mpirun.LEAVE_S = 1.0


def process_of(rank: int) -> int:
    """Of this mpirun."""
    children = Path(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read_text().split()
    for child in children:
        variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        if b"OMPI_COMM_WORLD_RANK=%d" % rank in variables:
            return int(child)
    raise LookupError(rank)


if outer_rank() > 0:
    lend_slot()
scratch = Path(tempfile.mkdtemp())
slots = Slots()
offers = slots.offers()
os.kill(process_of(1), signal.SIGSTOP)
others = [RemoteAgent(slots, rank) for rank in (1, 2)]
agents: list[Agent] = [LocalAgent(scratch / "agent-0"), *others]
began = time.monotonic()
order = Order(place(offers), sys.executable, {}, scratch / "launch-0", 60.0)
for _ in range(2):
    try:
        AgentsLauncher(agents).start(order)
    except LaunchError as error:
        print(f"{time.monotonic() - began:.1f} LaunchError: {error}", flush=True)
try:
    slots.offers()
except UserError as error:
    print(f"{time.monotonic() - began:.1f} UserError: {error}", flush=True)
print(f"rank 2 still answers: {slots.call(2, 'offer')['rank'] == 2}", flush=True)
slots.release(0)
