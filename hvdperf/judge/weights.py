"""Compares the weights that two strategies have trained reproducibly, and tells where they part."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum
from statistics import fmean
from typing import Any

from hvdperf.records.rounds import Correctness
from hvdperf.work.evidence import shown

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
