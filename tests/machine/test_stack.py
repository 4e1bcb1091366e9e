"""The failures are real ones: environments made for the purpose, with the thing really missing."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from hvdperf.errors import UserError
from hvdperf.json_records import convert
from hvdperf.machine.stack import NO_MPIRUN, Stack, find_mpirun, probe, stack_differences
from hvdperf.worker.probe import (
    ERRORS,
    built_for_tensorflow,
    files,
    main,
    nccl_version,
)
from tests.support.stores import STACK

ROOT = Path(__file__).resolve().parents[2]
INTERPRETER = Path(sys.executable)
SITE_PACKAGES = Path(sysconfig.get_paths()["purelib"])
# As the probe tells STACK.
FACTS: dict[str, Any] = {
    **{name: value for name, value in asdict(STACK).items() if not name.startswith("mpirun")},
    "packages": ["horovod==0.28.1", "numpy==1.26.4"],
    "horovod_flags": ["mpi", "gloo"],
    "horovod_tensorflow": "2.18.1",
    "error": None,
}
del FACTS["interpreter"]


# Where only Horovod is at fault, this stands in for TensorFlow, whose import takes seconds.
TENSORFLOW = """\
from types import SimpleNamespace
__version__ = "2.18.1"
version = SimpleNamespace(GIT_VERSION="v2.18.1")
keras = SimpleNamespace(__name__="keras", __version__="3")
sysconfig = SimpleNamespace(get_build_info=dict)
experimental = SimpleNamespace(tensor_float_32_execution_enabled=bool)
config = SimpleNamespace(experimental=experimental)
"""


def program(path, script):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def environment():
    """This environment without what would hide that something is missing from another one."""
    hiding = ("LD_LIBRARY_PATH", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if name not in hiding}


@pytest.fixture
def with_mpirun(environment, tmp_path):
    """The environment with an mpirun on PATH, for interpreters that have none beside them."""
    program(tmp_path / "path" / "mpirun", "echo 'mpirun (Open MPI) 4.1.8'")
    return {**environment, "PATH": f"{tmp_path / 'path'}:/usr/bin:/bin"}


@pytest.fixture
def virtual_environment(tmp_path):
    """Makes a virtual environment of this Python with those of our packages that are wanted."""

    def make(wanted):
        home = tmp_path / "env"
        venv.create(home, symlinks=True)
        packages = home / "lib" / SITE_PACKAGES.parent.name / "site-packages"
        for entry in SITE_PACKAGES.iterdir():
            if wanted(entry.name):
                (packages / entry.name).symlink_to(entry)
        return home / "bin" / "python"

    return make


def test_the_installed_stack_is_told_and_the_second_time_from_the_cache(cache):
    stack = probe(INTERPRETER, cache)
    assert stack.horovod == version("horovod")
    assert stack.keras == version("keras")
    assert stack.numpy == version("numpy")
    assert stack.python == sys.version.split()[0]
    recorded = json.loads((SITE_PACKAGES / "horovod" / "metadata.json").read_text())
    assert stack.tensorflow == recorded["tensorflow"]
    # Horovod loads the MPI of that mpirun.
    assert "mpi" in stack.horovod_flags
    assert stack.mpi_library is not None
    assert "@" not in stack.mpi_library, "nothing tells who built it"
    assert stack.mpi_library.split("v")[-1] == stack.mpirun_version.split()[-1]
    # A deadline that no interpreter can keep.
    assert probe(INTERPRETER, cache, deadline_s=0.001) == stack


class TestCache:
    @pytest.fixture
    def installed(self, tmp_path):
        """An interpreter that tells facts, and notes every time that it runs."""
        packages = tmp_path / "env" / "lib" / "site-packages"
        (packages / "horovod-0.28.1.dist-info").mkdir(parents=True)
        (packages / "horovod").mkdir()
        (packages / "horovod" / "metadata.json").write_text("{}")
        answer = tmp_path / "answer.json"
        answer.write_text(json.dumps({**FACTS, "searched": [str(packages)]}))
        bin_dir = tmp_path / "env" / "bin"
        program(bin_dir / "mpirun", "echo 'mpirun (Open MPI) 4.1.8'")
        return program(bin_dir / "python", f"echo run >> {tmp_path}/runs; cat {answer}")

    @pytest.fixture
    def runs(self, tmp_path):
        return lambda: (tmp_path / "runs").read_text().count("run")

    @pytest.mark.parametrize(
        "changed",
        [
            "",
            "env/lib/site-packages",
            "env/lib/site-packages/horovod-0.28.1.dist-info",
            "env/lib/site-packages/horovod/metadata.json",
            "env/bin/python",
            "env/bin/mpirun",
            "TF_USE_LEGACY_KERAS",
        ],
    )
    def test_a_change_asks_for_a_new_probe(
        self, installed, cache, environment, runs, tmp_path, changed
    ):
        first = probe(installed, cache, environment)
        told = {**FACTS, "interpreter": str(installed), "mpirun": str(installed.parent / "mpirun")}
        assert first == convert({**told, "mpirun_version": "mpirun (Open MPI) 4.1.8"}, Stack)
        if changed.startswith("env"):
            os.utime(tmp_path / changed, ns=(1, 1))
        after = {**environment, changed: "1"} if changed else environment
        assert probe(installed, cache, after) == first
        assert runs() == 1 + bool(changed)

    @pytest.mark.parametrize("damage", ["", '{"stamps": {}, "stack": {}}', "[" * 100_000, None])
    def test_a_cache_that_is_damaged_or_cannot_be_written_only_costs_time(
        self, installed, cache, environment, runs, damage
    ):
        if damage is None:
            cache.write_text("not a directory")
        first = probe(installed, cache, environment)
        if damage is not None:
            (file,) = cache.iterdir()
            file.write_text(damage)
        assert probe(installed, cache, environment) == first
        assert runs() == 2

    def test_a_failure_is_not_kept(self, installed, cache, environment, tmp_path):
        answer = tmp_path / "answer.json"
        good = answer.read_text()
        error = {"kind": "tensorflow", "message": "No module named 'tensorflow'"}
        answer.write_text(json.dumps({**json.loads(good), "error": error}))
        with pytest.raises(UserError):
            probe(installed, cache, environment)
        answer.write_text(good)
        assert probe(installed, cache, environment).tensorflow == "2.18.1"


def test_the_mpirun_of_the_interpreters_environment_comes_before_that_on_path(tmp_path):
    own = program(tmp_path / "env" / "bin" / "mpirun", "")
    other = program(tmp_path / "other" / "mpirun", "")
    environment = {"PATH": f"/nowhere:{other.parent}"}
    assert find_mpirun(own.with_name("python"), environment) == own
    own.unlink()
    assert find_mpirun(own.with_name("python"), environment) == other


class TestWhatKeepsTrainingFromStarting:
    @pytest.mark.parametrize(
        ("environment", "command"),
        [
            (".venv", "make env"),
            (".venv-tf2.15.1-hvd0.28.0", "make stack TF=2.15.1 HOROVOD=0.28.0"),
            (".venv-tf2.21.0-py3.12", "make env TF=2.21.0 PYTHON=3.12"),
            (".venv-gpu", "make env GPU=1"),
            ("elsewhere", "make env"),
        ],
    )
    def test_the_advice_is_to_build_that_environment(self, environment, command, cache, tmp_path):
        said = f"no Python interpreter at .*/python.*run `{command}` and"
        with pytest.raises(UserError, match=said):
            probe(tmp_path / environment / "bin" / "python", cache)

    def test_an_mpirun_that_does_not_run_keeps_nobody_from_another_launcher(
        self, cache, environment, tmp_path
    ):
        answer = f"echo Welcome; echo '{json.dumps({**FACTS, 'searched': []})}'"
        interpreter = program(tmp_path / "bin" / "python", answer)
        nowhere = {**environment, "PATH": "/nowhere"}
        assert probe(interpreter, cache, nowhere).mpirun_version == NO_MPIRUN
        mpirun = program(tmp_path / "bin" / "mpirun", "exit 127")
        assert probe(interpreter, cache, environment).mpirun_version == NO_MPIRUN
        program(mpirun, "echo 'HYDRA build details:'; echo '    Version:   5.0.2'")
        found = probe(interpreter, cache, environment)
        assert found.mpirun_version == "HYDRA build details: Version: 5.0.2"

    @pytest.mark.parametrize(
        ("tensorflow", "metadata", "told"),
        [
            (None, None, r"cannot import TensorFlow \(No module named 'tensorflow'\).*make env"),
            (TENSORFLOW, None, "has TensorFlow but no Horovod"),
            (
                TENSORFLOW,
                '{"tensorflow": "1.15.5"}',
                r"was built for TensorFlow 1\.15\.5, but TensorFlow 2\.18\.1 is.*make env",
            ),
        ],
    )
    def test_a_missing_package_and_a_horovod_built_for_another_tensorflow(
        self, virtual_environment, cache, with_mpirun, tensorflow, metadata, told
    ):
        interpreter = virtual_environment(lambda name: name.startswith("numpy"))
        (packages,) = interpreter.parent.parent.glob("lib/*/site-packages")
        if tensorflow:
            (packages / "tensorflow.py").write_text(tensorflow)
        if metadata:
            (packages / "horovod").mkdir()
            (packages / "horovod" / "__init__.py").touch()
            (packages / "horovod" / "metadata.json").write_text(metadata)
        with pytest.raises(UserError, match=told):
            probe(interpreter, cache, with_mpirun)

    @pytest.mark.parametrize(
        ("script", "told"),
        [
            (
                "echo 'Fatal Python error: no encodings' >&2; exit 1",
                r"exit status 1\): Fatal Python error: no encodings; .*make env",
            ),
            ("exit 3", r"not answer as Python does \(exit status 3\); .*make env"),
            ("kill -SEGV $$", r"SIGSEGV\); .*make env"),
            ("exit 0", r"not answer as Python does .*make env"),
            ("echo 2 7", r"is Python 2\.7, and ranks need 3\.9 or later; .*make env"),
            # It answers, but not the probe.
            ('[ "$1" = -c ] && exec echo 3 11; kill -ILL $$', r"SIGILL\): .*to see all of it"),
            (
                """[ "$1" = -c ] && exec echo 3 11; echo "No module named 'hvdperf'" >&2; exit 1""",
                "a container has to show",
            ),
            ("exec sleep 600", r"within 0\.5 s"),
            (b"\x00\x01", "does not start"),
        ],
    )
    def test_an_interpreter_that_does_not_answer(self, cache, with_mpirun, tmp_path, script, told):
        interpreter = program(tmp_path / "python", "")
        if isinstance(script, bytes):
            interpreter.write_bytes(script)
        else:
            program(interpreter, script)
        with pytest.raises(UserError, match=told):
            probe(interpreter, cache, with_mpirun, deadline_s=0.5)

    def test_a_horovod_that_does_not_find_its_mpi(self, virtual_environment, cache, with_mpirun):
        load = [str(INTERPRETER), "-c", "import ctypes; ctypes.CDLL('libmpi.so.40')"]
        if subprocess.run(load, env=with_mpirun, check=False, capture_output=True).returncode == 0:
            pytest.skip("this system has an MPI library of its own")
        interpreter = virtual_environment(lambda name: True)
        with pytest.raises(UserError, match=r"Horovod .* does not load \(libmpi\.so"):
            probe(interpreter, cache, with_mpirun)

    def test_every_error_is_one_line(self, cache, with_mpirun, tmp_path):
        for kind in ERRORS:
            facts = {**FACTS, "error": {"kind": kind, "message": "why"}}
            (tmp_path / "answer").write_text(json.dumps(facts))
            interpreter = program(tmp_path / "python", f"cat {tmp_path}/answer")
            with pytest.raises(UserError, match="why") as caught:
                probe(interpreter, cache, with_mpirun)
            assert "\n" not in str(caught.value)


class TestTheProbeItself:
    def test_ncclss_number_is_a_version(self):
        numbers = (21805, 2708, 2402, 0, 1)
        assert [nccl_version(each) for each in numbers] == ["2.18.5", "2.7.8", "2.4.2", None, None]

    def test_what_horovod_was_built_for(self, tmp_path):
        file = tmp_path / "metadata.json"
        assert built_for_tensorflow(file) is None
        answers = {'{"tensorflow": "2.15.1"}': "2.15.1", '{"pytorch": "2.1.0"}': None, "{": None}
        for metadata, built_for in answers.items():
            file.write_text(metadata)
            assert built_for_tensorflow(file) == built_for

    def test_it_runs_on_python_3_9(self):
        python = shutil.which("python3.9") or "false"
        works = [python, "-c", "import sys; assert sys.version_info[:2] == (3, 9)"]
        if subprocess.run(works, check=False, capture_output=True).returncode != 0:
            pytest.skip("no Python 3.9 here")
        told = subprocess.run(
            [python, "-m", main.__module__], cwd=ROOT, check=True, capture_output=True, text=True
        )
        facts = json.loads(told.stdout)
        assert facts["python"].startswith("3.9.")
        assert facts["error"] is None or facts["error"]["kind"] in ERRORS

    def test_only_its_answer_reaches_stdout(self):
        script = (
            "import os, sys\nfrom hvdperf.worker import probe\n"
            "def noisy():\n    print('hello')\n    os.write(1, b'more')\n    return {'a': 1}\n"
            "probe.probe = noisy\nprobe.main()"
        )
        told = subprocess.run(
            [INTERPRETER, "-c", script], cwd=ROOT, check=True, capture_output=True, text=True
        )
        assert json.loads(told.stdout) == {"a": 1}
        assert "more" in told.stderr


def test_what_two_stacks_have_otherwise_is_named_with_both_versions():
    old = replace(
        STACK,
        horovod_flags=("mpi", "gloo"),
        packages=("horovod==0.28.1", "keras==2.15.0", "wrapt==1.14.1"),
    )
    new = replace(
        old,
        packages=("horovod==0.28.1", "keras==3.15.1", "optree==0.1"),
        mpi_library="Open MPI v4.1.9",
        horovod_flags=("mpi",),
        tf32=True,
    )
    assert stack_differences(old, new) == [
        "mpi_library: none -> Open MPI v4.1.9",
        "horovod_flags: mpi, gloo -> mpi",
        "tf32: none -> True",
        "keras: 2.15.0 -> 3.15.1",
        "optree: none -> 0.1",
        "wrapt: 1.14.1 -> none",
    ]
    assert stack_differences(old, old) == []


def test_another_build_of_a_version_differs_and_another_place_does_not(tmp_path, monkeypatch):
    def installed(name: str, library: str) -> list[str]:
        metadata = tmp_path / name / "horovod-0.28.1.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text("Name: horovod\nVersion: 0.28.1\n")
        (metadata / "RECORD").write_text(
            f"../../bin/horovodrun,sha256={name},9\nhorovod/__init__.py,sha256=ab,9\n"
            f"horovod/mpi_lib.so,sha256={library},9\nhorovod/__init__.pyc,,\n"
            f"horovod-0.28.1.dist-info/INSTALLER,sha256={name},9\n"
        )
        monkeypatch.setattr(sys, "path", [str(tmp_path / name)])
        return files("horovod")

    first, second, rebuilt = (installed(*each) for each in (("a", "x"), ("b", "x"), ("c", "y")))
    assert first == second
    assert first != rebuilt
