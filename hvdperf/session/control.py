"""Whose fault it is that a session cannot measure: looks at this host before it measures, and tells
a stack that cannot start from a machine, or an environment, that cannot start anything."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from hvdperf.launch.arm_launcher import ArmLauncher
from hvdperf.launch.launchers import LaunchError
from hvdperf.launch.live_launch import LaunchFailed
from hvdperf.machine.cpu_usage import make_meter
from hvdperf.machine.fitness import Check, gpu_checks, host_checks, load_check
from hvdperf.machine.host import Machine, local_machine
from hvdperf.machine.placement import Slot, local_offers, place
from hvdperf.machine.starting import killed_for_memory, missing, not_needed, of_environment
from hvdperf.models.inputs import DataError
from hvdperf.plan.arms import AA, AGAINST, SWEEP, Arm, BlockKind
from hvdperf.records.outcome import Failure
from hvdperf.worker.protocol import STARTUP, Phase
from hvdperf.worker.strategies import Strategy

# Seconds for which the load is watched: the kernel counts in ticks of 10 ms, so half a second shows
# 1 % of two cores.
WATCHED_S = 0.5
# The same, where nobody waits for the session.
WATCHED_AT_LEISURE_S = 2.0


def local_preflight(results: Path) -> list[Check]:
    """Return what was found of this host and all of its slots. results: as in preflight."""
    machine = local_machine()
    return preflight(machine, place(local_offers(machine)), results, WATCHED_AT_LEISURE_S)


def preflight(
    machine: Machine, slots: Sequence[Slot], results: Path, seconds: float = WATCHED_S
) -> list[Check]:
    """Return what was found of this host. slots: the session's. results: the directory of the
    results. seconds: for which the load is watched."""
    here = sum(slot.host == machine.host for slot in slots)
    with ThreadPoolExecutor(1) as pool:
        # nvidia-smi takes up to a second on a node of eight GPUs.
        gpus = pool.submit(gpu_checks, machine.gpus, os.environ)
        meter = make_meter(slots, time.monotonic())
        load = [load_check(meter, seconds)] if meter is not None else []
        return [*host_checks(machine, here, results), *load, *gpus.result()]


# Seconds that a launch for comparison may take.
DEADLINE_S = 60.0
# Failures for which ranks are started for comparison.
MOST = 3
_STARTING = {phase.value for phase in STARTUP}


@dataclass
class Control:
    """Examines failures of launches. say: called with each line of progress."""

    arm_launcher: ArmLauncher
    say: Callable[[str], None]
    _killed: int = field(default_factory=killed_for_memory)
    _launches: int = 0
    # What the machine lacks, for as many processes or more.
    _known: dict[int, str] = field(default_factory=dict)

    def examined(self, arm: Arm, failure: Failure) -> Failure:
        """Return the failure, marked as the machine's if the machine or the user's environment is
        at fault, with what is wrong."""
        injected = self.arm_launcher.fault is not None or arm.injected not in ("", AA)
        if injected or not failure.started or failure.of_user or failure.of_node:
            return failure
        said = [failure.cause, *failure.tail]
        reason = missing(arm.processes, said, self._killed)
        self._killed = killed_for_memory()
        if not reason and failure.phase in _STARTING:
            known = (text for count, text in self._known.items() if arm.processes >= count)
            reason = next(known, "") or self._compared(arm)
        if not reason:
            return failure
        self._known.setdefault(arm.processes, reason)
        self.say(f"{arm.name}: {reason}")
        return replace(failure, cause=f"{failure.cause}; {reason}", of_node=True)

    def _compared(self, arm: Arm) -> str:
        """Return why the machine or the environment is at fault, by launches of the same size; ""
        if the stack is, or if that cannot be told."""
        slots = self.arm_launcher.slots[: arm.world_size]
        if self._launches >= MOST or len({slot.host for slot in slots}) > 1:
            return ""
        self._launches += 1
        groups = not_needed()
        every = [name for names in groups.values() for name in names]
        if not self._problem(arm, "without the user's settings", every):
            guilty = (
                names
                for names in groups.values()
                if not self._problem(arm, f"without {', '.join(names[:2])}", names)
            )
            # Every launch has this environment.
            return self._known.setdefault(1, of_environment(next(guilty, every)))
        stacks = self.arm_launcher.stacks
        if AGAINST in stacks:
            other = replace(arm, stack="" if arm.stack else AGAINST)
            problem = self._problem(other, "by the other stack")
            return f"the other stack does not start either: {problem}" if problem else ""
        bare = Arm(SWEEP, Strategy.BARE, arm.world_size)
        problem = self._problem(bare, "by MPI alone")
        if not problem or "mpi4py" in problem:
            return ""
        return f"processes of MPI alone do not start either: {problem}"

    def _problem(self, arm: Arm, how: str, without: Collection[str] = ()) -> str:
        """Start the arm for comparison; return why it does not start, "" if it does."""
        self.say(f"for comparison: start {arm.label} {how}")
        last = Phase.BROADCAST if arm.strategy.spec.trains else Phase.INIT
        try:
            group = self.arm_launcher.start(
                arm,
                {BlockKind.FULL},
                data_seed=1,
                share_startup=True,
                last_phase=last,
                without=without,
            )
            group.wait_ready(DEADLINE_S)
            group.close()
        except LaunchFailed as failed:
            return failed.failure.cause
        except (LaunchError, DataError, OSError) as error:
            return str(error)
        return ""
