"""Decides who is at fault if something cannot be measured: checks this host before a session, tries
the user's own networks and scripts, and distinguishes a stack that cannot start from a machine or
an environment that cannot start anything."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from hvdperf.launch.arm_launcher import PATIENCE, ArmLauncher, Pace
from hvdperf.launch.launchers import LaunchError
from hvdperf.launch.live_launch import LaunchFailed, LiveLaunch
from hvdperf.machine.disturbance import make_meter
from hvdperf.machine.fitness import Check, gpu_checks, host_checks, load_check
from hvdperf.machine.host import Machine, local_machine
from hvdperf.machine.placement import Slot, local_offers, place
from hvdperf.machine.starting import killed_for_memory, missing, not_needed, of_environment
from hvdperf.models.inputs import DataError
from hvdperf.models.registry import Network, network
from hvdperf.paths import shown
from hvdperf.plan.arms import AA, AGAINST, SWEEP, Arm, BlockKind
from hvdperf.plan.comparisons import Comparison
from hvdperf.records.outcome import Failure
from hvdperf.verdict import Judgement, Verdict
from hvdperf.worker.protocol import STARTUP, Phase
from hvdperf.worker.script.rank import UNSEEN
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


# Failed launches ---------------------------------------------------------------------------------

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
        at fault, with what is wrong. A reason also counts for later launches of as many processes
        or more."""
        injected = self.arm_launcher.fault is not None or arm.injected not in ("", AA)
        if injected or not failure.started or failure.of_user or failure.of_node:
            return failure
        before, self._killed = self._killed, killed_for_memory()
        reason = missing(arm.processes, [failure.cause, *failure.tail], before)
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


# Own networks ------------------------------------------------------------------------------------
# A launch of each way to train them carries out the order `check`.

# Training steps of a trial.
STEPS = 3
# Seconds that a start or an order may take longer than one of a network of the suite.
PATIENCE_S = 600.0


@dataclass(frozen=True)
class FirstSteps:
    """What a rank reports of the first steps of the user's own network or script.

    step_seconds: of one of STEPS steps. start_seconds: from the trace to the broadcast, if the
    start-up left them out. samples: of all steps, 0 if they are not counted. sparse: number of
    gradients of single rows. exchange_seen: whether an exchange is told from computing. identity: a
    text that tells the network's own data from others, if rank 0 has read them.
    """

    step_seconds: float
    start_seconds: float = 0.0
    samples: int = 0
    sparse: int = 0
    exchange_seen: bool = True
    identity: str = ""


@dataclass
class Trial:
    """What was found of one network.

    error: why it cannot be measured at all, in words; "" if it can. of_node: whether the machine or
    the environment may be at fault, as when time ran out. refused: reasons why arms cannot be
    trained in their way. sparse: number of gradients of single rows. unseen: whether the exchange
    of a script cannot be told from computing. identity: as in FirstSteps.
    """

    error: str = ""
    of_node: bool = False
    refused: dict[Arm, str] = field(default_factory=dict)
    sparse: int = 0
    unseen: bool = False
    pace: Pace = field(default_factory=Pace)
    identity: str = ""

    def judgement(self, comparison: Comparison) -> Judgement | None:
        """Return the judgement of a comparison that is not to be measured; None for others."""
        reason, verdict = self._not_to_be_measured(comparison)
        return Judgement(verdict, None, None, 0, reason) if reason else None

    def _not_to_be_measured(self, comparison: Comparison) -> tuple[str, Verdict]:
        if self.error:
            return self.error, Verdict.NOT_RUN
        for arm in comparison.arms:
            if arm in self.refused:
                return f"{arm.label} cannot train it: {self.refused[arm]}", Verdict.NOT_RUN
        if self.unseen and comparison.question.spec.without_exchange:
            return UNSEEN, Verdict.INFO
        arms = comparison.arms
        if any(arm.exchange == "dense" for arm in arms) and not self.sparse:
            return "it has no sparse gradient, so this is the default", Verdict.INFO
        if self.sparse and any(not arm.strategy.spec.trains for arm in arms):
            return (
                f"Horovod gathers only the rows of {self.sparse} of its gradients that a batch "
                "looks up, and bare MPI would reduce whole tables"
            ), Verdict.INFO
        return "", Verdict.INFO

    def take(self, starts: float, checks: Sequence[FirstSteps]) -> None:
        """Take the reports of a launch that became ready in so many seconds."""
        starts += max(each.start_seconds for each in checks)
        steps = max(each.step_seconds for each in checks)
        pace = self.pace
        self.pace = Pace(max(pace.start_seconds, starts), max(pace.step_seconds, steps))
        self.sparse = max(self.sparse, *(each.sparse for each in checks))
        self.unseen |= not all(each.exchange_seen for each in checks)
        self.identity = self.identity or checks[0].identity


class NotTrained(Exception):
    """A way does not train the network; the message says why. of_node: the machine or the
    environment may be at fault."""

    def __init__(self, why: str, of_node: bool) -> None:
        super().__init__(why)
        self.of_node = of_node


def try_all(
    comparisons: Iterable[Comparison], arm_launcher: ArmLauncher, say: Callable[[str], None]
) -> dict[str, Trial]:
    """Try the networks of the comparisons that are the user's own, in every way in which these
    train them, with every stack. Return what was found, by network. say: called with progress."""
    arms: dict[str, dict[Arm, None]] = {}
    for comparison in comparisons:
        for arm in comparison.arms:
            trains = arm.strategy.spec.trains and arm.workload != SWEEP
            if trains and network(arm.workload.model).origin:
                arms.setdefault(arm.workload.model, {})[arm] = None
    if not arms:
        return {}
    unknown = Pace(PATIENCE_S / PATIENCE, PATIENCE_S / PATIENCE)
    without_fault = replace(arm_launcher, fault=None, paces=dict.fromkeys(arms, unknown))
    with without_fault.forking(say):
        return {
            name: _try(network(name), list(of_network), without_fault, say)
            for name, of_network in arms.items()
        }


def _try(
    own: Network, arms: Sequence[Arm], arm_launcher: ArmLauncher, say: Callable[[str], None]
) -> Trial:
    """Try one network. A network that no way of the session's own stack can train is at fault
    itself."""
    found, problems, trained = Trial(), list[NotTrained](), False
    where = shown(Path(own.origin)) + (f": network {own.name!r}" if not own.script else "")
    before = None
    for arms_of_way in _ways(own, arms):
        # Neither a fault nor a way to launch makes a network trainable.
        arm = replace(arms_of_way[0], injected="", launched="")
        is_first, before = arm.stack != before, arm.stack
        if is_first and arm.stack and not trained:
            break
        say(f"try {arm.name}")
        try:
            _try_way(own, arm, arm_launcher, found, is_first, say)
            trained = True
        except NotTrained as error:
            found.refused.update(dict.fromkeys(arms_of_way, str(error)))
            problems.append(error)
    if problems and not trained:
        found.error = f"{where}: {problems[0]}"
        found.of_node = all(error.of_node for error in problems)
    return found


def _ways(own: Network, arms: Iterable[Arm]) -> list[list[Arm]]:
    """Return the arms by the way in which they train, those of the session's own stack first. The
    plain ones with most replicas come first, also in each way. All arms of a script train alike."""
    ways: dict[object, list[Arm]] = {}
    for arm in sorted(
        arms,
        key=lambda arm: (arm.stack, bool(arm.injected), len(arm.variants), -arm.world_size),
    ):
        training = () if own.script else (arm.strategy, arm.workload, arm.exchange, arm.passes)
        ways.setdefault((arm.stack, training), []).append(arm)
    return list(ways.values())


def _try_way(
    own: Network,
    arm: Arm,
    arm_launcher: ArmLauncher,
    found: Trial,
    is_first: bool,
    say: Callable[[str], None],
) -> None:
    """Start an arm, and let it train a few steps. Of the first one of a stack the gradients are
    looked at. The network's own data are read once, with the session's own stack. Raises
    NotTrained."""
    began, group = time.monotonic(), None
    read = bool(own.data and not found.identity and not arm.stack)
    deadline_s = arm_launcher.startup_deadline(arm)
    try:
        # What the trace and the first step meet is found by the check, which knows more of it.
        group = arm_launcher.start(
            arm, (BlockKind.FULL,), data_seed=1, share_startup=False, last_phase=Phase.INPUT
        )
        group.wait_ready(deadline_s)
        starts = time.monotonic() - began
        began = time.monotonic()
        checks = group.reports(
            FirstSteps, "check", deadline_s, steps=STEPS, is_first=is_first, read=read
        )
        group.close()
    except LaunchFailed as failed:
        raise _not_trained(failed.failure, group, began + deadline_s) from None
    except (LaunchError, DataError, OSError) as error:
        raise NotTrained(str(error), of_node=True) from None
    finally:
        if group is not None:
            group.end()
    found.take(starts, checks)
    if all(each.samples == STEPS for each in checks):
        say(f"{own.name}: a step counts as one sample: no batch is seen")


def _not_trained(failure: Failure, group: LiveLaunch | None, deadline: float) -> NotTrained:
    """Return the error of a launch that failed. Of a rank that ended without a word, it has the
    last line that this has written."""
    ranks = group.ranks if group is not None else []
    why = failure.cause
    if failure.rank is not None and not ranks[failure.rank].error and failure.tail:
        why += f": {failure.tail[-1]}"
    unconnected = not any(rank.pid for rank in ranks)
    late = time.monotonic() >= deadline
    return NotTrained(why, failure.of_node or unconnected or late)
