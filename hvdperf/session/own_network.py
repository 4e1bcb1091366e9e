"""Tries networks of the user's own in processes of a stack, before anything is measured."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hvdperf.files import write_whole
from hvdperf.launch.arm_launcher import ArmLauncher, Pace
from hvdperf.launch.guard import guarded
from hvdperf.launch.launchers import LaunchError
from hvdperf.launch.live_launch import LaunchFailed
from hvdperf.machine.stack import Stack
from hvdperf.machine.starting import rank_environment
from hvdperf.models.own_networks import digest
from hvdperf.models.registry import Network, network
from hvdperf.paths import CACHE, ROOT, shown
from hvdperf.plan.arms import SWEEP, Arm, BlockKind
from hvdperf.plan.comparisons import Comparison, Question
from hvdperf.programs import run
from hvdperf.records.rounds import BlockReport
from hvdperf.verdict import Judgement, Verdict
from hvdperf.worker.own_trial import APART_AT_MOST
from hvdperf.worker.script.rank import UNSEEN

# Steps of each kind of block of a script that is tried.
STEPS_OF_A_TRIAL = 3
# Seconds that one way of training, or reading the data, may take.
DEADLINE_S = 600.0
# Changes with what a trial does, so that what was remembered of earlier ones is not taken.
_VERSION = 3


@dataclass
class Trial:
    """What was found of one network.

    error: why it cannot be measured at all, in words; "" if it can. late: whether that is only
    because time ran out. refused: reasons why arms cannot be trained in their way. doubt: why no
    figure of the network can be trusted. differs: why its trainings cannot be compared. sparse:
    number of gradients of single rows. unseen: why the exchange of a script cannot be told from
    computing. identity: a text that tells its own data from others.
    """

    error: str = ""
    late: bool = False
    refused: dict[Arm, str] = field(default_factory=dict)
    doubt: str = ""
    differs: str = ""
    sparse: int = 0
    unseen: str = ""
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
        if self.doubt:
            return self.doubt, Verdict.INVALID
        if self.unseen and comparison.question is Question.COMMUNICATION:
            return self.unseen, Verdict.INFO
        if self.differs and comparison.tolerance is not None:
            return (
                "its trainings cannot be compared, because its data differ at each opening "
                f"({self.differs}): give its shuffle and its random operations a seed, and "
                "map with deterministic=True; its speeds are measured"
            ), Verdict.INVALID
        arms = comparison.arms
        if any(arm.exchange == "dense" for arm in arms) and not self.sparse:
            return "it has no sparse gradient, so this is the default", Verdict.INFO
        if self.sparse and any(not arm.strategy.spec.trains for arm in arms):
            return (
                f"Horovod gathers only the rows of {self.sparse} of its gradients that a batch "
                "looks up, and bare MPI would reduce whole tables"
            ), Verdict.INFO
        return "", Verdict.INFO


def try_all(
    comparisons: Iterable[Comparison],
    arm_launcher: ArmLauncher,
    stacks: Mapping[str, Stack],
    say: Callable[[str], None],
) -> dict[str, Trial]:
    """Try the networks of the comparisons that are the user's own, in every way in which these
    train them, with every stack. Return what was found, by network. say: called with progress."""
    arms: dict[str, dict[Arm, None]] = {}
    for comparison in comparisons:
        for arm in comparison.arms:
            trains = arm.strategy.spec.trains and arm.workload != SWEEP
            if trains and network(arm.workload.model).origin:
                arms.setdefault(arm.workload.model, {})[arm] = None
    return {
        name: _try_script(list(of_network), arm_launcher, say)
        if network(name).script
        else _try_one(network(name), list(of_network), arm_launcher, stacks, say)
        for name, of_network in arms.items()
    }


def _try_script(
    arms: Sequence[Arm], arm_launcher: ArmLauncher, say: Callable[[str], None]
) -> Trial:
    """Try a script with every stack, on as many ranks as the session will."""
    found = Trial()
    for stack in sorted({arm.stack for arm in arms}):
        of_stack = [arm for arm in arms if arm.stack == stack]
        plain = [arm for arm in of_stack if not arm.injected and not arm.launched]
        arm = max(plain or of_stack, key=lambda arm: arm.world_size)
        say(f"try {arm.name}")
        problem = _try_launch(arm, arm_launcher, found, say)
        if problem and not stack:
            found.error = problem
            break
        if problem:
            found.refused.update(dict.fromkeys(of_stack, problem))
    return found


def _try_launch(
    arm: Arm, arm_launcher: ArmLauncher, found: Trial, say: Callable[[str], None]
) -> str:
    """Start an arm of a script and let it train a few steps. Return why it cannot be measured; ""
    if it can."""
    began, deadline_s = time.monotonic(), arm_launcher.startup_deadline_s
    kinds = (BlockKind.FULL, BlockKind.LOCAL) if arm.world_size > 1 else (BlockKind.FULL,)
    kind = BlockKind.FULL
    try:
        group = arm_launcher.start(arm, kinds, data_seed=1, share_startup=False)
        group.wait_ready(deadline_s)
        starts = time.monotonic() - began
        for kind in kinds:
            asked = {"kind": kind.value, "steps": STEPS_OF_A_TRIAL}
            blocks = group.reports(BlockReport, "block", deadline_s, **asked)
            if kind is BlockKind.FULL:
                seconds = max(each.seconds for each in blocks) / STEPS_OF_A_TRIAL
                found.pace = Pace(starts, seconds)
                if all(each.samples == STEPS_OF_A_TRIAL for each in blocks):
                    say(f"{arm.workload.model}: a step counts as one sample: no batch is seen")
        group.close()
    except LaunchFailed as failed:
        if kind is not BlockKind.LOCAL or UNSEEN not in failed.failure.cause:
            return str(failed.failure)
        found.unseen = UNSEEN
    except (LaunchError, OSError) as error:
        return f"{arm.name}: {error}"
    return ""


def _try_one(
    own: Network,
    arms: Sequence[Arm],
    arm_launcher: ArmLauncher,
    stacks: Mapping[str, Stack],
    say: Callable[[str], None],
) -> Trial:
    """Try one network. The ways are tried with the arms of most replicas, the plain one first. A
    network that no way of the session's own stack can train is at fault itself."""
    ways: dict[object, list[Arm]] = {}
    for arm in sorted(arms, key=lambda arm: (len(arm.variants), -arm.world_size)):
        way = arm.stack, arm.strategy, arm.workload, arm.exchange, arm.passes
        ways.setdefault(way, []).append(arm)
    found, where = Trial(), shown(Path(own.origin))
    first = True
    for stack_name, stack in stacks.items():
        of_stack = [of_way for of_way in ways.values() if of_way[0].stack == stack_name]
        requests = [
            _request(of_way[0], arm_launcher, compare=number == 0)
            for number, of_way in enumerate(of_stack)
        ]
        if own.data and first and of_stack:
            # A process of a strategy that divides data among all replicas.
            most = max(arms, key=lambda arm: arm.world_size)
            config = arm_launcher.config_of_trial(most)
            asked = {"config": config, "replicas": most.world_size, "work": "read"}
            requests.append({**asked, "deadline_s": DEADLINE_S})
        first = False
        answers = _answers(requests, own, stack, lambda: say(f"try {own.name}, from {where}"))
        if len(answers) > len(of_stack):
            reading = answers.pop()
            if problem := _problem(reading):
                found.error, found.late = f"{_named(own)}{problem}", "late" in reading
            else:
                found.identity, found.differs = reading["identity"], reading["differs"]
        _take_ways(found, of_stack, answers)
        problems = [_problem(answer) for answer in answers]
        if stack_name == "" and problems and all(problems) and not found.error:
            found.error = f"{_named(own)}{problems[0]}"
            found.late = all("late" in answer for answer in answers)
    return found


def _request(arm: Arm, arm_launcher: ArmLauncher, compare: bool) -> dict[str, Any]:
    in_ranks = not (arm.strategy.spec.one_process or arm.strategy.spec.cluster)
    return {
        "work": "train",
        "config": arm_launcher.config_of_trial(arm),
        "replicas": arm.world_size if in_ranks else 1,
        "compare": compare,
        "deadline_s": DEADLINE_S,
    }


def _take_ways(
    found: Trial, ways: Sequence[Sequence[Arm]], answers: Sequence[Mapping[str, Any]]
) -> None:
    """Add the answers of one stack."""
    for arms, answer in zip(ways, answers, strict=True):
        if problem := _problem(answer):
            found.refused.update(dict.fromkeys(arms, problem.lstrip(": ")))
            continue
        found.sparse = max(found.sparse, answer["sparse"])
        found.pace = Pace(
            max(found.pace.start_seconds, answer["start_seconds"]),
            max(found.pace.step_seconds, answer["step_seconds"]),
        )
        if (answer["apart"] or 0.0) > APART_AT_MOST:
            found.doubt = (
                f"the gradients of two equal steps differ by {100 * answer['apart']:.2g} %, so no "
                "comparison can be trusted; draw nothing at random in the loss and the network, "
                "or seed it"
            )


def _problem(answer: Mapping[str, Any]) -> str:
    """Return what follows the name of a network in a message, or "" if it was trained."""
    if "late" in answer:
        return (
            f": it was not tried to the end within {answer['late']:.0f} s; if the machine was "
            "busy, measure again"
        )
    problem: str = answer.get("error", "")
    return problem


def _named(own: Network) -> str:
    return f"{shown(Path(own.origin))}: network {own.name!r}"


# Processes -----------------------------------------------------------------------------------


def _answers(
    requests: Sequence[Mapping[str, Any]], own: Network, stack: Stack, begin: Callable[[], None]
) -> list[dict[str, Any]]:
    """Return the answer to each request. Answers of earlier sessions are remembered until the
    network's file, what it imports from beside it, or the stack changes; data are always read."""
    places = [_place(request, own, stack) for request in requests]
    known = [_remembered(place) for place in places]
    missing = [request for request, answer in zip(requests, known, strict=True) if answer is None]
    if missing:
        begin()
    made = _carried_out(missing, stack) if missing else []
    answers = []
    for place, answer in zip(places, known, strict=True):
        answers.append(made.pop(0) if answer is None else answer)
        if answer is None and place is not None and "files" in answers[-1]:
            with suppress(OSError):  # then the next session tries again
                CACHE.mkdir(parents=True, exist_ok=True)
                write_whole(place, json.dumps(answers[-1]))
    return answers


def _place(request: Mapping[str, Any], own: Network, stack: Stack) -> Path | None:
    """Return the file that remembers the answer; None for data, which may change at any time."""
    if request["work"] == "read":
        return None
    packages = [stack.interpreter, stack.packages_sha256]
    asked = json.dumps([_VERSION, digest(own), request, packages], sort_keys=True)
    return CACHE / f"trial-{hashlib.sha256(asked.encode()).hexdigest()[:16]}.json"


def _remembered(place: Path | None) -> dict[str, Any] | None:
    if place is None:
        return None
    try:
        found: dict[str, Any] = json.loads(place.read_text())
        now = {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in found["files"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if now == found["files"] else None


def _carried_out(requests: Sequence[Mapping[str, Any]], stack: Stack) -> list[dict[str, Any]]:
    """Have processes of the stack carry out the requests, and return their answers."""
    answers: list[dict[str, Any]] = []
    while len(answers) < len(requests):
        left = requests[len(answers) :]
        done = run(
            guarded([stack.interpreter, "-m", "hvdperf.worker.own_trial"]),
            ROOT,
            rank_environment(stack.interpreter),
            given=json.dumps(left),
        )
        made = [json.loads(line) for line in done.output.splitlines()]
        if not made:
            made = [{"error": f": its first step ended with {done.status}: {done.said[-1]}"}]
        answers += made
    return answers
