"""Checks whether a launch is evidence and whether two arms have trained the same weights, and gives
the reasons if not."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from statistics import fmean
from typing import Any

from hvdperf.plan.arms import BlockKind
from hvdperf.plan.questions import Doubt
from hvdperf.records.rounds import Block, Correctness, Launch


def problems_of_launch(launch: Launch) -> list[str]:
    """Return the problems of a launch, one text each; return [] if it is valid.

    Checked: the world size that the framework saw, one learning rate, bit-equal weights on all
    replicas, and the session's own copy of the data and the same settings on all ranks; of each
    block, a report from every process, finite times and losses, and the samples that the plan
    implies.
    """
    arm, found = launch.arm, []
    sizes = {rank.world_size for rank in launch.evidence}
    if sizes != {arm.world_size}:
        found.append(f"{arm.name}: the framework saw world size {sorted(sizes)}")
    rates = {rank.learning_rate for rank in launch.evidence}
    # The learning rate, the loss and the batch of a user's script are not known.
    if len(rates) > 1 and not arm.workload.is_script:
        found.append(f"{arm.name}: ranks train with different learning rates: {shown(rates)}")
    digests = [digest for rank in launch.evidence for digest in rank.digests]
    if len(digests) != arm.world_size:
        found.append(
            f"{arm.name}: {len(digests)} of {arm.world_size} replicas reported a digest of "
            "their weights"
        )
    if len(set(digests)) > 1:
        found.append(f"{arm.name}: replicas differ: {_odd_ones(digests)}")
    found += [
        f"{arm.name}: rank {number} reads other data: {rank.data or 'none'} instead of "
        f"{rank.data_wanted or 'none'}"
        for number, rank in enumerate(launch.evidence)
        if rank.data != rank.data_wanted
    ]
    found += _setting_problems(launch)
    return found + [each for block in launch.blocks for each in _block_problems(launch, block)]


def doubts(launch: Launch) -> set[tuple[Doubt, int | None]]:
    """Return for what reasons that a fault can cause the launch is no evidence, each with the rank
    that is at fault; None for no single one."""
    digests = {digest for rank in launch.evidence for digest in rank.digests}
    found: set[tuple[Doubt, int | None]] = {(Doubt.WEIGHTS, None)} if len(digests) > 1 else set()
    return found | {
        (Doubt.DATA, number)
        for number, rank in enumerate(launch.evidence)
        if rank.data != rank.data_wanted
    }


def _setting_problems(launch: Launch) -> list[str]:
    """Return a line for every setting that does not have one value on all ranks."""
    found = []
    for name in sorted({name for rank in launch.evidence for name in rank.settings}):
        values = [rank.settings.get(name, "(not set)") for rank in launch.evidence]
        odd = next((rank for rank, value in enumerate(values) if value != values[0]), None)
        if odd is not None:
            found.append(
                f"{launch.arm.name}: {name} is {values[odd]} on rank {odd} and {values[0]} on "
                "rank 0"
            )
    return found


def _block_problems(launch: Launch, block: Block) -> list[str]:
    arm, found = launch.arm, []
    where = f"{arm.name}, {block.kind.value} block of turn {block.turn}"
    if len(block.ranks) != arm.processes:
        found.append(f"{where}: {len(block.ranks)} of {arm.processes} ranks reported")
    for number, rank in enumerate(block.ranks):
        if rank.not_finite_at is not None:
            loss = "NaN" if math.isnan(rank.loss) else f"{rank.loss}"
            found.append(
                f"{arm.name}: rank {number}: the loss is {loss} at step {rank.not_finite_at}"
            )
            continue
        figures = [rank.seconds, *rank.step_seconds]
        if not arm.workload.is_script:
            figures.append(rank.loss)
        if not all(math.isfinite(figure) for figure in figures) or rank.seconds <= 0:
            found.append(f"{where}: rank {number} reported a figure that is not finite")
    expected = expected_samples(launch, block)
    if block.samples != expected and not arm.workload.is_script:
        found.append(f"{where}: {block.samples} samples were consumed instead of {expected}")
    return found


def expected_samples(launch: Launch, block: Block) -> int:
    """Return the number of samples that all replicas together consume in a block."""
    replicas = 1 if block.kind is BlockKind.SPLIT else launch.arm.world_size
    return block.steps * launch.arm.workload.batch * replicas


def _odd_ones(digests: Sequence[str]) -> str:
    common = max(set(digests), key=digests.count)
    odd = [str(rank) for rank, digest in enumerate(digests) if digest != common]
    return f"weights of replica {', '.join(odd)} are not those of the others"


def shown(values: Collection[str] | Collection[float]) -> str:
    """Return at most three of the values, in order, in words."""
    ordered = [str(value) for value in sorted(values)]
    return (", ".join(ordered[:3]) + (", ..." if ordered[3:] else "")) or "none"


# Weights -----------------------------------------------------------------------------------------

# Numpy arrays, or objects that numpy makes one from, by tensor.
Weights = Mapping[str, Any]


def weights_differ(
    ours: Weights, theirs: Weights, rtol: float = 1e-5, atol: float = 1e-6, of_update: float = 0.0
) -> str:
    """Return, in words, how two sets of trained weights differ beyond the tolerances; return "" if
    they do not.

    The sets are as Trainer.correctness writes them. of_update: additional tolerance, as a part of a
    tensor's largest change by training.
    """
    import numpy as np

    if set(ours) != set(theirs):
        alone = shown(set(ours) - set(theirs)), shown(set(theirs) - set(ours))
        return f"tensors only in the first: {alone[0]}; only in the second: {alone[1]}"
    worst, where = 0.0, ""
    for name in ours:
        a, b = np.asarray(ours[name]), np.asarray(theirs[name])
        if a.shape != b.shape:
            return f"tensor {name}: shapes {a.shape} and {b.shape} differ"
        begun = np.asarray(theirs.get(name.replace("trained", "begun"), b))
        moved = np.abs(b - begun).max(initial=0.0)
        excess = np.abs(a - b) - (atol + rtol * np.abs(b) + of_update * moved)
        if not np.isfinite(excess).all():
            return f"tensor {name} is not finite"
        if excess.size and excess.max() > worst:
            worst, where = float(excess.max()), name
    return f"tensor {where} differs by {worst:.2g} more than tolerated" if where else ""


class Parted(Enum):
    """Where two reproducible trainings of one network part, in words, with what to look at next."""

    AT_THE_START = (
        "their first weights differ already: the builder draws at random without a seed of Keras"
    )
    IN_THE_DATA = (
        "their first batches differ already: the data differ at each opening; give its shuffle and "
        "its random operations a seed, and map with deterministic=True"
    )
    AT_THE_FIRST_LOSS = (
        "their first losses differ already, with the same weights and samples: the network or its "
        "loss draws at random, or normalises over the samples of all replicas in one of them only"
    )
    AT_THE_FIRST_UPDATE = (
        "their first losses agree, and the first update differs: the optimizer does not do the "
        "same with both, as when it clips or scales gradients before the exchange in one, and "
        "after it in the other"
    )


# Relative difference of two losses by the order of sums.
_LOSSES_AGREE_WITHIN = 1e-4


def parted(
    ours: Sequence[Correctness],
    theirs: Sequence[Correctness],
    our_weights: Weights,
    their_weights: Weights,
) -> Parted:
    """Return where two trainings part. ours, theirs: of each process. The weights are as
    Trainer.correctness writes them."""
    import numpy as np

    begun = [name for name in our_weights if name.startswith("begun")]
    if any(
        not np.array_equal(our_weights[name], their_weights.get(name, math.nan)) for name in begun
    ):
        return Parted.AT_THE_START
    samples = [[digest for rank in ranks for digest in rank.samples] for ranks in (ours, theirs)]
    if samples[0] != samples[1]:
        return Parted.IN_THE_DATA
    loss, other = (fmean(rank.loss for rank in ranks) for ranks in (ours, theirs))
    if not math.isclose(loss, other, rel_tol=_LOSSES_AGREE_WITHIN):
        return Parted.AT_THE_FIRST_LOSS
    return Parted.AT_THE_FIRST_UPDATE
