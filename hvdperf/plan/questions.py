"""The questions that cases in perf/ ask of a workload at a world size, as comparisons."""

from __future__ import annotations

from dataclasses import replace

from hvdperf.plan.arms import (
    AGAINST,
    SWEEP,
    TWIN,
    Arm,
    BlockKind,
    Comparison,
    LaunchMode,
    Question,
    Side,
    Strategy,
    Workload,
)
from hvdperf.plan.collectives import Collective
from hvdperf.plan.exchanges import EXCHANGES
from hvdperf.plan.fault_cases import TRIALS, FaultCase
from hvdperf.plan.recipes import RECIPES


def weak_scaling(workload: Workload, world_size: int) -> Comparison:
    """n replicas with a full batch each, against one replica: S_n / (n S_1)."""
    return Comparison(
        Question.WEAK_SCALING,
        Side(Arm(workload, Strategy.HOROVOD, world_size)),
        Side(Arm(workload, Strategy.HOROVOD, 1)),
        ideal_ratio=world_size,
    )


def strong_scaling(workload: Workload, world_size: int) -> Comparison:
    """One batch divided among n replicas, against one replica with the whole: S_n / (n S_1)."""
    return Comparison(
        Question.STRONG_SCALING,
        Side(Arm(workload, Strategy.HOROVOD, world_size), BlockKind.SPLIT),
        Side(Arm(workload, Strategy.HOROVOD, 1)),
        ideal_ratio=world_size,
    )


def communication(workload: Workload, world_size: int) -> Comparison:
    """The same group with and without allreduce: step time without / step time with."""
    arm = Arm(workload, Strategy.HOROVOD, world_size)
    return Comparison(Question.COMMUNICATION, Side(arm), Side(arm, BlockKind.LOCAL))


def parity(workload: Workload, world_size: int) -> Comparison:
    """Horovod against MirroredStrategy on the same devices: S_horovod / S_mirrored."""
    return _against(Strategy.MIRRORED, Question.PARITY, workload, world_size)


def tax(workload: Workload, world_size: int) -> Comparison:
    """Horovod with nothing to exchange against plain TensorFlow: S_horovod / S_single, at one
    replica."""
    return _against(Strategy.SINGLE, Question.TAX, workload, world_size)


def multiworker(workload: Workload, world_size: int) -> Comparison:
    """Horovod against MultiWorkerMirroredStrategy: S_horovod / S_multiworker."""
    return _against(Strategy.MULTIWORKER, Question.MULTIWORKER, workload, world_size)


def _against(
    other: Strategy, question: Question, workload: Workload, world_size: int
) -> Comparison:
    """Horovod against another strategy with as many replicas."""
    ours, theirs = (Side(Arm(workload, each, world_size)) for each in (Strategy.HOROVOD, other))
    return Comparison(question, ours, theirs)


def exchanges(workload: Workload, world_size: int) -> tuple[Comparison, ...]:
    """Every other way of exchanging gradients against the default: S_other / S_default."""
    plain = Arm(workload, Strategy.HOROVOD, world_size)
    others = [replace(plain, exchange=variant) for variant in EXCHANGES if variant]
    others.append(replace(plain, passes=2))
    return tuple(Comparison(Question.EXCHANGE, Side(other), Side(plain)) for other in others)


def recipes(workload: Workload, world_size: int) -> tuple[Comparison, ...]:
    """Every other way of training against that of the workload: S_other / S_workload."""
    plain = Side(Arm(workload, Strategy.HOROVOD, world_size))
    others = [replace(workload, **changes) for changes in RECIPES.values()]  # type: ignore[arg-type]
    return tuple(
        Comparison(Question.RECIPE, Side(Arm(other, Strategy.HOROVOD, world_size)), plain)
        for other in others
        if other != workload
    )


def fixed_epochs(workload: Workload, world_size: int) -> tuple[Comparison, ...]:
    """What a training of so many epochs ends with, against MirroredStrategy and against plain
    TensorFlow, which takes the replicas' batches one after the other for an update: the ratio of
    validation losses, and of accuracies."""
    trained = replace(workload, learning_rate="adaptive")
    ours = Side(Arm(trained, Strategy.HOROVOD, world_size))
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
    """Samples that n replicas train on in a given wall time, against one: N_n / (n N_1)."""
    trained = replace(workload, learning_rate="adaptive")
    return replace(weak_scaling(trained, world_size), question=Question.FIXED_TIME)


def wall_time(workload: Workload, world_size: int) -> tuple[Comparison, ...]:
    """How much sooner n replicas are done than one, by wall time from the trace on: with as many
    steps each (time_1 / time_n), and with the steps divided (time_1 / (n time_n))."""
    return tuple(
        replace(weak_scaling(workload, world_size), question=question)
        for question in (Question.WALL_WEAK, Question.WALL_STRONG)
    )


# What another stack is held against: of a comparison with something else, that something.
_OF_THE_OTHER_SIDE = (
    Question.COMMUNICATION,
    Question.PARITY,
    Question.TAX,
    Question.MULTIWORKER,
)


def against(comparison: Comparison) -> Comparison | None:
    """The same case of two installed stacks: its candidate under the session's own stack, held
    against the same under the other one; of communication, parity, tax and multiworker, whose
    candidate weak scaling asks about already, the other side. None for what two stacks are not
    compared by: memory, wall time, collective operations, and an arm with itself."""
    question = comparison.question
    if comparison.is_against or question.work in (
        LaunchMode.ENDURANCE,
        LaunchMode.LEDGER,
        LaunchMode.COLLECTIVES,
    ):
        return None
    side = comparison.reference if question in _OF_THE_OTHER_SIDE else comparison.candidate
    other = replace(side, arm=replace(side.arm, stack=AGAINST))
    return replace(comparison, candidate=side, reference=other, ideal_ratio=1.0)


def memory(workload: Workload, world_size: int) -> Comparison:
    """By what factor the resident set of the process that grows most does so in 1,000 steps."""
    side = Side(Arm(workload, Strategy.HOROVOD, world_size))
    return Comparison(Question.MEMORY, side, side)


def startup(workload: Workload, world_size: int) -> tuple[Comparison, ...]:
    """How long the slowest rank takes for each phase of a start with nothing beside it."""
    side = Side(Arm(workload, Strategy.HOROVOD, world_size))
    return tuple(Comparison(question, side, side) for question in Question if question.is_startup)


def sweep(workload: Workload, world_size: int) -> tuple[Comparison, ...]:
    """Every collective operation from 64 KB to 128 MB, time through Horovod / time through the bare
    transport: the same whatever is trained."""
    return tuple(_framework_tax(SWEEP, world_size, collective) for collective in Collective)


def at_gradient_sizes(workload: Workload, world_size: int) -> Comparison:
    """All gradients of a step, through Horovod / in one buffer through the bare transport."""
    return _framework_tax(workload, world_size, Collective.ALLREDUCE)


def _framework_tax(workload: Workload, world_size: int, collective: Collective) -> Comparison:
    compared = _against(Strategy.BARE, Question.FRAMEWORK_TAX, workload, world_size)
    return replace(compared, collective=collective)


def bound(workload: Workload, world_size: int) -> Comparison:
    """A step against what physics leaves of it: step time / (time without exchange + time of the
    bare transport for the step's gradients)."""
    return _against(Strategy.BARE, Question.BOUND, workload, world_size)


def same(workload: Workload, world_size: int) -> Comparison:
    """Two groups of the same arm (A/A): what tonight's machine shows where nothing differs."""
    plain = Arm(workload, Strategy.HOROVOD, world_size)
    return Comparison(Question.SAME, Side(replace(plain, planted=TWIN)), Side(plain))


def trials(workload: Workload, world_size: int) -> tuple[Comparison, ...]:
    """Every fault that is planted on purpose, against the same arm without it; into a single
    replica, the twin alone."""
    plain = Arm(workload, Strategy.HOROVOD, world_size)
    return tuple(
        _trial(trial, replace(plain, planted=name), plain)
        for name, trial in TRIALS.items()
        if world_size > 1 or name == TWIN
    )


def _trial(trial: FaultCase, faulty: Arm, plain: Arm) -> Comparison:
    """Memory is held against a threshold, and so the faulty arm with nothing."""
    other = faulty if trial.question is Question.MEMORY else plain
    return Comparison(trial.question, Side(faulty), Side(other))
