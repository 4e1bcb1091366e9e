"""The order by which a rank tries a network of the user's own, before anything is timed: it reads
samples of the network's own data, goes through the rest of the start-up, from the trace on, and
trains some steps. It raises BadNetwork for a network that cannot be measured."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any, Callable

import numpy as np
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
# Samples by which openings of the data are compared, and which are in its identity.
SAME_SAMPLES, OF_IDENTITY = 64, 8
# Two shards overlap if they share more than this part of the samples that each has once.
SHARED = 0.01


# Training ------------------------------------------------------------------------------------


def check(trainer: Any, driver: Driver, steps: int, compare: bool, read: bool) -> Facts:
    """Start to train, and train so many steps. Return the fields of session.control.FirstSteps.
    compare: whether the gradients of equal steps are compared. read: whether rank 0 reads the data
    for all ranks."""
    config = trainer.config
    network = registry.network(config.model)
    of_data = _read(config) if read and driver.rank == 0 else {}
    apart = _apart(config, (driver.rank, config.world_size)) if compare else None
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
        **of_data,
        "start_seconds": started - began,
        "step_seconds": (time.monotonic() - started) / steps,
        "sparse": facts.get("sparse_tensors", 0),
        "apart": apart,
    }


def _shown(loss: float) -> str:
    return "NaN" if math.isnan(loss) else str(loss)


def _apart(config: RankConfig, shard: tuple[int, int]) -> float | None:
    """Check the gradients of a first step, without dropout and the like. Return the largest
    relative difference of weights and gradients between three such steps: two of one graph, and one
    of a network that is built and traced again; None if this device cannot repeat a step."""
    task = training.find_task(config)
    steps = []
    with suppress(training.Irreproducible), training.reproducible():
        batch = next(iter(training.open_dataset(config, task, config.batch, shard=shard)))
        for times in (2, 1):
            parts = training.without_randomness(training.build_parts(config, task, "sgd"))
            weights = [weight.numpy() for weight in training.weights(parts)]
            gradients = _gradients(task, parts)
            for _ in range(times):
                steps.append([*weights, *gradients(batch)])
        sizes = [float(np.abs(each).max(initial=0.0)) or 1.0 for each in steps[0]]
        return max(
            float(np.abs(one - other).max(initial=0.0)) / size
            for others in steps[1:]
            for one, other, size in zip(steps[0], others, sizes)
        )
    return None


def _gradients(task: Any, parts: Any) -> Callable[[Any], list[Any]]:
    """Return a function of a batch that returns the gradients. It raises BadNetwork if a variable
    has none, and if the loss is not finite, or is not one figure a sample."""

    @training.graph(input_signature=task.signature())
    def traced(*samples: Any) -> Any:
        found: list[Any] = []
        counts: list[Any] = []

        def total(losses: Any) -> Any:
            counts.append(tf.shape(losses)[0])
            return tf.reduce_mean(losses)

        def use(part: training.Part, gradients: Any) -> None:
            pairs = list(zip(part.sources, gradients))
            if missing := [variable.name for variable, gradient in pairs if gradient is None]:
                names = ", ".join(missing[:3])
                raise BadNetwork(f"the loss does not depend on its variables {names}")
            found.extend(tf.convert_to_tensor(gradient) for gradient in gradients)

        return training.update(task, parts, samples, total, use=use), counts, found

    def gradients(batch: Any) -> list[Any]:
        loss, counts, found = traced(*batch)
        if not math.isfinite(float(loss)):
            raise BadNetwork(f"the loss of its first step is {_shown(float(loss))}")
        samples = training.count(batch)
        for count in map(int, counts):
            if count != samples:
                raise BadNetwork(
                    f"its loss returns {count} figures for {samples} samples; return one figure a "
                    "sample, [n]"
                )
        return [each.numpy() for each in found]

    return gradients


# Reading -------------------------------------------------------------------------------------


def _read(config: RankConfig) -> Facts:
    """Return the identity of the network's own data, and how they differ at each opening. Raises
    BadNetwork if the samples cannot be shared by the replicas, or do not fit together."""
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
    again = first(Shard(0, replicas), min(SAME_SAMPLES, len(shards[0])))
    same = sum(a == b for a, b in zip(again, shards[0]))
    differs = f"{same} of {len(again)} samples are the same" if same < len(again) else ""
    # Of its identity are the number of samples, if it is known, their form, and a hash of the first
    # ones, if these are the same at each opening.
    dataset = _opened(config, Shard(0, 1))
    size = int(dataset.cardinality())
    form = re.sub(r"TensorSpec\(shape=|, name=None\)|tf\.", "", str(dataset.element_spec))
    digest = hashlib.sha256(" ".join(whole[:OF_IDENTITY]).encode()).hexdigest()[:16]
    parts = [f"{size} samples"] * (size >= 0)
    parts += [form, "differs at each opening" if differs else digest]
    return {"identity": ", ".join(parts), "differs": differs}


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
