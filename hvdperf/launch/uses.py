"""Which uses of Horovod work with an installed stack: tried on two ranks, by the scripts of
hvdperf.worker.uses.

A stack on which the suite measures well may still fail its users' scripts, and not all failures
are errors: with Keras 3, model.fit exchanges no gradients and ends with status 0.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from hvdperf.errors import UserError
from hvdperf.files import write_record
from hvdperf.json_records import Unreadable, decode
from hvdperf.launch.guard import guarded
from hvdperf.launch.launchers import problem_of_mpirun
from hvdperf.machine.stack import KERAS_VARIABLES, Stack
from hvdperf.machine.starting import rank_environment
from hvdperf.paths import ROOT
from hvdperf.programs import TooLong, run
from hvdperf.worker.uses import Use

RANKS = 2
# Seconds that a launch has: imports on a busy machine take one, and each use some seconds.
DEADLINE_S = 180.0
_DISCOVERY = f"#!/bin/sh\necho localhost:{RANKS}\n"


@dataclass(frozen=True)
class Tried:
    """A use that was tried. problem: what is wrong, in a line; "" if it does what it promises."""

    use: Use
    problem: str


# What a script's user sees first if Keras and Horovod do not fit together.
USUAL = (Use.TAPE, Use.FIT)


@dataclass(frozen=True)
class _Kept:
    tried: tuple[Tried, ...]


def usual_uses(stack: Stack, cache_dir: Path) -> tuple[Tried, ...]:
    """Return USUAL as tried with the stack, from the cache if the same packages were tried before.
    Raises UserError if the stack has no horovodrun."""
    scripts = sorted((ROOT / "hvdperf/worker/uses").glob("*.py"))
    inputs = [
        *(stack.interpreter, stack.packages_sha256, f"{needs_gloo(stack)}"),
        *(os.environ.get(name, "") for name in KERAS_VARIABLES),
        *(path.read_text() for path in scripts),
    ]
    path = cache_dir / f"uses-{sha256(json.dumps(inputs).encode()).hexdigest()[:16]}.json"
    with suppress(OSError, Unreadable):
        return decode(path.read_bytes(), _Kept).tried
    kept = _Kept(tuple(try_uses(stack, USUAL)))
    with suppress(OSError):
        cache_dir.mkdir(parents=True, exist_ok=True)
        write_record(path, kept)
    return kept.tried


def needs_gloo(stack: Stack) -> bool:
    """Return whether the stack's horovodrun starts ranks only with --gloo: it knows few MPIs."""
    return bool(problem_of_mpirun(stack))


def try_uses(
    stack: Stack, uses: Sequence[Use], environment: Mapping[str, str] = os.environ
) -> Iterator[Tried]:
    """Try the uses with a stack, and yield each. A use at which the ranks end or hang has that as
    its problem, and those after it are tried in another launch. Raises UserError if the stack has
    no horovodrun."""
    interpreter = Path(stack.interpreter)
    if not (interpreter.parent / "horovodrun").exists():
        raise UserError(f"there is no horovodrun beside {interpreter}")
    left = list(uses)
    while left:
        # An elastic job has a launcher of its own.
        is_elastic = left[0] is Use.ELASTIC
        batch = [use for use in left if (use is Use.ELASTIC) is is_elastic]
        found, why = _launched(stack, batch, is_elastic, environment)
        if len(found) < len(batch):
            found.append(Tried(batch[len(found)], why))
        yield from found
        left = [use for use in left if use not in [each.use for each in found]]


def _launched(
    stack: Stack, uses: Sequence[Use], is_elastic: bool, environment: Mapping[str, str]
) -> tuple[list[Tried], str]:
    """Return the uses that were tried in one launch, and why the next one was not."""
    names = [use.value for use in uses]
    interpreter = Path(stack.interpreter)
    with TemporaryDirectory() as directory:
        path = Path(directory) / "uses.jsonl"
        launch: list[str | Path] = [interpreter.parent / "horovodrun", "-np", f"{RANKS}"]
        if is_elastic:  # over Gloo in any case
            script = Path(directory) / "hosts"
            script.write_text(_DISCOVERY)
            script.chmod(0o755)
            launch += [
                f"--min-np={RANKS}",
                f"--max-np={RANKS}",
                f"--host-discovery-script={script}",
            ]
            # Without it Horovod waits for a second host to find the network between them.
            launch.append("--network-interface=lo")
        elif needs_gloo(stack):
            launch.append("--gloo")
        command = [*launch, interpreter, "-m", "hvdperf.worker.uses", path, *names]
        try:
            done = run(
                guarded([str(word) for word in command]),
                Path(directory),
                _environment(interpreter, environment),
                within_s=DEADLINE_S,
            )
            why = f"the ranks ended with status {done.status}: {done.why}"
        except TooLong:
            why = f"no end within {DEADLINE_S:g} s"
        try:
            lines = path.read_bytes().splitlines()
        except OSError:
            lines = []
        found = []
        for line in lines:
            try:
                found.append(decode(line, Tried))
            except Unreadable:
                break
        return found, why


def _environment(interpreter: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of horovodrun and its ranks: what people have, without GPUs, since
    two ranks may have one between them."""
    found = rank_environment(interpreter, environment)
    found["PATH"] = os.pathsep.join([str(interpreter.parent), found.get("PATH", "")])
    return {**found, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
