"""`python -m bench soak`: starts and ends N launches, good and bad ones, and reports what they
leave behind.

Exit status 1 if anything was left behind, or a launch did not end as it should.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from hvdperf.columns import Columns
from hvdperf.errors import UserError
from hvdperf.launch.arm_launcher import ArmLauncher, Installed, make_launcher
from hvdperf.launch.helpers import scratch_directory
from hvdperf.launch.hub import Hub
from hvdperf.launch.launchers import LaunchError
from hvdperf.launch.live_launch import LaunchFailed, LiveLaunch
from hvdperf.machine.host import local_machine
from hvdperf.machine.placement import local_offers, place
from hvdperf.machine.stack import find_mpirun
from hvdperf.plan.arms import SWEEP, Arm
from hvdperf.plan.options import LAUNCHERS
from hvdperf.plan.questions import Fault
from hvdperf.worker.process import stat_fields
from hvdperf.worker.protocol import DRIVER_VARIABLE, Phase
from hvdperf.worker.strategies import Strategy

# Names of Open MPI's own files in the directory for temporary files.
_OPEN_MPIS = ("ompi.*", "openmpi-*", "pmix*", "prte*", "vader*")
SHARED_MEMORY = Path("/dev/shm")

# The names that were found, by kind.
Census = Mapping[str, frozenset[str]]


def take_census(scratch: Path, ports: Iterable[int]) -> Census:
    """Return what exists now of this process, of launches that were to connect to one of the ports,
    and of this user's files: all of /dev/shm, everything below scratch, and Open MPI's own. A port
    on which somebody still listens is a descriptor of this process, or a launch's process."""
    temporary = Path(tempfile.gettempdir())
    files = [*scratch.rglob("*"), *(found for name in _OPEN_MPIS for found in temporary.glob(name))]
    return {
        "processes": frozenset(f"{pid} {name}" for pid, name in launched(ports).items()),
        "file descriptors": descriptors(os.getpid()),
        "shared memory": frozenset(map(str, _own(SHARED_MEMORY.iterdir()))),
        "temporary files": frozenset(map(str, _own(files))),
    }


def _own(files: Iterable[Path]) -> Iterable[Path]:
    """Yield the files of this user; others may be at work on this machine, too."""
    for path in files:
        with suppress(OSError):
            if path.lstat().st_uid == os.getuid():
                yield path


def launched(ports: Iterable[int]) -> dict[int, str]:
    """Return the names of processes, by process id: those whose environment names one of the ports,
    and ended children of this process for which nobody has waited."""
    address = re.compile(rf"(?:^|\0){DRIVER_VARIABLE}=[^\0]*:(?:{'|'.join(map(str, ports))}):")
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        pid = int(process.name)
        with suppress(OSError):
            is_zombie = stat_fields(pid)[:2] == ["Z", str(os.getpid())]
            if is_zombie or address.search((process / "environ").read_text(errors="replace")):
                found[pid] = (process / "comm").read_text().strip()
    return found


def descriptors(pid: int) -> frozenset[str]:
    """Return the names that the kernel gives to a process's open files."""
    found = set()
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found.add(os.readlink(descriptor))
    # Without the directory that has just been listed.
    return frozenset(found - {f"/proc/{pid}/fd"})


RANKS = 2
DEADLINE_S = 60.0
# Seconds for the kernel to remove what was killed last.
SETTLE_S = 10.0
BARE, HOROVOD = (Arm(SWEEP, strategy, RANKS) for strategy in (Strategy.BARE, Strategy.HOROVOD))

End = Callable[[LiveLaunch], None]


def leave(group: LiveLaunch) -> None:
    """End the group as a user's script ends."""
    group.close(leave_group=True)


def killed_while_stopped(group: LiveLaunch) -> None:
    group.pause()
    os.kill(group.ranks[1].pid, signal.SIGKILL)
    group.resume()
    group.ask("evidence", DEADLINE_S)


def server_killed(group: LiveLaunch) -> None:
    assert group.server is not None
    os.kill(group.server.pid, signal.SIGKILL)
    while True:  # until the ranks have died, too
        group.ask("evidence", DEADLINE_S)


def dropped(group: LiveLaunch) -> None:
    """Kill and end the group without an order to close, as after Ctrl-C."""
    group.kill()
    group.end()


@dataclass(frozen=True)
class Kind:
    """A kind of launch. launcher: by name. end: how the launch ends. fault: the injected one, if
    any. fails: the ranks of which one has to fail; empty if none may. forked: whether a server of
    its own forks the ranks."""

    launcher: str
    arm: Arm
    end: End = LiveLaunch.close
    fault: Fault | None = None
    fails: tuple[int, ...] = ()
    forked: bool = False

    @property
    def name(self) -> str:
        fault = self.fault
        how = f"{fault.kind} in {fault.phase}" if fault else self.end.__name__
        what = f"{'forked ' * self.forked}{self.arm.strategy.value}"
        return f"{self.launcher} {what}: {how.replace('_', ' ')}"


# Taken in turns. BARE comes more often because it is cheap: it needs no TensorFlow.
KINDS = (
    Kind("mpirun", BARE),
    Kind("mpirun", HOROVOD, forked=True),
    Kind("mpirun", BARE, killed_while_stopped, fails=(1,)),
    Kind("agents", HOROVOD, leave, forked=True),
    Kind("mpirun", BARE, dropped),
    Kind("mpirun", HOROVOD, fault=Fault("kill", rank=1, phase="init"), fails=(1,), forked=True),
    Kind("mpirun", BARE, leave),
    Kind("agents", HOROVOD, fault=Fault("exit", rank=1, phase="import"), fails=(1,), forked=True),
    Kind("mpirun", HOROVOD, killed_while_stopped, fails=(1,), forked=True),
    Kind("agents", HOROVOD, server_killed, fails=(0, 1), forked=True),
    Kind("mpirun", HOROVOD, fault=Fault("raise", rank=0, phase="init"), fails=(0,)),
    *(Kind(name, HOROVOD) for name in LAUNCHERS),
)


@contextmanager
def starters(scratch: Path) -> Iterator[Mapping[str, ArmLauncher]]:
    """Yield an ArmLauncher for each launcher, by its name, with all files below scratch."""
    slots = place(local_offers(local_machine(), RANKS, oversubscribe=True))
    mpirun = str(find_mpirun(Path(sys.executable)))
    launchers = {name: make_launcher(name, mpirun, RANKS, scratch, None) for name in LAUNCHERS}
    # What is made once exists before the first launch: directories, and the process that removes
    # those of launches.
    scratch_directory("made-once-", scratch)
    for name in ("agent-0", "agent-1", *launchers):
        (scratch / name).mkdir()
    made = {
        name: ArmLauncher(
            stacks={"": Installed(sys.executable, launcher)},
            hub=Hub(),
            slots=slots,
            data={},
            scratch=scratch / name,
            startup_deadline_s=DEADLINE_S,
            order_deadline_s=DEADLINE_S,
        )
        for name, launcher in launchers.items()
    }
    try:
        yield made
    finally:
        for arm_launcher in made.values():
            arm_launcher.hub.close()


def launch(arm_launcher: ArmLauncher, kind: Kind) -> str:
    """Start and end a launch. Return what went wrong in words; return "" if nothing did."""
    arm_launcher.fault = kind.fault
    problem = f"no rank of {kind.fails} failed" if kind.fails else ""
    with arm_launcher.forking(print) if kind.forked else nullcontext():
        try:
            group = arm_launcher.start(
                kind.arm, (), data_seed=1, share_startup=False, last_phase=Phase.INIT
            )
            try:
                group.wait_ready(DEADLINE_S)
                kind.end(group)
            finally:
                group.end()
        except LaunchError as error:
            problem = str(error)
        except LaunchFailed as failed:
            problem = "" if failed.failure.rank in kind.fails else str(failed)
    return problem and f"{kind.name}: {problem}"


def soak(launches: int, scratch: Path) -> list[str]:
    """Run the launches and print a summary. Return the problems that were found."""
    with starters(scratch) as by_launcher:
        ports = [arm_launcher.hub.port for arm_launcher in by_launcher.values()]
        before = take_census(scratch, ports)
        done: Counter[str] = Counter()
        problems, began = [], time.monotonic()
        for kind in itertools.islice(itertools.cycle(KINDS), launches):
            problems.append(launch(by_launcher[kind.launcher], kind))
            done[kind.name] += 1
        seconds = time.monotonic() - began
        after = settled(before, lambda: take_census(scratch, ports))
    print(f"{launches} launches in {seconds:.0f} s, {seconds / max(launches, 1):.2f} s each:")
    lines, left = compared(before, after)
    print(*(f"  {count:>4} {name}" for name, count in done.items()), *lines, sep="\n")
    return [*filter(None, problems), *left]


def settled(before: Census, look: Callable[[], Census]) -> Census:
    """Return the first census with nothing left behind, or the last one after SETTLE_S seconds."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        after = look()
        if not compared(before, after)[1] or time.monotonic() > deadline:
            return after
        time.sleep(0.2)


def compared(before: Census, after: Census) -> tuple[list[str], list[str]]:
    """Return a table of counts, and a line for everything that only the census `after` has."""
    columns = Columns(("", -20), ("before", 6), ("after", 6), ("left", 6))
    table = [columns.header]
    left = []
    for what, names in after.items():
        new = sorted(names - before[what])
        table.append(columns.row(what, len(before[what]), len(names), len(new)))
        left += [f"left behind, of {what}: {name}" for name in new]
    return table, left


def start_and_end(launches: int = 200) -> int:
    """Start and end launches, good and bad ones, and report what they leave behind. The exit status
    is 1 if anything was left behind, or a launch did not end as it should.

    --launches N: The number of launches.
    """
    if launches < 1:
        raise UserError(f"{launches} launches: must be above zero")
    with tempfile.TemporaryDirectory(prefix="hvdperf-soak-", ignore_cleanup_errors=True) as scratch:
        problems = soak(launches, Path(scratch))
    print(*problems, sep="\n", end="\n" * bool(problems), file=sys.stderr)
    return int(bool(problems))
