"""Report what is installed in the worker's interpreter: one JSON object on stdout.

It is run as ``python -m hvdperf.worker.probe``, because pytest never imports TensorFlow. It must
run in Python 3.9 and in older installations. If training could not start, ``error`` is
{"kind": one of ERRORS, "message": ...}, and some of the facts are missing; otherwise it is null.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import sys
from pathlib import Path
from typing import Any

ERRORS = ("tensorflow", "horovod", "built for another tensorflow", "horovod library")

_FLAGS = ("mpi", "gloo", "nccl", "cuda", "rocm", "ddl", "ccl")
# MPICH has the longest MPI_MAX_LIBRARY_VERSION_STRING.
_VERSION_BYTES = 8192


def main() -> None:
    """Print the facts. Nothing else reaches stdout, whatever the libraries print on import."""
    with os.fdopen(os.dup(1), "wb") as stdout:
        os.dup2(2, 1)
        stdout.write(json.dumps(probe()).encode() + b"\n")


def probe() -> dict[str, Any]:
    """Return the facts as JSON values: versions, build flags, packages and their hash, search
    path."""
    installed = packages()
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "packages": installed,
        "packages_sha256": _hash(installed),
        "horovod_sha256": _hash(files("horovod")),
        "searched": [os.path.abspath(entry) for entry in sys.path if os.path.isdir(entry)],
    }
    try:
        import tensorflow as tf
    except Exception as error:  # noqa: BLE001 (packages that do not fit raise all kinds)
        return {**facts, "error": {"kind": "tensorflow", "message": _line(error)}}
    try:
        facts.update(_tensorflow_facts(tf))
    except Exception as error:  # noqa: BLE001
        # TensorFlow imports Keras only when it is used.
        legacy = os.environ.get("TF_USE_LEGACY_KERAS", "0") not in ("", "0")
        told = "TF_USE_LEGACY_KERAS is set, and the package tf-keras is missing"
        message = told if legacy and isinstance(error, ImportError) else _line(error)
        return {**facts, "error": {"kind": "tensorflow", "message": message}}
    facts["error"] = _add_horovod(facts, tf)
    return facts


def packages() -> list[str]:
    """Return the sorted lines name==version of all installed packages."""
    lines = set()
    for package in importlib.metadata.distributions():
        name = package.metadata["Name"]
        if name:  # None: what an interrupted uninstall left behind.
            lines.add("{}=={}".format(re.sub(r"[-_.]+", "-", name).lower(), package.version))
    return sorted(lines)


def _hash(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def files(name: str) -> list[str]:
    """Return the sorted lines path,sha256=... that an installer recorded of a package's files, so
    that another build of a version differs. Scripts and metadata name the environment itself."""
    return sorted(
        line
        for package in importlib.metadata.distributions(name=name)
        for line in (package.read_text("RECORD") or "").splitlines()
        if ",sha256=" in line and ".dist-info/" not in line and not line.startswith("../")
    )


def _tensorflow_facts(tf: Any) -> dict[str, Any]:
    import numpy

    build = tf.sysconfig.get_build_info()
    return {
        "tensorflow": tf.__version__,
        "tensorflow_git": tf.version.GIT_VERSION,
        "keras": _keras_version(tf),
        "numpy": numpy.__version__,
        "cuda": build.get("cuda_version"),
        "cudnn": build.get("cudnn_version"),
        "tf32": tf.config.experimental.tensor_float_32_execution_enabled(),
    }


def _keras_version(tf: Any) -> str:
    """Return the version of tf.keras, which in Keras 2.15 and in tf-keras does not say it."""
    is_legacy = tf.keras.__name__.startswith("tf_keras")
    package = "tf-keras" if is_legacy else "keras"
    return getattr(tf.keras, "__version__", None) or _version(package)


def _add_horovod(facts: dict[str, Any], tf: Any) -> dict[str, str] | None:
    """Add Horovod's facts. Return what keeps it from training with this TensorFlow, or None."""
    found = importlib.util.find_spec("horovod")
    if found is None or found.origin is None:
        return {"kind": "horovod", "message": "there is no package horovod"}
    facts["horovod"] = _version("horovod")
    built_for = built_for_tensorflow(Path(found.origin).with_name("metadata.json"))
    facts["horovod_tensorflow"] = built_for
    # Horovod itself only warns of this if its library happens to load all the same.
    if built_for not in (None, tf.__version__):
        message = "Horovod {} was built for TensorFlow {}, but TensorFlow {} is installed"
        return {
            "kind": "built for another tensorflow",
            "message": message.format(facts["horovod"], built_for, tf.__version__),
        }
    try:
        import horovod.tensorflow as hvd
    except Exception as error:  # noqa: BLE001 (of its library, its packages, or TensorFlow)
        return {"kind": "horovod library", "message": _line(error)}
    # A release that does not know a flag was built without it.
    built = [name for name in _FLAGS if getattr(hvd, name + "_built", bool)()]
    facts["horovod_flags"] = built
    facts["nccl"] = nccl_version(int(hvd.nccl_built()))
    facts["mpi_library"] = mpi_library_version()
    return None


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "(unknown version)"


def built_for_tensorflow(metadata: Path) -> str | None:
    """Return the TensorFlow version that Horovod's build recorded; None if it recorded none."""
    try:
        recorded = json.loads(metadata.read_text()).get("tensorflow")
    except (OSError, ValueError):
        return None
    return None if recorded is None else str(recorded)


def nccl_version(number: int) -> str | None:
    """Return NCCL's version from its one number: 21805 is 2.18.5 and, before 2.9, 2708 is 2.7.8.

    Return None for 0 and 1, by which Horovod reports only whether it was built with NCCL.
    """
    if number < 1000:
        return None
    major, rest = divmod(number, 10000 if number >= 10000 else 1000)
    return "{}.{}.{}".format(major, *divmod(rest, 100))


def mpi_library_version() -> str | None:
    """Return the version of the MPI library that this process has loaded, as
    MPI_Get_library_version gives it; None if there is no such library.

    Only the text before the first comma is kept: Open MPI goes on with who built it and where.
    """
    library = _loaded_library("libmpi")
    if library is None:
        return None
    text = ctypes.create_string_buffer(_VERSION_BYTES + 1)
    length = ctypes.c_int()
    ctypes.CDLL(library).MPI_Get_library_version(text, ctypes.byref(length))
    return text.value.decode(errors="replace").strip().partition("\n")[0].partition(",")[0]


def _loaded_library(name: str) -> str | None:
    """Return the path from which this process has mapped a library of that name, or None."""
    with open("/proc/self/maps") as maps:
        paths = {line.split(None, 5)[5].strip() for line in maps if len(line.split(None, 5)) == 6}
    pattern = re.compile(re.escape(name) + r"\.so[.0-9]*")
    return next((path for path in sorted(paths) if pattern.fullmatch(Path(path).name)), None)


def _line(error: BaseException) -> str:
    """Return the first line that is not blank, or the error's type if there is none."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


if __name__ == "__main__":
    main()
