"""The questions that cases in perf/ ask of a workload at a world size, as comparisons.

S is a speed in samples per second, and n the world size.
"""

from __future__ import annotations

from dataclasses import replace

from hvdperf.plan.arms import (
    AA,
    AGAINST,
    EXCHANGES,
    RECIPES,
    SWEEP,
    Arm,
    BlockKind,
    Collective,
    Side,
    Workload,
)
from hvdperf.plan.comparisons import Between, Comparison, JudgedAs, Question
from hvdperf.plan.faults import TRIALS, FaultCase
from hvdperf.worker.strategies.table import Strategy


def weak_scaling(workload: Workload, world_size: int) -> Comparison:
    """Compare n replicas, with a full batch each, with one replica: S_n / (n S_1)."""
    return Comparison(
        Question.WEAK_SCALING,
        Side(Arm(workload, Strategy.HOROVOD, world_size)),
        Side(Arm(workload, Strategy.HOROVOD, 1)),
        ideal_ratio=world_size,
    )


def strong_scaling(workload: Workload, world_size: int) -> Comparison:
    """Compare n replicas that divide one batch with one replica that takes it whole:
    S_n / (n S_1)."""
    return Comparison(
        Question.STRONG_SCALING,
        Side(Arm(workload, Strategy.HOROVOD, world_size), BlockKind.SPLIT),
        Side(Arm(workload, Strategy.HOROVOD, 1)),
        ideal_ratio=world_size,
    )


def communication(workload: Workload, world_size: int) -> Comparison:
    """Compare one group with and without allreduce: step time without / step time with."""
    arm = Arm(workload, Strategy.HOROVOD, world_size)
    return Comparison(Question.COMMUNICATION, Side(arm), Side(arm, BlockKind.LOCAL))


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
    others = [replace(plain, exchange=variant) for variant in EXCHANGES if variant]
    others.append(replace(plain, passes=2))
    return tuple(
        Comparison(Question.GRADIENT_REDUCTION, Side(other), Side(plain)) for other in others
    )


def recipes(workload: Workload, world_size: int) -> tuple[Comparison, ...]:
    """Compare every other way of training with that of the workload: S_other / S_workload."""
    plain = Side(Arm(workload, Strategy.HOROVOD, world_size))
    others = [replace(workload, **changes) for changes in RECIPES.values()]  # type: ignore[arg-type]
    return tuple(
        Comparison(Question.RECIPE, Side(Arm(other, Strategy.HOROVOD, world_size)), plain)
        for other in others
        if other != workload
    )


def fixed_epochs(workload: Workload, world_size: int) -> tuple[Comparison, ...]:
    """Compare a training of a number of epochs with that of MirroredStrategy, and with that of
    plain TensorFlow, which takes the batches of all replicas one after the other before each
    update. The figures are ratios of validation losses and of validation accuracies."""
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
    other = replace(side, arm=replace(side.arm, stack=AGAINST))
    return replace(comparison, candidate=side, reference=other, ideal_ratio=1.0)


def memory(workload: Workload, world_size: int) -> Comparison:
    """Ask by what factor the resident set grows in 1,000 steps, in the process where it grows
    most."""
    side = Side(Arm(workload, Strategy.HOROVOD, world_size))
    return Comparison(Question.MEMORY, side, side)


def startup(workload: Workload, world_size: int) -> tuple[Comparison, ...]:
    """Ask how long the slowest rank takes for each phase of a start with nothing beside it."""
    side = Side(Arm(workload, Strategy.HOROVOD, world_size))
    return tuple(
        Comparison(question, side, side)
        for question in Question
        if question.spec.topic == "startup"
    )


def sweep(workload: Workload, world_size: int) -> tuple[Comparison, ...]:
    """Compare every collective operation from 64 KB to 128 MB: time through Horovod / time through
    bare MPI. The comparisons do not depend on the workload."""
    return tuple(_collective_overhead(SWEEP, world_size, collective) for collective in Collective)


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
    return Comparison(Question.AA, Side(replace(plain, injected=AA)), Side(plain))


def trials(workload: Workload, world_size: int) -> tuple[Comparison, ...]:
    """Compare an arm with every injected fault with the same arm without it; at a single replica,
    the A/A pair alone."""
    plain = Arm(workload, Strategy.HOROVOD, world_size)
    return tuple(
        _trial(trial, replace(plain, injected=name), plain)
        for name, trial in TRIALS.items()
        if world_size > 1 or name == AA
    )


def _trial(trial: FaultCase, faulty: Arm, plain: Arm) -> Comparison:
    """Compare the faulty arm with the plain arm; for memory, judged by a threshold, with itself."""
    other = faulty if trial.question is Question.MEMORY else plain
    return Comparison(trial.question, Side(faulty), Side(other))
