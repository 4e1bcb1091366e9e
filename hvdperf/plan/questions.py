"""The questions that cases in perf/ ask of a workload at a world size, as comparisons, and the
faults that are injected.

S is a speed in samples per second, and n the world size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar

from hvdperf.plan import arms
from hvdperf.plan.arms import Arm, BlockKind, Collective, Side, Workload
from hvdperf.plan.comparisons import Between, Comparison, JudgedAs, Question
from hvdperf.verdict import Verdict
from hvdperf.worker.protocol import FaultConfig
from hvdperf.worker.strategies import Strategy

_NUMBERS: Mapping[str, type[int] | type[float]] = {
    "rank": int,
    "world_size": int,
    "factor": float,
    "ms": float,
}


def _number(key: str, value: str) -> float:
    """Parse the number of a key. Raises ValueError with a message that says what to give."""
    try:
        return _NUMBERS[key](value)
    except ValueError:
        kind = "a whole number" if _NUMBERS[key] is int else "a number"
        raise ValueError(f"{key}={value} is not a number; give {kind}, such as {key}=1") from None


@dataclass(frozen=True)
class Fault:
    """An injected fault: something that goes wrong on purpose, on one rank or on all ranks.

    rank: the faulty rank. phase: a Phase (worker/protocol.py). model, world_size: of the arms that
    get the fault; "" and 0 for all. Kinds of one rank:

    raise: the rank raises an error in `phase`. exit: the rank exits in `phase`.
    kill: the rank is killed in `phase`. hang: the rank hangs in `phase`.
    longer: `phase` of the start takes `factor` times as long, and `ms` milliseconds more.
    slow: every step is late by `ms` milliseconds and `factor` - 1 times the step.
    input: the batch of every step is late by `ms` milliseconds and `factor` - 1 times the step.
    busy: another process computes on the rank's cores.
    data: the rank trains on other data.
    leak: the rank keeps a megabyte of every step.
    corrupt: the numbers that the rank hands to a collective operation are off by one.

    Kinds of all ranks:

    nofuse: Horovod fuses no tensors.
    cycle: Horovod collects tensors for 25 ms.
    skip: the first gradient of a step is not exchanged.
    """

    kind: str
    rank: int
    phase: str = "block"
    factor: float = 1.0
    ms: float = 0.0
    model: str = ""
    world_size: int = 0

    # The keys that each kind takes, besides model and world_size.
    KINDS: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **dict.fromkeys(("raise", "exit", "kill", "hang"), ("rank", "phase")),
        "longer": ("rank", "phase", "factor", "ms"),
        **dict.fromkeys(("slow", "input"), ("rank", "factor", "ms")),
        **dict.fromkeys(("busy", "data", "leak", "corrupt"), ("rank",)),
        **dict.fromkeys(("nofuse", "cycle", "skip"), ()),
    }
    # The values of a kind's keys that are not given.
    DEFAULTS: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "longer": {"phase": "trace", "factor": 2.0},
        "slow": {"factor": 2.0},
        "input": {"ms": 50.0},
    }

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Parse `slow:rank=1,factor=2`. Raises ValueError with one line that says what is wrong."""
        kind, _, rest = text.partition(":")
        if kind not in cls.KINDS:
            raise ValueError(f"unknown fault {kind!r}; known: {', '.join(cls.KINDS)}")
        given: dict[str, Any] = {}
        for item in filter(None, rest.split(",")):
            key, _, value = item.partition("=")
            known = (*cls.KINDS[kind], "model", "world_size")
            if key not in known:
                raise ValueError(f"unknown key {key!r} of {kind}; known: {', '.join(known)}")
            if key in given:
                raise ValueError(f"{key}= is given twice; give it once")
            given[key] = _number(key, value) if key in _NUMBERS else value
        # A given factor or ms replaces the defaults of both, so that the delay is the given one.
        late = {"factor", "ms"} & set(given)
        defaults = cls.DEFAULTS.get(kind, {})
        values = {k: v for k, v in defaults.items() if not (late and k in ("factor", "ms"))} | given
        if not 0 <= values.get("ms", 0.0) < math.inf:
            raise ValueError(f"ms {values['ms']} is not a delay; give 0 or more")
        if not 1.0 <= values.get("factor", 1.0) < math.inf:
            raise ValueError(
                f"factor {values['factor']} is below 1 or not a number; give 1 or more"
            )
        return cls(kind, **{"rank": 0, **values})

    @property
    def changes_nothing(self) -> bool:
        """True if the kind takes a factor or ms, and the values given cause no change."""
        by_how_much = {"factor", "ms"} & set(self.KINDS[self.kind])
        return bool(by_how_much) and self.factor == 1.0 and self.ms == 0.0

    @property
    def is_of_exchange(self) -> bool:
        """True if the fault is in the exchange of gradients by all ranks, and not in one rank."""
        return "rank" not in self.KINDS[self.kind]

    def strikes(self, arm: Arm) -> bool:
        """Return whether the fault is injected into that arm.

        The arm must run Horovod on the session's own stack, and have the named model and world
        size, if these are given. The arm of a fault case has its own fault instead.
        """
        return (
            arm.strategy.spec.horovod
            and not arm.stack
            and arm.injected in ("", arms.AA)
            and self.model in ("", arm.workload.model)
            and self.world_size in (0, arm.world_size)
        )

    def as_config(self) -> FaultConfig:
        """Return the fault as the ranks get it."""
        return FaultConfig(self.kind, self.rank, self.phase, self.factor, self.ms)


class Doubt(Enum):
    """Why a launch is no evidence, if a fault was injected that makes it INVALID; in words."""

    WEIGHTS = "replicas differ"
    DATA = "a rank reads other data"


@dataclass(frozen=True)
class FaultCase:
    """A fault, and the report that the suite must give of it.

    fault: as --inject takes it; "" for none. question: the question that has to notice it. verdict:
    the expected verdict. term: the expected attribution of a step or a start that takes longer, as
    a term (hvdperf.plan.arms), or "memory"; "" if nothing takes longer. rank: the expected rank;
    None for all ranks. doubt: why an INVALID is expected.
    """

    fault: str
    question: Question = Question.WEAK_SCALING
    verdict: Verdict = Verdict.FAIL
    term: str = ""
    rank: int | None = 1
    doubt: Doubt | None = None

    @property
    def injected(self) -> Fault | None:
        return Fault.parse(self.fault) if self.fault else None


# Fault cases by name. A name never gets another fault, because sessions are counted by name
# (bench/trust.py).
FAULT_CASES = {
    arms.AA: FaultCase("", verdict=Verdict.PASS, rank=None),
    "slow5": FaultCase("slow:rank=1,factor=1.05", term="between steps"),
    "slow10": FaultCase("slow:rank=1,factor=1.10", term="between steps"),
    "slow15": FaultCase("slow:rank=1,factor=1.15", term="between steps"),
    "late15": FaultCase("input:rank=1,factor=1.15", term="input wait"),
    "busy": FaultCase("busy:rank=1", term="compute"),
    "nofuse": FaultCase("nofuse", term="exposed communication", rank=None),
    "cycle": FaultCase("cycle", term="exposed communication", rank=None),
    "skip": FaultCase("skip", verdict=Verdict.INVALID, rank=None, doubt=Doubt.WEIGHTS),
    "data": FaultCase("data:rank=1", verdict=Verdict.INVALID, doubt=Doubt.DATA),
    "leak": FaultCase("leak:rank=1", Question.MEMORY, term="memory"),
    "trace": FaultCase(
        "longer:rank=1,phase=trace,factor=1.15", Question.STARTUP_TRACE, term="trace"
    ),
    "long50": FaultCase(
        "longer:rank=1,phase=trace,factor=1.5", Question.STARTUP_TRACE, term="trace"
    ),
    "bcast": FaultCase(
        "longer:rank=1,phase=broadcast,factor=1.5", Question.STARTUP_BROADCAST, term="broadcast"
    ),
}


def fault_case_of(comparison: Comparison) -> FaultCase | None:
    """Return the fault case of a comparison, or None if it is no fault case."""
    return FAULT_CASES[comparison.candidate.arm.injected] if comparison.is_fault_case else None


def _horovod(workload: Workload, world_size: int, kind: BlockKind = BlockKind.FULL) -> Side:
    return Side(Arm(workload, Strategy.HOROVOD, world_size), kind)


def weak_scaling(workload: Workload, world_size: int) -> Comparison:
    """Compare n replicas, with a full batch each, with one replica: S_n / (n S_1)."""
    ours, alone = _horovod(workload, world_size), _horovod(workload, 1)
    return Comparison(Question.WEAK_SCALING, ours, alone, ideal_ratio=world_size)


def strong_scaling(workload: Workload, world_size: int) -> Comparison:
    """Compare n replicas that divide one batch with one replica that takes it whole:
    S_n / (n S_1)."""
    ours, alone = _horovod(workload, world_size, BlockKind.SPLIT), _horovod(workload, 1)
    return Comparison(Question.STRONG_SCALING, ours, alone, ideal_ratio=world_size)


def communication(workload: Workload, world_size: int) -> Comparison:
    """Compare one group with and without allreduce: step time without / step time with."""
    local = _horovod(workload, world_size, BlockKind.LOCAL)
    return Comparison(Question.COMMUNICATION, _horovod(workload, world_size), local)


def parity(workload: Workload, world_size: int) -> Comparison:
    """Compare Horovod with MirroredStrategy on the same devices: S_horovod / S_mirrored."""
    return _against(Strategy.MIRRORED, Question.PARITY, workload, world_size)


def horovod_overhead(workload: Workload, world_size: int) -> Comparison:
    """Compare Horovod, with nothing to exchange, with plain TensorFlow at one replica:
    S_horovod / S_single."""
    return _against(Strategy.SINGLE, Question.HOROVOD_OVERHEAD, workload, world_size)


def multiworker(workload: Workload, world_size: int) -> Comparison:
    """Compare Horovod with MultiWorkerMirroredStrategy: S_horovod / S_multiworker."""
    return _against(Strategy.MULTIWORKER, Question.MULTIWORKER, workload, world_size)


def _against(
    other: Strategy, question: Question, workload: Workload, world_size: int
) -> Comparison:
    """Compare Horovod with another strategy that has as many replicas."""
    ours, theirs = (Side(Arm(workload, each, world_size)) for each in (Strategy.HOROVOD, other))
    return Comparison(question, ours, theirs)


def gradient_reductions(workload: Workload, world_size: int) -> tuple[Comparison, ...]:
    """Compare every other way of exchanging gradients with the default: S_other / S_default."""
    plain = Arm(workload, Strategy.HOROVOD, world_size)
    others = [replace(plain, exchange=variant) for variant in arms.EXCHANGES if variant]
    return _with_each(Question.GRADIENT_REDUCTION, plain, *others, replace(plain, passes=2))


def launches(workload: Workload, world_size: int) -> tuple[Comparison, ...]:
    """Compare a launch as Open MPI and TensorFlow have it by default, and one that leaves a single
    setting so, with the suite's: S_default / S_suite."""
    plain = Arm(workload, Strategy.HOROVOD, world_size)
    others = (replace(plain, launched=name) for name in arms.LAUNCHES if name)
    return _with_each(Question.LAUNCH, plain, *others)


def recipes(workload: Workload, world_size: int) -> tuple[Comparison, ...]:
    """Compare every other way of training with that of the workload: S_other / S_workload."""
    plain = Arm(workload, Strategy.HOROVOD, world_size)
    every = arms.RECIPES.values()
    others = (replace(workload, **changes) for changes in every)  # type: ignore[arg-type]
    trained = (replace(plain, workload=other) for other in others if other != workload)
    return _with_each(Question.RECIPE, plain, *trained)


def _with_each(question: Question, plain: Arm, *others: Arm) -> tuple[Comparison, ...]:
    return tuple(Comparison(question, Side(other), Side(plain)) for other in others)


def fixed_epochs(workload: Workload, world_size: int) -> tuple[Comparison, ...]:
    """Compare a training of a number of epochs with that of MirroredStrategy, and with that of
    plain TensorFlow, which takes the batches of all replicas one after the other before each
    update. The figures are ratios of validation losses and of validation accuracies."""
    trained = replace(workload, learning_rate="adaptive")
    ours = _horovod(trained, world_size)
    others = (
        Arm(trained, Strategy.MIRRORED, world_size),
        Arm(trained, Strategy.SINGLE, 1, passes=world_size),
    )
    return tuple(
        Comparison(question, ours, Side(other))
        for other in others
        for question in (Question.CONVERGENCE_LOSS, Question.CONVERGENCE_ACCURACY)
    )


def fixed_time(workload: Workload, world_size: int) -> Comparison:
    """Compare the samples N that n replicas and one replica train on in a given wall time:
    N_n / (n N_1)."""
    trained = replace(workload, learning_rate="adaptive")
    return replace(weak_scaling(trained, world_size), question=Question.FIXED_TIME)


def wall_time(workload: Workload, world_size: int) -> tuple[Comparison, ...]:
    """Compare the wall times, from the trace on, of n replicas and one: with as many steps each
    (time_1 / time_n), and with the steps divided (time_1 / (n time_n))."""
    return tuple(
        replace(weak_scaling(workload, world_size), question=question)
        for question in (Question.WALL_TIME_WEAK, Question.WALL_TIME_STRONG)
    )


def against(comparison: Comparison) -> Comparison | None:
    """Return the comparison of two installed stacks by this case: its candidate under the session's
    own stack, compared with the same arm under the other stack.

    Communication, parity, Horovod overhead and multiworker have the arm of weak scaling as their
    candidate, so their reference takes its place. Return None for comparisons that are not made
    between stacks: memory, wall time, collective operations, A/A pairs and fault cases.
    """
    between = comparison.question.spec.between
    if comparison.judged_as is not JudgedAs.THRESHOLD or between is Between.NEITHER:
        return None
    side = comparison.reference if between is Between.REFERENCE else comparison.candidate
    other = replace(side, arm=replace(side.arm, stack=arms.AGAINST))
    return replace(comparison, candidate=side, reference=other, ideal_ratio=1.0)


def throughput(workload: Workload, world_size: int) -> Comparison:
    """Ask for the speed S_n of n replicas by itself."""
    side = _horovod(workload, world_size)
    return Comparison(Question.THROUGHPUT, side, side)


def memory(workload: Workload, world_size: int) -> Comparison:
    """Ask by what factor the resident set grows in 1,000 steps, in the process where it grows
    most."""
    side = _horovod(workload, world_size)
    return Comparison(Question.MEMORY, side, side)


def startup(workload: Workload, world_size: int) -> tuple[Comparison, ...]:
    """Ask how long the slowest rank takes for each phase of a start with nothing beside it."""
    side = _horovod(workload, world_size)
    return tuple(
        Comparison(question, side, side)
        for question in Question
        if question.spec.topic == "startup"
    )


def sweep(workload: Workload, world_size: int) -> tuple[Comparison, ...]:
    """Compare every collective operation from 64 KB to 128 MB: time through Horovod / time through
    bare MPI. The comparisons do not depend on the workload."""
    return tuple(
        _collective_overhead(arms.SWEEP, world_size, collective) for collective in Collective
    )


def at_gradient_sizes(workload: Workload, world_size: int) -> Comparison:
    """Compare the times to reduce all gradients of a step: through Horovod / in one buffer through
    bare MPI."""
    return _collective_overhead(workload, world_size, Collective.ALLREDUCE)


def _collective_overhead(workload: Workload, world_size: int, collective: Collective) -> Comparison:
    compared = _against(Strategy.BARE, Question.COLLECTIVE_OVERHEAD, workload, world_size)
    return replace(compared, collective=collective)


def overlap(workload: Workload, world_size: int) -> Comparison:
    """Compare a step with its bound by physics: step time / (time without exchange + time of
    bare MPI for the step's gradients)."""
    return _against(Strategy.BARE, Question.OVERLAP, workload, world_size)


def aa(workload: Workload, world_size: int) -> Comparison:
    """Compare two groups of one arm (A/A), to see the difference that the machine alone makes."""
    plain = Arm(workload, Strategy.HOROVOD, world_size)
    return Comparison(Question.AA, Side(replace(plain, injected=arms.AA)), Side(plain))


def fault_cases(workload: Workload, world_size: int) -> tuple[Comparison, ...]:
    """Compare an arm with every injected fault with the same arm without it; at a single replica,
    the A/A pair alone."""
    plain = Arm(workload, Strategy.HOROVOD, world_size)
    return tuple(
        _fault_case(case, replace(plain, injected=name), plain)
        for name, case in FAULT_CASES.items()
        if world_size > 1 or name == arms.AA
    )


def _fault_case(case: FaultCase, faulty: Arm, plain: Arm) -> Comparison:
    """Compare the faulty arm with the plain arm; for memory, judged by a threshold, with itself."""
    other = faulty if case.question is Question.MEMORY else plain
    return Comparison(case.question, Side(faulty), Side(other))
