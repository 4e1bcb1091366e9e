"""Checks whether a launch is evidence, and gives the reasons if it is not."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from hvdperf.plan.arms import BlockKind
from hvdperf.plan.questions import Doubt
from hvdperf.records.rounds import Block, Launch


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


def overlap_of_shards(launch: Launch, alone: Launch) -> str:
    """Return an error message if the replicas of a launch have more samples of the user's own data
    in a pass than the one replica of `alone`, so that some samples are read by several of them; ""
    if they have not, or if a pass was not over in either launch."""
    ours, theirs = ([rank.samples_of_a_pass for rank in each.evidence] for each in (launch, alone))
    known = [count for count in ours if count is not None]
    if len(known) < len(ours) or len(theirs) != 1 or theirs[0] is None or sum(known) <= theirs[0]:
        return ""
    return (
        f"{launch.arm.name}: its shards have {sum(known)} samples together, and the whole data "
        f"have {theirs[0]}: they overlap; divide the samples by shard.index and shard.count"
    )


def shown(values: Collection[str] | Collection[float]) -> str:
    """Return at most three of the values, in order, in words."""
    ordered = [str(value) for value in sorted(values)]
    return (", ".join(ordered[:3]) + (", ..." if ordered[3:] else "")) or "none"
