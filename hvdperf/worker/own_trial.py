"""Tries networks of a user's own: does in one process what ranks will do, before anything is timed.

The session runs `python -m hvdperf.worker.own_trial` with the interpreter of a stack, and
writes a JSON list of requests to its standard input. Every request is carried out by a process of
its own and answered by a line of JSON, in their order. A request has `config`, as a rank gets it,
`replicas`, the largest number of them, and `work`:

- train: start up as a rank of that strategy does, and train some steps on the first and on the last
  shard. Answers start_seconds, step_seconds, sparse (number of gradients of single rows),
  other_exchanges (number of Horovod's operations that do not reduce gradients) and apart (the
  largest relative difference between the gradients of two equal steps; null if not `compare`).
- read: read samples of the network's own data. Answers identity (a text that tells the data from
  others), and differs (how the data differ at each opening, in words; "" if they do not).

Instead of this it answers error, what follows the name of the network in a message, or late, the
seconds after which the process was ended. `files` are the files that were imported from beside that
of the network, with hashes of their content.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import select
import signal
import sys
import tempfile
import textwrap
import time
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

from hvdperf.models import own_networks, registry
from hvdperf.models.registry import Shard
from hvdperf.worker import process
from hvdperf.worker.fork.server import import_all
from hvdperf.worker.rank_config import RankConfig
from hvdperf.worker.session_link import in_words

# What a session could not measure apart: the steps of one process differ by rounding at most.
APART_AT_MOST = 1e-3
# Further steps after the first one: at most, and until this many seconds have passed.
STEPS, STEPS_SECONDS = 3, 10.0
# Samples of a shard that are read: at most, and until this many seconds have passed.
SAMPLES, SAMPLES_SECONDS = 1000, 10.0
# Samples by which openings of the data are compared, and which are in its identity.
SAME_SAMPLES, OF_IDENTITY = 64, 8
# Two shards overlap if they share more than this part of the samples that each has once.
SHARED = 0.01
LONGEST_MESSAGE = 300


class NotTrainable(Exception):
    """The network cannot be measured; the message says why, and what to do."""


# Training ------------------------------------------------------------------------------------


def train(request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request to train."""
    import numpy as np

    from hvdperf.models import contract
    from hvdperf.worker.__main__ import make_trainer

    config, replicas = RankConfig.of(request["config"]), request["replicas"]
    network = registry.network(config.model)
    began = time.monotonic()
    trainer = make_trainer(config)
    trainer.init()
    if replicas > 1:
        _become(trainer, 0, replicas)
    trainer.build()
    trainer.open_input()
    apart = _repeated(config, replicas, np) if request["compare"] else None
    for part in trainer.parts:
        contract.check_methods(part.model, bool(network.loss), bool(network.optimizer))
    facts = {**(trainer.trace() or {}), **(trainer.first_step() or {})}
    trainer.broadcast()
    start_seconds = time.monotonic() - began
    seconds = _steps(trainer, STEPS)
    if replicas > 1:
        _become(trainer, replicas - 1, replicas)
        trainer.open_input()
        _steps(trainer, 1)
    return {
        "start_seconds": start_seconds,
        "step_seconds": seconds,
        "sparse": facts.get("sparse_tensors", 0),
        "other_exchanges": facts.get("other_exchanges", 0),
        "apart": apart,
    }


def _become(trainer: Any, rank: int, replicas: int) -> None:
    """Have the trainer of a single process take the part of a rank of several."""
    trainer.rank, trainer.world_size = rank, replicas
    for name, value in (("RANK", rank), ("LOCAL_RANK", rank), ("SIZE", replicas)):
        os.environ[f"OMPI_COMM_WORLD_{name}"] = str(value)


def _steps(trainer: Any, most: int) -> float:
    """Train some steps. Return the seconds of the median one."""
    seconds: list[float] = []
    while len(seconds) < most and sum(seconds) < STEPS_SECONDS:
        began = time.monotonic()
        trainer.learning_rate.before_step()
        loss = float(trainer.step("full", trainer.next_batch("full")))
        seconds.append(time.monotonic() - began)
        if not math.isfinite(loss):
            raise NotTrainable(
                f"the loss is {_shown(loss)} at step {len(seconds) + 1}; lower its learning rate"
            )
    return sorted(seconds)[len(seconds) // 2]


def _shown(loss: float) -> str:
    return "NaN" if math.isnan(loss) else str(loss)


def _repeated(config: RankConfig, replicas: int, np: Any) -> float | None:
    """Return what _apart returns, or None if this device cannot repeat a step exactly."""
    from hvdperf.worker import training

    try:
        with training.reproducible():
            return _apart(config, replicas, np)
    except training.Irreproducible:
        return None


def _apart(config: RankConfig, replicas: int, np: Any) -> float:
    """Check the gradients of a first step, without dropout and the like. Return the largest
    relative difference of weights and gradients between three such steps: two of one graph, and one
    of a network that is built and traced anew."""
    from hvdperf.worker import training

    task = training.find_task(config)
    dataset = training.open_dataset(config, task, config.batch, shard=(0, replicas))
    batch = next(iter(dataset))
    steps = []
    for times in (2, 1):
        parts = training.without_randomness(training.build_parts(config, task, "sgd"))
        weights = [weight.numpy() for weight in training.weights(parts)]
        gradients = _gradients(task, parts)
        for _ in range(times):
            steps.append([*weights, *_checked_gradients(gradients, batch, config.batch)])
    return max(
        float(np.abs(one - other).max(initial=0.0)) / (float(np.abs(one).max(initial=0.0)) or 1.0)
        for others in steps[1:]
        for one, other in zip(steps[0], others)
    )


def _gradients(task: Any, parts: Any) -> Any:
    """Return a function of a batch that returns the loss, the number of figures of each loss, and
    the gradients. Tracing it raises NotTrainable if a variable has none."""
    import tensorflow as tf

    from hvdperf.worker import training

    @training.graph(input_signature=task.signature())
    def gradients(*samples: Any) -> Any:
        found: list[Any] = []
        counts: list[Any] = []
        missing: list[str] = []

        def total(losses: Any) -> Any:
            counts.append(tf.shape(losses)[0])
            return tf.reduce_mean(losses)

        def use(part: training.Part, of_part: Any) -> None:
            for variable, gradient in zip(part.sources, of_part):
                if gradient is None:
                    missing.append(variable.name)
                else:
                    found.append(tf.convert_to_tensor(gradient))

        loss = training.update(task, parts, samples, total, use=use)
        if missing:
            names = ", ".join(missing[:3])
            raise NotTrainable(f"the loss does not depend on its variables {names}")
        return loss, counts, found

    return gradients


def _checked_gradients(gradients: Any, batch: Any, samples: int) -> list[Any]:
    """Return the gradients as arrays. Raises NotTrainable if the loss is not finite, or is not one
    figure a sample."""
    loss, counts, found = gradients(*batch)
    if not math.isfinite(float(loss)):
        raise NotTrainable(f"the loss of its first step is {_shown(float(loss))}")
    for count in counts:
        if int(count) != samples:
            raise NotTrainable(
                f"its loss returns {int(count)} figures for {samples} samples; return one figure "
                "a sample, [n]"
            )
    return [each.numpy() for each in found]


# Reading -------------------------------------------------------------------------------------


def read(request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request to read. Raises NotTrainable if the samples cannot be shared
    by the replicas, or do not fit together."""
    config, replicas = RankConfig.of(request["config"]), request["replicas"]
    own = _Own(config)
    whole = own.first(Shard(0, 1), OF_IDENTITY + replicas)
    if not whole:
        raise NotTrainable("its data yield no sample")
    shards = [own.first(Shard(index, replicas), SAMPLES) for index in sorted({0, replicas - 1})]
    if len(whole) < replicas:
        count = f"{len(whole)} sample{'s' * (len(whole) > 1)}"
        raise NotTrainable(
            f"{count} cannot be shared by {replicas} ranks; use more data, or --world-sizes up to "
            f"{len(whole)}"
        )
    for index, samples in zip((0, replicas - 1), shards):
        if not samples:
            raise NotTrainable(
                f"shard {index} of {replicas} has no sample; divide samples rather than files, or "
                "use more files"
            )
    if replicas > 1 and (shared := _shared(*shards)):
        raise NotTrainable(
            f"shards 0 and {replicas - 1} of {replicas} overlap: {shared} of their first "
            f"{min(map(len, shards))} samples are the same; divide the samples, as in "
            "dataset.shard(shard.count, shard.index), before they are shuffled"
        )
    again = own.first(Shard(0, replicas), min(SAME_SAMPLES, len(shards[0])))
    same = sum(a == b for a, b in zip(again, shards[0]))
    differs = f"{same} of {len(again)} samples are the same" if same < len(again) else ""
    return {"identity": own.identity(whole[:OF_IDENTITY]), "differs": differs}


class _Own:
    """The network's own data, opened as ranks open them."""

    def __init__(self, config: RankConfig) -> None:
        self._network = registry.network(config.model)
        self._size, self._seed = config.input_size, config.data_seed
        self._classes = 0 if self._network.loss else config.classes
        self._shapes: dict[str, Any] = {}

    def _open(self, shard: Shard) -> Any:
        from hvdperf.models.inputs import own

        return own.samples(self._network.name, self._size, shard, self._seed)

    def first(self, shard: Shard, most: int) -> list[str]:
        """Return hashes of the first samples of a shard. Raises NotTrainable if samples have
        different shapes, or a label is out of range."""
        until = time.monotonic() + SAMPLES_SECONDS
        found: list[str] = []
        for sample in self._open(shard).take(most):
            found.append(self._checked(sample))
            if time.monotonic() > until:
                break
        return found

    def _checked(self, sample: Any) -> str:
        from hvdperf.models.inputs import own
        from hvdperf.worker import training

        for path, leaf in own.leaves(sample):
            known = self._shapes.setdefault(path, leaf.shape)
            if known != leaf.shape:
                raise NotTrainable(
                    f"{path} has the shape {known} in one sample and {leaf.shape} in another; pad "
                    "them to one shape"
                )
        label = sample[1]
        if self._classes and getattr(label, "dtype", None) is not None and label.dtype.is_integer:
            largest = int(label.numpy().max(initial=0))
            if largest >= self._classes:
                raise NotTrainable(f"label {largest} of {self._classes} classes")
        return training.samples_digest(sample)

    def identity(self, first: list[str]) -> str:
        """Return the number of samples, if it is known, their form, and a hash of the first ones if
        these are the same at each opening."""
        dataset = self._open(Shard(0, 1))
        count = int(dataset.cardinality())
        again = self.first(Shard(0, 1), len(first))
        form = re.sub(r"TensorSpec\(shape=|, name=None\)|tf\.", "", str(dataset.element_spec))
        known = hashlib.sha256(" ".join(first).encode()).hexdigest()[:16]
        parts = [f"{count} samples"] if count >= 0 else []
        return ", ".join([*parts, form, known if again == first else "differs at each opening"])


def _shared(ours: list[str], theirs: list[str]) -> int:
    """Return how many samples two shards share, of those that each of them has once; 0 for so few
    that duplicates in the data may be the reason."""
    once = [
        {text for text, count in Counter(each).items() if count == 1} for each in (ours, theirs)
    ]
    shared = len(once[0] & once[1])
    return shared if shared > SHARED * min(len(ours), len(theirs)) else 0


# Processes -----------------------------------------------------------------------------------


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Carry out a request in this process, and return its answer."""
    own_network = request["config"]["own_network"]
    source = ""
    try:
        own_networks.load(own_network)
        source = own_networks.source(own_network)
        found = {"train": train, "read": read}[request["work"]](request)
    except NotTrainable as error:
        return {"error": f": {error}"}
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is the user's code
        where = own_networks.line_of(error, source)
        text = textwrap.shorten(in_words(error), LONGEST_MESSAGE, placeholder=" ...")
        return {"error": f"{f' (line {where})' if where else ''}: {text}"}
    return {**found, "files": _files_beside(Path(source).parent)}


def _files_beside(directory: Path) -> dict[str, str]:
    """Return the imported files below a directory, with hashes of their content."""
    names = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    paths = (Path(name) for name in names if name and name.endswith(".py"))
    own = Path(own_networks.__file__).parents[1]
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(paths)
        if path.is_relative_to(directory) and not path.is_relative_to(own) and path.is_file()
    }


def answer_apart(request: dict[str, Any]) -> dict[str, Any]:
    """Have a process of its own carry out a request, and return its answer."""
    ours, theirs = os.pipe()
    with tempfile.TemporaryFile() as errors:
        pid = os.fork()
        if pid == 0:
            _child(request, theirs, errors.fileno())
        os.close(theirs)
        text, late = _read_to_end(ours, time.monotonic() + request["deadline_s"])
        if late:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if late:
            return {"late": request["deadline_s"]}
        if text:
            found: dict[str, Any] = json.loads(text)
            return found
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        return {"error": f": its first steps ended with status {status}: {said[0]}"}


def _read_to_end(descriptor: int, deadline: float) -> tuple[str, bool]:
    """Return what a process writes until it ends, and whether it has not ended in time."""
    parts: list[bytes] = []
    with os.fdopen(descriptor, "rb", buffering=0) as stream:
        while select.select([stream], [], [], max(0.0, deadline - time.monotonic()))[0]:
            part = stream.read(1 << 16)
            if not part:
                return b"".join(parts).decode(), False
            parts.append(part)
    return "", True


def _child(request: dict[str, Any], into: int, errors: int) -> NoReturn:
    try:
        process.die_with_parent()
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        process.configure_environment(request["config"]["device"])
        with os.fdopen(into, "w") as stream:
            json.dump(answer(request), stream)
    finally:
        os._exit(0)


def main() -> None:
    requests = json.load(sys.stdin)
    process.die_with_parent()
    out = os.dup(1)
    os.dup2(2, 1)  # what a user's module prints is no answer
    refusal = import_all()
    for request in requests:
        # A process with other threads cannot be forked. Only one request is carried out then; the
        # session starts another process for each.
        found = answer(request) if refusal else answer_apart(request)
        os.write(out, json.dumps(found).encode() + b"\n")
        if refusal:
            break


if __name__ == "__main__":
    main()
