"""Whether a training did what a distributed training promises.

A check that fails says what is wrong and what mends it. What is legitimate is told and fails
nothing: layers that are registered as local, statistics of batch normalisation (no optimizer
changes them), an exchange after several steps only.

Where no rank comes to the end of a step, they are asked which waits for which.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

from hvdperf.errors import first_of
from hvdperf.script.recorded import Rank, Weights
from hvdperf.worker.script.tap._hvdperf_recorder import OF_SESSION

# Sums of weights that lie further apart than this share of the sum of their sizes differ; less is
# what different processors compute.
CLOSE = 1e-5
# A function that is traced in so many of its calls, and of so many, is traced in every step.
RETRACED, LEAST_STEPS = 0.5, 8
# Ranks with more equal batches at the same steps than at others, by so many square roots of their
# number, have them not by chance.
CERTAIN = 3.0
# Samples that two ranks have read from which their number is estimated, and the share of a rank's
# samples that is all of them.
LEAST_SHARED, WHOLE = 8, 0.6
# A wait is a stall if it takes so many times as long as the mean step, and as the slowest one: a
# checkpoint is waited for, too.
LONGER, SLOWER = 10.0, 2.0
# A gain is not known from so little above 1 on.
_NO_GAIN = 1.005


@dataclass(frozen=True)
class Limit:
    """A limit of the training, or a possible one; a check that fails is one, too. told: in a
    sentence. mend: what to try first; "" if nothing is known. faster: how many times as fast the
    training is then, from and to; None if that cannot be said. share: of the time. trial: how to
    find out how much it gains. may_be_others: whether other programs may be the cause, if they take
    cores from ranks."""

    told: str
    mend: str = ""
    faster: tuple[float, float] | None = None
    share: float = 0.0
    trial: str = ""
    may_be_others: bool = False

    @property
    def gain(self) -> str:
        """Return how much faster the training becomes, in a sentence; "" if that is unknown."""
        low, high = self.faster or (1.0, 1.0)
        if low >= _NO_GAIN:
            return f"Possible speedup: at least {low:.2f}x, at most {high:.2f}x."
        trial = self.trial or "commit the change, then hvdperf run --against HEAD~1"
        told = f"Possible speedup: up to {high:.2f}x. To find out: {trial}."
        return told if high >= _NO_GAIN else ""


def problems(ranks: Sequence[Rank]) -> list[Limit]:
    """Return what is wrong with a training, what matters most first. ranks: of one job."""
    found = [*_exchange(ranks)]
    models = _by_model(ranks)
    if not found:
        found = [each for of_model in models for each in _weights(of_model)]
    found += [each for of_model in models for each in _data(of_model)]
    return [*found, *_tracing(ranks)]


def _by_model(ranks: Sequence[Rank]) -> list[list[Rank]]:
    """Return the ranks that train the same model: those that exchange with the same others. Ranks
    with different models may read the same data on purpose."""
    sets = dict.fromkeys(rank.process_sets for rank in ranks)
    return [[rank for rank in ranks if rank.process_sets == each] for each in sets]


def _exchange(ranks: Sequence[Rank]) -> Iterator[Limit]:
    size = ranks[0].size
    if size < 2:
        return
    trains = any(rank.steps is not None for rank in ranks)
    if trains and not any(_exchanges(rank) for rank in ranks):
        alone = f"each of {size} ranks trains alone"
        if all(rank.connected == 0 for rank in ranks):
            yield Limit(
                f"{alone}: none of them has called hvd.init",
                "most often the import of Horovod fails and the script goes on without it: try "
                "python -c 'import horovod.tensorflow' there; hvdperf doctor lists what works here",
            )
        elif all(rank.connected == 1 for rank in ranks):
            yield Limit(
                f"{alone}: the launcher has started {size}, but hvd.size() is 1",
                "start them with a launcher that this Horovod supports (horovodrun --check-build)",
            )
        else:
            yield Limit(
                f"no gradient is allreduced: {alone}",
                "in your own loop wrap the tape (hvd.DistributedGradientTape), under "
                "model.fit the optimizer (hvd.DistributedOptimizer), and in a TensorFlow 1 graph "
                "take the gradients from its compute_gradients: its apply_gradients exchanges "
                "nothing; with Keras 3 set TF_USE_LEGACY_KERAS=1 and install tf-keras; hvdperf "
                "doctor lists what works here",
            )
        return
    left_out = sorted({name for rank in ranks for name in rank.unexchanged})
    if left_out:
        yield Limit(
            f"{len(left_out)} of {ranks[0].updated} variables are trained, but their gradients are "
            f"not allreduced: {first_of(left_out)}",
            "pass them to the tape or the optimizer that Horovod wraps, or register them as local",
        )


def _exchanges(rank: Rank) -> bool:
    """Return whether gradients are exchanged in a step, or the script itself calls hvd.allreduce in
    or after every step: for gradients, or for something else. Then only the weights tell. What the
    graph of a session could exchange counts only if it was run."""
    calls = sum(count for name, count in rank.others.items() if "allreduce" in name)
    steps = rank.steps
    ran = any(each.exchanges for each in rank.series) or rank.exchanged.keys() - {OF_SESSION}
    return bool(ran) or (steps is not None and (steps.others or calls >= steps.count))


def _weights(ranks: Sequence[Rank]) -> Iterator[Limit]:
    known = [rank for rank in ranks if rank.weights]
    # A script that failed in its first step has not yet made them alike.
    if len(known) < 2 or len({rank.count for rank in known}) > 1 or not known[0].count:
        return
    # Local variables are the ranks' own.
    if any(rank.local for rank in known):
        return
    unlike = [
        values[0][0]
        for values in zip(*(rank.weights for rank in known), strict=False)
        if any(_differ(values[0], each) for each in values[1:])
    ]
    if unlike:
        yield Limit(
            f"ranks end with different weights: {first_of(unlike)}",
            "broadcast the variables of rank 0 before the first step "
            "(hvd.broadcast_variables), and allreduce all gradients",
        )


def _differ(one: Weights, other: Weights) -> bool:
    (_, checksum, *ours), (_, other_checksum, *theirs) = one, other
    apart = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    return checksum != other_checksum and apart > CLOSE * max(ours[1], theirs[1])


def _data(ranks: Sequence[Rank]) -> Iterator[Limit]:
    # Ranks with the same batches are neighbours.
    for one, other in itertools.pairwise(sorted(ranks, key=lambda rank: rank.batches)):
        count = min(len(one.batches), len(other.batches))
        same = _alike(one, other, 0)
        # Data of few values, or without any change, are also alike at different steps.
        chance = min(_alike(one, other, apart) for apart in (1, count // 3, count // 2))
        if count and same >= count / 2 and same - chance >= CERTAIN * sqrt(count):
            yield Limit(
                f"ranks {one.rank} and {other.rank} read the same batches in the same order",
                "shard the files or samples by hvd.rank(), such as dataset.shard(hvd.size(), "
                "hvd.rank()), or shuffle with a different seed on each rank",
            )
            return


def _alike(one: Rank, other: Rank, apart: int) -> int:
    """Return how often two ranks have the same batch so many steps apart."""
    count = min(len(one.batches), len(other.batches))
    shifted = (other.batches[(at + apart) % count] for at in range(count))
    return sum(map(operator.eq, one.batches, shifted))


def remarks(ranks: Sequence[Rank]) -> Iterator[str]:
    """Yield what costs time and may be meant: ranks that read the same samples in another order."""
    pairs = [(set(one.batches), set(other.batches)) for one, other in itertools.pairwise(ranks)]
    both = sum(len(one & other) for one, other in pairs)
    steps = ranks[0].steps
    if both < LEAST_SHARED or steps is None or len(_by_model(ranks)) > 1 or any(_data(ranks)):
        return
    epoch = max(rank.epoch for rank in ranks)
    # The number of batches in a set from which all draw, by how often two draw the same sample.
    drawn = sum(len(one) * len(other) for one, other in pairs) / both
    share = epoch * steps.samples / steps.count / drawn
    if not epoch:
        yield "ranks read some of the same samples, each in a different order"
    elif WHOLE <= share <= 1 / WHOLE:
        size = ranks[0].size
        yield (
            "each rank reads the whole data set, in a different order: an epoch has "
            f"{epoch} batches per rank, and {-(-epoch // size)} would do if the ranks shared the "
            "data: dataset.shard(hvd.size(), hvd.rank())"
        )


def _tracing(ranks: Sequence[Rank]) -> Iterator[Limit]:
    for rank in ranks:
        steps = rank.steps
        if steps and steps.count > LEAST_STEPS and steps.traces > RETRACED * steps.count:
            yield Limit(
                f"{steps.name} is retraced in nearly every step: {steps.traces} times in "
                f"{steps.count} steps",
                "pass tensors instead of Python numbers and batches of one shape, and create the "
                "tf.function once, outside the loop",
            )
            return


def stall_of(ranks: Sequence[Rank]) -> str:
    """Return in words which exchange waits for which ranks; "" unless all ranks had stopped when
    they last wrote. ranks: of one job."""
    left = {rank.rank for rank in ranks if rank.is_over}
    waits = {rank.rank: rank.waits for rank in ranks if rank.waits and _is_long(rank)}
    if not waits or len(left | waits.keys()) < len(ranks):
        return ""
    told = []
    for what in dict.fromkeys(wait[0] for wait in waits.values() if wait[0]):
        within = {rank: wait for rank, wait in waits.items() if wait[0] == what}
        others = [rank for rank in range(ranks[0].size) if rank not in within]
        if others:
            rank, (_, seconds, place) = next(iter(within.items()))
            where = f", which rank {rank} calls at {place}," if place else ""
            whom = f"rank {others[0]}" + f" and {len(others) - 1} more" * bool(others[1:])
            _, _, at = waits.get(others[0], ("", 0.0, ""))
            if others[0] in left:
                whom += ", which has ended"
            elif at:
                whom += f", which is at {at}"
            told.append(f"{what}{where} waits for {whom} ({seconds:.0f} s so far)")
    return "; ".join(told)


def _is_long(rank: Rank) -> bool:
    assert rank.waits is not None
    if rank.steps is None:
        return True
    mean = rank.steps.period or 0.0
    return rank.waits[1] >= max(LONGER * mean, SLOWER * rank.steps.longest)
