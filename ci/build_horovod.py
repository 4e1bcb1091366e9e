#!/usr/bin/env python3
"""Compile a release of Horovod against the TensorFlow and the Open MPI of an environment.

    python ci/build_horovod.py --horovod 0.28.0 --wheels DIR [--python ENVIRONMENT/bin/python]
    python ci/build_horovod.py --horovod 0.28.1 --settings-for 2.21.0

ci/setup.sh runs it for the environments of `make stack`. Where uv or pip compiles Horovod on its
own, ci/setup.sh takes the settings alone. It needs nothing but the standard library and pip.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / ".asv" / "logs"

# As in pyproject.toml, [tool.uv.extra-build-variables].
FLAGS = {
    "HOROVOD_WITH_TENSORFLOW": "1",
    "HOROVOD_WITH_MPI": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_PYTORCH": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
}


# Put before every source file: Horovod uses what these declare without including them, and with gcc
# 13 and later no other header includes them.
_STANDARD_HEADERS = ("stdexcept", "string")


# The headers of ci/quirks that some releases need besides.
# gloo needs gcc 11 and the headers of Linux 5.19 at most.
HOROVOD_QUIRKS = dict.fromkeys(
    ("0.25.0", "0.26.0", "0.26.1", "0.27.0", "0.28.0"), "gloo_before_0_28_1.h"
)
# Horovod includes headers of XLA that the package lacks, of which it uses nothing without GPUs.
TENSORFLOW_QUIRKS = dict.fromkeys(("2.19.1", "2.20.0", "2.21.0"), "xla_since_tensorflow_2_19.h")
# The directories to which pip unpacks Horovod and installs packages, which differ in every build.
_PLACE = re.compile(r"\S*/(?:pip-wheel-[^/]+/(?:horovod_[0-9a-f]+/)?|site-packages/)")
_ERROR = re.compile(r"(?:fatal error|error|Error|ERROR): (?P<message>.+)|CMake Error.*")


def main() -> None:
    parser = argparse.ArgumentParser(description="compile a release of Horovod")
    parser.add_argument("--horovod", required=True, help="version, or a file `horovod==version`")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--wheels", type=Path, help="directory for the wheel")
    target.add_argument("--settings-for", help="only print the settings for this TensorFlow")
    parser.add_argument("--python", default=sys.executable, help="of the environment")
    options = parser.parse_args()
    version = version_of(options.horovod)
    if options.settings_for is not None:
        for name, value in settings(version, options.settings_for).items():
            print(f"{name}={value}")
        return
    tensorflow = installed(options.python, "tensorflow-cpu") or installed(
        options.python, "tensorflow"
    )
    if tensorflow is None:
        sys.exit(f"build: {options.python} has no TensorFlow to compile Horovod against")
    if Path(options.python).absolute() == Path(sys.executable).absolute():
        install_requirements(options.python, tensorflow)
    log = LOGS / f"horovod-{version}-tensorflow-{tensorflow}.log"
    if compile_wheel(options.python, version, tensorflow, options.wheels, log) != 0:
        reason = reason_of(log.read_text(errors="replace"))
        sys.exit(
            f"build: Horovod {version} does not compile with TensorFlow {tensorflow}: {reason}"
        )


def version_of(text: str) -> str:
    """Return the version from `0.28.0`, or from the file of a commit of the release repository."""
    path = Path(text)
    if path.is_file():
        text = path.read_text().strip()
    return text.rpartition("==")[2]


def installed(python: str, package: str) -> str | None:
    """Return the version of a package in an environment; None if it is not installed."""
    code = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def install_requirements(python: str, tensorflow: str) -> None:
    """Install the packages that pyproject.toml pins for this TensorFlow, and those that compiling
    and running Horovod takes. The environment is one of asv's, which has TensorFlow and whatever
    pip brought along."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups, uv = project["dependency-groups"], project["tool"]["uv"]
    if f"tf{tensorflow}" not in groups:
        sys.exit(f"build: pyproject.toml has no group tf{tensorflow}, so nothing is pinned for it")
    tools = [
        each if isinstance(each, str) else each["requirement"]
        for each in uv["extra-build-dependencies"]["horovod"]
    ]
    runtime = [each for each in groups["suite"] if each.startswith("openmpi")]
    constraints = ROOT / ".asv" / f"constraints-tf{tensorflow}.txt"
    constraints.parent.mkdir(parents=True, exist_ok=True)
    pinned = [each for each in groups[f"tf{tensorflow}"] if isinstance(each, str)]
    constraints.write_text("\n".join([*uv["constraint-dependencies"], *pinned]) + "\n")
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "-c", constraints, *pinned, *runtime, *tools],
        check=True,
    )


def settings(horovod: str, tensorflow: str) -> dict[str, str]:
    """Return the variables by which the compiler takes the headers that Horovod needs, after what
    these variables hold."""
    quirks = (HOROVOD_QUIRKS.get(horovod), TENSORFLOW_QUIRKS.get(tensorflow))
    headers = [*_STANDARD_HEADERS, *filter(None, quirks)]
    flags = [os.environ.get("CXXFLAGS", ""), *(f"-include {header}" for header in headers)]
    places = [os.environ.get("CPLUS_INCLUDE_PATH", ""), str(ROOT / "ci" / "quirks")]
    return {
        "CXXFLAGS": " ".join(filter(None, flags)),
        "CPLUS_INCLUDE_PATH": os.pathsep.join(filter(None, places)),
    }


def compile_wheel(python: str, version: str, tensorflow: str, wheels: Path, log: Path) -> int:
    """Compile a wheel by pip and write pip's output to the log; return pip's exit status."""
    environment_bin = Path(python).absolute().parent
    programs = [str(environment_bin), str(Path(sys.executable).parent), os.environ["PATH"]]
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", "2")
    variables = {
        **FLAGS,
        **settings(version, tensorflow),
        "CMAKE_BUILD_PARALLEL_LEVEL": jobs,
        "MAKEFLAGS": f"-j{jobs}",
        "OPAL_PREFIX": str(environment_bin.parent),
        "PATH": os.pathsep.join(programs),
    }
    # Take no cached wheel and none from an index: it might be built against another TensorFlow.
    options = ["--no-deps", "--no-build-isolation", "--no-cache-dir", "--no-binary", "horovod"]
    command = [sys.executable, "-m", "pip", "-v", "--python", python, "wheel", *options]
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "w") as stream:
        return subprocess.run(
            [*command, "--wheel-dir", str(wheels), f"horovod=={version}"],
            env={**os.environ, **variables},
            stdout=stream,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode


def reason_of(log: str) -> str:
    """Return the first line of the log that reports an error, or the last line if none does, in 240
    characters at most."""
    for line in log.splitlines():
        if _ERROR.search(line) and "subprocess-exited" not in line:
            return " ".join(_PLACE.sub("", line).split())[:240]
    return (log.strip().splitlines() or ["nothing was printed"])[-1][:240]


if __name__ == "__main__":
    main()
