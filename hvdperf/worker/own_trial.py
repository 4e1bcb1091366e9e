"""The order by which a rank tries a network of the user's own, before anything is timed: it reads
samples of the network's own data, goes through the rest of the start-up, from the trace on, and
trains some steps. It raises BadNetwork for a network that cannot be measured."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections import Counter
from functools import partial
from typing import Any

import tensorflow as tf

from hvdperf.models import contract, registry
from hvdperf.models.own_networks import BadNetwork
from hvdperf.models.registry import Shard
from hvdperf.worker import training
from hvdperf.worker.protocol import Phase, RankConfig
from hvdperf.worker.session_link import Driver, go_through
from hvdperf.worker.strategies.base import Facts

# Samples of a shard that are read: at most, and until this many seconds have passed.
SAMPLES, SAMPLES_SECONDS = 1000, 10.0
# Samples by which the data are known.
OF_IDENTITY = 8
# Two shards overlap if they share more than this part of the samples that each has once.
SHARED = 0.01


# Training ------------------------------------------------------------------------------------


def check(trainer: Any, driver: Driver, steps: int, is_first: bool, read: bool) -> Facts:
    """Start to train, and train so many steps. Return the fields of session.control.FirstSteps.
    is_first: whether losses and gradients of a batch are looked at. read: whether rank 0 reads the
    data for all ranks."""
    config = trainer.config
    network = registry.network(config.model)
    identity = _read(config) if read and driver.rank == 0 else ""
    if is_first:
        _check_gradients(config, (driver.rank, config.world_size))
    for part in trainer.parts:
        contract.check_methods(part.model, bool(network.loss), bool(network.optimizer))
    began = time.monotonic()
    facts = go_through(trainer, driver, Phase.TRACE, Phase.BROADCAST)
    started = time.monotonic()
    for step in range(steps):
        trainer.learning_rate.before_step()
        loss = float(trainer.step("full", trainer.next_batch("full")))
        if not math.isfinite(loss):
            raise BadNetwork(
                f"the loss is {_shown(loss)} at step {step + 2}; lower its learning rate"
            )
    return {
        "start_seconds": started - began,
        "step_seconds": (time.monotonic() - started) / steps,
        "sparse": facts.get("sparse_tensors", 0),
        "identity": identity,
    }


def _shown(loss: float) -> str:
    return "NaN" if math.isnan(loss) else str(loss)


def _check_gradients(config: RankConfig, shard: tuple[int, int]) -> None:
    """Compute the gradients of a first batch, without a graph. Raises BadNetwork if a variable has
    none, and if the loss is not finite, or is not one figure a sample."""
    task = training.find_task(config)
    batch = next(iter(training.open_dataset(config, task, config.batch, shard=shard)))
    counts: list[int] = []

    def total(losses: Any) -> Any:
        counts.append(int(losses.shape[0]))
        return tf.reduce_mean(losses)

    def use(part: training.Part, gradients: Any) -> None:
        pairs = zip(part.sources, gradients)
        if missing := [variable.name for variable, gradient in pairs if gradient is None]:
            names = ", ".join(missing[:3])
            raise BadNetwork(f"the loss does not depend on its variables {names}")

    parts = training.build_parts(config, task, "sgd")
    loss = float(training.update(task, parts, batch, total, use=use))
    if not math.isfinite(loss):
        raise BadNetwork(f"the loss of its first step is {_shown(loss)}")
    samples = training.count(batch)
    for count in counts:
        if count != samples:
            raise BadNetwork(
                f"its loss returns {count} figures for {samples} samples; return one figure a "
                "sample, [n]"
            )


# Reading -------------------------------------------------------------------------------------


def _read(config: RankConfig) -> str:
    """Return the identity of the network's own data. Raises BadNetwork if the samples cannot be
    shared by the replicas, or do not fit together."""
    replicas = config.world_size
    first = partial(_first, config, {})
    whole = first(Shard(0, 1), OF_IDENTITY + replicas)
    if not whole:
        raise BadNetwork("its data yield no sample")
    shards = [first(Shard(index, replicas), SAMPLES) for index in sorted({0, replicas - 1})]
    if len(whole) < replicas:
        few = f"{len(whole)} sample{'s' * (len(whole) > 1)}"
        raise BadNetwork(
            f"{few} cannot be shared by {replicas} ranks; use more data, or --world-sizes up to "
            f"{len(whole)}"
        )
    for index, samples in zip((0, replicas - 1), shards):
        if not samples:
            raise BadNetwork(
                f"shard {index} of {replicas} has no sample; divide samples rather than files, or "
                "use more files"
            )
    if replicas > 1 and (shared := _shared(*shards)):
        raise BadNetwork(
            f"shards 0 and {replicas - 1} of {replicas} overlap: {shared} of their first "
            f"{min(map(len, shards))} samples are the same; divide the samples, as in "
            "dataset.shard(shard.count, shard.index), before they are shuffled"
        )
    # Of its identity are the number of samples, if it is known, their form, and a hash of the first
    # ones, if these are the same at each opening.
    known = whole[:OF_IDENTITY]
    dataset = _opened(config, Shard(0, 1))
    size = int(dataset.cardinality())
    form = re.sub(r"TensorSpec\(shape=|, name=None\)|tf\.", "", str(dataset.element_spec))
    is_same = first(Shard(0, 1), len(known)) == known
    digest = hashlib.sha256(" ".join(known).encode()).hexdigest()[:16]
    parts = [f"{size} samples"] * (size >= 0)
    parts += [form, digest if is_same else "differs at each opening"]
    return ", ".join(parts)


def _opened(config: RankConfig, shard: Shard) -> Any:
    """Open the network's own data as ranks do."""
    return contract.samples(config.model, config.input_size, shard, config.data_seed)


def _first(config: RankConfig, shapes: dict[str, Any], shard: Shard, most: int) -> list[str]:
    """Return hashes of the first samples of a shard. shapes: those of the samples so far, which are
    added to. Raises BadNetwork if samples have different shapes, or a label is out of range."""
    classes = 0 if registry.network(config.model).loss else config.classes
    until = time.monotonic() + SAMPLES_SECONDS
    found: list[str] = []
    for sample in _opened(config, shard).take(most):
        for path, leaf in contract.leaves(sample):
            known = shapes.setdefault(path, leaf.shape)
            if known != leaf.shape:
                raise BadNetwork(
                    f"{path} has the shape {known} in one sample and {leaf.shape} in another; pad "
                    "them to one shape"
                )
        label = sample[1]
        if classes and getattr(label, "dtype", None) is not None and label.dtype.is_integer:
            largest = int(label.numpy().max(initial=0))
            if largest >= classes:
                raise BadNetwork(f"label {largest} of {classes} classes")
        found.append(training.samples_digest(sample))
        if time.monotonic() > until:
            break
    return found


def _shared(ours: list[str], theirs: list[str]) -> int:
    """Return how many samples two shards share, of those that each of them has once; 0 for so few
    that duplicates in the data may be the reason."""
    once = [
        {text for text, count in Counter(each).items() if count == 1} for each in (ours, theirs)
    ]
    shared = len(once[0] & once[1])
    return shared if shared > SHARED * min(len(ours), len(theirs)) else 0
