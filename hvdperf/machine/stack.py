"""The stack that is installed for the worker's interpreter, and the mpirun that belongs to it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hvdperf.errors import UserError
from hvdperf.files import write_whole
from hvdperf.json_records import Unreadable, convert, decode, encode
from hvdperf.machine.starting import rank_environment
from hvdperf.paths import CHECKOUT, ROOT
from hvdperf.programs import NotStarted, TooLong, fate_of, last_line, run

# The environments that the Makefile builds: .venv, .venv-gpu, .venv-tf2.21.0-hvd0.28.0-py3.12.
_OWN = re.compile(
    r"\.venv(?P<gpu>-gpu)?(-tf(?P<TF>[\d.]+))?(-hvd(?P<HOROVOD>[\d.]+))?(-py(?P<PYTHON>[\d.]+))?"
)

_PROBE = "hvdperf.worker.probe"
_DEADLINE_S = 120.0
_MPIRUN_DEADLINE_S = 20.0
_PYTHON_DEADLINE_S = 20.0
# The oldest Python in which ranks run.
_OLDEST = (3, 9)
# Stack.mpirun_version without an mpirun that works.
NO_MPIRUN = "none"

# Variables that decide what tf.keras is.
KERAS_VARIABLES = ("TF_USE_LEGACY_KERAS", "KERAS_BACKEND")
# Variables that decide which packages and libraries a probe finds, and whether TensorFlow computes
# in TF32: a change requires a new probe.
_PROBED_VARIABLES = (
    *("PYTHONPATH", "PYTHONNOUSERSITE", "LD_LIBRARY_PATH"),
    *(*KERAS_VARIABLES, "NVIDIA_TF32_OVERRIDE"),
)


@dataclass(frozen=True)
class Stack:
    """One installed stack, as the probe (hvdperf.worker.probe) and mpirun report it.

    mpirun: the one that belongs to it; "" if there is none. mpirun_version: the first line of its
    --version; NO_MPIRUN if it does not work. horovod_flags: the features that Horovod was built
    with, among mpi, gloo, nccl, cuda, rocm, ddl and ccl. mpi_library: the library that Horovod
    loads, which mpirun should match. packages: the sorted name==version lines. packages_sha256: the
    hash of these lines. horovod_sha256: of its files, by which builds of one version differ.
    """

    interpreter: str
    mpirun: str
    mpirun_version: str
    python: str
    tensorflow: str
    tensorflow_git: str
    keras: str
    numpy: str
    horovod: str
    horovod_flags: tuple[str, ...]
    packages_sha256: str
    mpi_library: str | None = None
    nccl: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    tf32: bool | None = None
    packages: tuple[str, ...] = ()
    horovod_sha256: str = ""

    @property
    def has_tf_keras(self) -> bool:
        """Return whether the package of Keras 2 is installed, whichever Keras is used."""
        return any(line.startswith("tf-keras==") for line in self.packages)


def probe(
    interpreter: str | Path,
    cache_dir: Path,
    environment: Mapping[str, str] = os.environ,
    deadline_s: float = _DEADLINE_S,
) -> Stack:
    """Return the stack of an interpreter, from the cache if nothing has been installed since.

    Raises UserError if training could not start: no interpreter, no TensorFlow, no Horovod, a
    Horovod built for another TensorFlow or that cannot load its library, a probe that does not end.
    Whether a launcher can start it is another question (launch.launchers.check_can_start).
    """
    interpreter = Path(interpreter).absolute()
    _must_be_a_program(interpreter)
    try:
        mpirun = str(find_mpirun(interpreter, environment))
    except UserError:
        mpirun = ""
    # The probe inspects the installation, so it needs no GPU.
    worker_environment = {**rank_environment(interpreter, environment), "CUDA_VISIBLE_DEVICES": ""}
    cache = cache_dir / f"stack-{_key(interpreter, mpirun, worker_environment)}.json"
    kept = _cached(cache)
    if kept is not None:
        return kept
    facts = _ask(interpreter, worker_environment, deadline_s)
    _refuse(interpreter, facts)
    answers = NO_MPIRUN
    with contextlib.suppress(UserError):
        answers = mpirun_version(Path(mpirun), worker_environment)
    own = {"interpreter": str(interpreter), "mpirun": mpirun, "mpirun_version": answers}
    stack = convert({**facts, **own}, Stack)
    # What is wrong with an mpirun may be repaired elsewhere than in its file.
    if not mpirun or answers != NO_MPIRUN:
        _keep(cache, stack, facts["searched"])
    return stack


def stack_differences(old: Stack, new: Stack) -> list[str]:
    """Return the differences of the new stack from the old one, such as "keras: 2.15.0 -> 3.15.1".

    Packages are compared by name. Other lines show facts that no package version shows.
    """
    names = ("python", "mpirun_version", "mpi_library", "nccl", "cuda", "cudnn", "horovod_flags")
    found = [
        f"{name}: {_readable(getattr(old, name))} -> {_readable(getattr(new, name))}"
        for name in (*names, "tf32")
        if getattr(old, name) != getattr(new, name)
    ]
    ours, theirs = (dict(line.split("==", 1) for line in stack.packages) for stack in (new, old))
    return found + [
        f"{name}: {theirs.get(name, 'none')} -> {ours.get(name, 'none')}"
        for name in sorted({*ours, *theirs})
        if ours.get(name) != theirs.get(name)
    ]


def _readable(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def find_mpirun(interpreter: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the mpirun of the interpreter's own environment, or else the first one on PATH.

    It must belong to Horovod's Open MPI, because ranks that another Open MPI starts do not find
    each other. Raises UserError if there is no mpirun.
    """
    search = os.pathsep.join([str(interpreter.parent), environment.get("PATH", "")])
    found = shutil.which("mpirun", path=search)
    if found is None:
        raise UserError(
            f"there is no mpirun, neither in {interpreter.parent} nor on PATH; "
            f"{_install(interpreter)}"
        )
    return Path(found)


def mpirun_version(mpirun: Path, environment: Mapping[str, str] = os.environ) -> str:
    """Return the first line of mpirun --version, such as "mpirun (Open MPI) 4.1.8".

    Raises UserError if the command fails.
    """
    try:
        done = run([mpirun, "--version"], env=environment, within_s=_MPIRUN_DEADLINE_S)
    except (NotStarted, TooLong) as error:
        raise UserError(f"{mpirun} --version does not work: {error}; {_install(mpirun)}") from None
    if done.status != 0:
        raise UserError(
            f"{mpirun} --version failed {fate_of(done.status)}: {done.said[0]}; {_install(mpirun)}"
        )
    first, *more = done.said
    # MPICH has its version in the second line.
    return f"{first} {' '.join(more[0].split())}" if first.endswith(":") and more else first


def _must_be_a_program(interpreter: Path) -> None:
    if not interpreter.is_file() or not os.access(interpreter, os.X_OK):
        raise UserError(f"there is no Python interpreter at {interpreter}; {_install(interpreter)}")


def check_python(interpreter: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Raise UserError if this is no Python in which ranks run."""
    _must_be_a_program(interpreter)
    install = _install(interpreter)
    ask = "import sys; print('%d %d' % sys.version_info[:2])"
    try:
        done = run([interpreter, "-c", ask], env=environment, within_s=_PYTHON_DEADLINE_S)
    except (NotStarted, TooLong) as error:
        raise UserError(f"{error}; {install}") from None
    answer = re.fullmatch(r"(\d+) (\d+)", last_line(done.output))
    if answer is None or done.status != 0:
        why = f": {last_line(done.errors)}" if done.errors.strip() else ""
        raise UserError(
            f"{interpreter} does not answer as Python does {fate_of(done.status)}{why}; {install}"
        )
    version = int(answer[1]), int(answer[2])
    if version < _OLDEST:
        names = [".".join(map(str, each)) for each in (version, _OLDEST)]
        raise UserError(
            f"{interpreter} is Python {names[0]}, and ranks need {names[1]} or later; {install}"
        )


def _ask(interpreter: Path, environment: Mapping[str, str], deadline_s: float) -> dict[str, Any]:
    command = f"{interpreter} -m {_PROBE}"
    try:
        done = run([interpreter, "-m", _PROBE], ROOT, environment, within_s=deadline_s)
    except NotStarted as error:
        raise UserError(f"{error}; {_install(interpreter)}") from None
    except TooLong:
        raise UserError(
            f"{interpreter} did not import TensorFlow and Horovod within {deadline_s:g} s: "
            f"try `{command}` to see where it hangs"
        ) from None
    try:
        # The programs of containers and modules have their say first.
        facts: dict[str, Any] = json.loads(last_line(done.output))
    except ValueError:
        check_python(interpreter, environment)
        last = last_line(done.errors) or "it printed no error"
        fix = f"try `{command}` in {ROOT} to see all of it"
        if "No module named 'hvdperf'" in last:
            fix = f"a container has to show {ROOT} at the same path, and to hand on PYTHONPATH"
        raise UserError(f"{command} failed {fate_of(done.status)}: {last}; {fix}") from None
    return facts


def _build(program: Path) -> str:
    """Return the command that builds the environment that a program is in."""
    own = next(filter(None, (_OWN.fullmatch(part) for part in program.parts)), None)
    if own is None:
        return "make env"
    if own["gpu"]:
        return "make env GPU=1"
    named = [f"{name}={own[name]}" for name in ("TF", "HOROVOD", "PYTHON") if own[name]]
    return " ".join(["make", "stack" if own["HOROVOD"] else "env", *named])


def _install(program: Path) -> str:
    """Return what to do about an environment that a program is in."""
    if CHECKOUT is None:
        return "install TensorFlow, Horovod and MPI in that environment"
    command = f"run `{_build(program)}` and `. ./activate`"
    is_own = any(map(_OWN.fullmatch, program.parts))
    return command if is_own else f"{command}, or give the interpreter that `make stack` prints"


def _refuse(interpreter: Path, facts: Mapping[str, Any]) -> None:
    """Raise UserError if the probe reports an error (probe.ERRORS)."""
    error = facts["error"]
    if error is None:
        return
    kind, message = error["kind"], error["message"]
    install = _install(interpreter)
    if kind == "tensorflow":
        raise UserError(f"{interpreter} cannot import TensorFlow ({message}); {install}")
    if kind == "horovod":
        raise UserError(f"{interpreter} has TensorFlow but no Horovod ({message}); {install}")
    if kind == "built for another tensorflow":
        build = "" if CHECKOUT is None else f"run `{_build(interpreter)}` to "
        raise UserError(f"{interpreter}: {message}; {build}build Horovod again")
    raise UserError(
        f"{interpreter}: Horovod {facts['horovod']} does not load ({message}); {install}"
    )


def _key(interpreter: Path, mpirun: str, environment: Mapping[str, str]) -> str:
    """Return a hash of all that the probe's answer depends on, except the installed files."""
    probe_source = (ROOT / "hvdperf/worker/probe.py").read_text()
    variables = [environment.get(name) for name in _PROBED_VARIABLES]
    inputs = [str(interpreter), mpirun, probe_source, variables]
    return hashlib.sha256(json.dumps(inputs).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class _Kept:
    """The answer of an earlier probe. stamps: of the files that it depends on."""

    stamps: Mapping[str, int | None]
    stack: Stack


def _cached(cache: Path) -> Stack | None:
    """Return the stack of an earlier probe. Return None if a file that it depends on has changed
    since, or if the cache is missing or incomplete."""
    try:
        kept = decode(cache.read_bytes(), _Kept)
    except (OSError, Unreadable):
        return None
    return kept.stack if kept.stamps == dict(_stamps(kept.stamps)) else None


def _keep(cache: Path, stack: Stack, searched: Iterable[str]) -> None:
    """Write the cache whole or not at all. A failed write is ignored, since it only costs time."""
    watched = [path for path in (stack.interpreter, stack.mpirun) if path]
    for directory in (Path(path) for path in searched if Path(path) != ROOT):
        patterns = ("horovod-*.dist-info", "tensorflow*.dist-info", "horovod/metadata.json")
        installed = (path for pattern in patterns for path in directory.glob(pattern))
        watched += map(str, (directory, *installed))
    with contextlib.suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_whole(cache, encode(_Kept(dict(_stamps(watched)), stack)).decode())


def _stamps(paths: Iterable[str]) -> Iterator[tuple[str, int | None]]:
    """Yield each path with the time of its last change in nanoseconds, or None if it is gone."""
    for path in paths:
        try:
            yield path, os.stat(path).st_mtime_ns
        except OSError:
            yield path, None
