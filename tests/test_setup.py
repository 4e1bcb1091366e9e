"""Setting up: `activate`, the Makefile, ci/setup.sh and the pins of pyproject.toml.

Most tests run the real files in a copy of the checkout with a stand-in for the environment. Those
that need the real one take the environment that the tests run in.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.whole_sessions import ROOT, completed

ENVIRONMENT = Path(sys.prefix)
# make passes on what it was given to what it starts, such as these tests.
GIVEN_TO_MAKE = ("ARGS", "DATA_DIR", "GPU", "HOROVOD", "MPI", "PROFILE", "PYTHON", "TF")

packaged_mpi = pytest.mark.skipif(
    not (ENVIRONMENT / "bin/mpirun").exists(), reason="built with MPI=system"
)


def script(path: Path, text: str) -> Path:
    """Write an executable sh script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def run(
    command: list[str], cwd: Path, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run in the machine's environment less what `activate`, make and an outer mpirun put there."""
    ours = ("OMPI_", "PMIX_", "OPAL_", "HVDPERF_", "MAKE", "MFLAGS", "GNUMAKEFLAGS")
    environment = {n: v for n, v in os.environ.items() if not n.startswith(ours)}
    for name in ("LD_LIBRARY_PATH", *GIVEN_TO_MAKE):
        environment.pop(name, None)
    path = environment["PATH"].split(":")
    environment["PATH"] = ":".join(d for d in path if not d.startswith(str(ENVIRONMENT)))
    environment.update(variables or {})
    in_one_stream = ["sh", "-c", 'exec "$@" 2>&1 </dev/null', "sh", *command]
    return completed(in_one_stream, cwd, environment)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the files that set up, with a stand-in environment that counts as built."""
    root = tmp_path / "check out"
    for name in (
        *("activate", "Makefile", "pyproject.toml", "hvdperf/timeline/releases.toml"),
        *("ci/setup.sh", "ci/setup_gpu.sh", "ci/build_horovod.py"),
        *("ci/browser.sh", "ci/slurm.sh", "ci/debian.sh"),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, root / name)
    shutil.copytree(ROOT / ".ci", root / ".ci")
    for name in ("mpirun", "horovodrun", "chromium"):
        script(root / ".venv/bin" / name, "")
    set_dates(root, ".venv/.ready", 2000)
    for name in ("pyproject.toml", "ci/setup.sh", "ci/setup_gpu.sh"):
        set_dates(root, name, 1000)
    return root


@pytest.fixture(params=["sh", "bash"])
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def set_dates(root: Path, name: str, seconds: int) -> None:
    path = root / name
    path.touch()
    os.utime(path, (seconds, seconds))


# --- activate


def activated(
    shell: str, checkout: Path, show: str, times: int = 1, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Source `activate` from another directory, by its absolute path, then run `show`."""
    source = f". '{checkout}/activate' && " * times
    return run([shell, "-c", source + show], Path("/"), variables)


def test_activate_finds_the_environments_own_mpirun(shell: str, checkout: Path) -> None:
    elsewhere = script(checkout.parent / "other/mpirun", "").parent
    path = f"{elsewhere}:{os.environ['PATH']}"
    show = "command -v mpirun && echo $OPAL_PREFIX"
    for result in (
        activated(shell, checkout, show, PATH=path),
        run([shell, "-c", f". ../activate && {show}"], checkout / "ci"),
    ):
        environment = f"{checkout}/.venv"
        assert result.stdout.splitlines() == [f"{environment}/bin/mpirun", environment]


@pytest.mark.parametrize(
    ("before", "after"),
    [("", ""), ("/a:/b", ":/a:/b"), ("/a:{lib}:/b", ":/a:/b"), ("{lib}:{lib}", "")],
)
def test_activate_puts_the_library_path_first_and_once(
    shell: str, checkout: Path, before: str, after: str
) -> None:
    lib = f"{checkout}/.venv/lib"
    given = before.format(lib=lib)
    result = activated(shell, checkout, 'echo "$LD_LIBRARY_PATH"', LD_LIBRARY_PATH=given)
    assert result.stdout.strip() == lib + after


def test_activate_twice_is_activate_once(shell: str, checkout: Path) -> None:
    once = activated(shell, checkout, "export -p")
    twice = activated(shell, checkout, "export -p", times=2)
    assert once.returncode == 0
    assert once.stdout == twice.stdout


def test_activate_leaves_no_names_of_its_own(shell: str, checkout: Path) -> None:
    result = activated(shell, checkout, "set")
    assert "OPAL_PREFIX=" in result.stdout
    assert "_hvdperf" not in result.stdout.replace("BASH_EXECUTION_STRING", "")


@pytest.mark.parametrize(("uid", "expected"), [(0, "1 1"), (1000, "unset unset")])
def test_only_root_is_told_to_run_as_root(
    shell: str, checkout: Path, uid: int, expected: str
) -> None:
    fake = script(checkout.parent / "fake/id", f"echo {uid}").parent
    names = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM")
    show = f'echo "{" ".join("${" + name + ":-unset}" for name in names)}"'
    result = activated(shell, checkout, show, PATH=f"{fake}:{os.environ['PATH']}")
    assert result.stdout.strip() == expected


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ("", ""),
        (".venv-gpu", " GPU=1"),
        (".venv-tf2.18.1-hvd0.28.0", " TF=2.18.1 HOROVOD=0.28.0"),
        (".venv-tf2.21.0-py3.12", " TF=2.21.0 PYTHON=3.12"),
    ],
)
def test_activate_names_what_to_do_when_nothing_is_built(
    shell: str, checkout: Path, chosen: str, expected: str
) -> None:
    shutil.rmtree(checkout / ".venv")
    source = f". '{checkout}/activate'; echo status $?; set | grep _hvdperf"
    result = run([shell, "-c", source], Path("/"), {"HVDPERF_VENV": chosen})
    assert f"; run: make -C {checkout} env{expected}\n" in result.stdout
    assert "status 1\n" in result.stdout
    assert "_hvdperf_" not in result.stdout


@pytest.mark.parametrize(
    ("chosen", "expected"), [("", ".venv-gpu"), (".venv", ".venv"), (".venv-gpu", ".venv-gpu")]
)
def test_the_gpu_environment_comes_first_where_it_is_built(
    checkout: Path, chosen: str, expected: str
) -> None:
    for name in ("mpirun", "horovodrun"):
        script(checkout / ".venv-gpu/bin" / name, "")
    result = activated("sh", checkout, "command -v mpirun", HVDPERF_VENV=chosen)
    assert result.stdout.strip() == f"{checkout}/{expected}/bin/mpirun"


# --- the real Open MPI


def activated_here(show: str) -> str:
    """Return what a command prints in the environment of these tests."""
    return activated("sh", ROOT, show, HVDPERF_VENV=str(ENVIRONMENT)).stdout


@packaged_mpi
def test_open_mpi_starts_more_ranks_than_cores() -> None:
    ranks = (os.cpu_count() or 1) + 2
    shown = activated_here(f"mpirun -np {ranks} echo a rank")
    assert shown.splitlines().count("a rank") == ranks, shown


@packaged_mpi
def test_ranks_on_another_host_find_this_environment(tmp_path: Path) -> None:
    """The remote shell is a stand-in, which runs the command here with a newcomer's environment."""
    remote_shell = script(
        tmp_path / "remote_shell", 'shift; exec env -i PATH=/usr/bin:/bin sh -c "$*"'
    )
    show = "mpirun --host elsewhere -np 1 sh -c 'command -v pytest; echo $OPAL_PREFIX'"
    shown = activated_here(f"OMPI_MCA_plm_rsh_agent={remote_shell} {show}")
    assert shown.splitlines() == [f"{ENVIRONMENT}/bin/pytest", str(ENVIRONMENT)]


@packaged_mpi
def test_mpi_starts_without_mpirun() -> None:
    show = 'python -c "from mpi4py import MPI; print(MPI.COMM_WORLD.size)"'
    assert activated_here(show) == "1\n"


# --- Makefile and .ci/run


def make(checkout: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run(["make", *arguments], checkout, variables)


def test_make_help_lists_every_target_and_is_the_default(checkout: Path) -> None:
    text = (ROOT / "Makefile").read_text()
    (targets,) = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    shown = make(checkout, "help").stdout
    assert set(targets.split()) == set(re.findall(r"^  ([\w-]+)  ", shown, re.MULTILINE))
    assert make(checkout).stdout == shown


@pytest.mark.parametrize("changed", ["pyproject.toml", "ci/setup.sh", "ci/setup_gpu.sh"])
def test_a_changed_description_builds_the_environment_again(checkout: Path, changed: str) -> None:
    assert "Nothing to be done" in make(checkout, "env").stdout
    set_dates(checkout, changed, 3000)
    assert "ci/setup.sh" in make(checkout, "-n", "env").stdout


@pytest.mark.parametrize(
    ("arguments", "has_gpu", "expected"),
    [
        ("", False, ".venv"),
        ("", True, ".venv-gpu"),
        ("GPU=0", True, ".venv"),
        ("GPU=1", False, ".venv-gpu"),
        ("TF=2.15.1", True, ".venv-tf2.15.1"),
        ("TF=2.20.0", True, ".venv"),
        ("HOROVOD=0.28.1", True, ".venv"),
        ("TF=2.18.1 GPU=1", False, ".venv-gpu"),
        ("HOROVOD=0.28.0", False, ".venv-tf2.20.0-hvd0.28.0"),
        ("HOROVOD=0.28.1 TF=2.15.1", False, ".venv-tf2.15.1"),
        ("PYTHON=3.12", True, ".venv-py3.12"),
        ("TF=2.21.0 PYTHON=3.11", False, ".venv-tf2.21.0"),
        ("HOROVOD=0.28.0 TF=2.15.1 PYTHON=3.12", False, ".venv-tf2.15.1-hvd0.28.0-py3.12"),
    ],
)
def test_make_chooses_the_environment(
    checkout: Path, arguments: str, has_gpu: bool, expected: str
) -> None:
    if has_gpu:
        (checkout / ".venv-gpu").mkdir()
        set_dates(checkout, ".venv-gpu/.ready", 2000)
    assert f"HVDPERF_VENV={expected};" in make(checkout, "-n", "perf", *arguments.split()).stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["TF=2.19.0"], "TF=2.19.0: with this Horovod only these"),
        (["TF=2.15.1 2.16.2"], "TF=2.15.1 2.16.2: with this Horovod only these"),
        (["TF=%"], "TF=%: with this Horovod only these"),
        (["TF=2.15.1", "GPU=1"], "TF=2.15.1 GPU=1: on GPUs only TensorFlow 2.18.1"),
        (["HOROVOD=0.1.0"], "HOROVOD=0.1.0: known are 0.25.0"),
        (["PYTHON=3.10"], "PYTHON=3.10: known are 3.11 3.12"),
        (["PYTHON=3.12", "GPU=1"], "PYTHON=3.12 GPU=1: on GPUs only Python 3.11"),
    ],
)
def test_an_environment_that_does_not_work_is_one_line(
    checkout: Path, arguments: list[str], expected: str
) -> None:
    result = make(checkout, "test", *arguments)
    (line,) = result.stdout.splitlines()
    assert expected in line
    assert result.returncode != 0


def test_distclean_removes_every_environment(checkout: Path) -> None:
    for name in (".venv-gpu", ".venv-tf2.15.1", ".venv-py3.12", ".uv"):
        (checkout / name).mkdir()
    make(checkout, "distclean")
    assert [*checkout.glob(".venv*"), *checkout.glob(".uv")] == []


def test_make_perf_writes_samples_or_takes_a_profile_data_and_options(checkout: Path) -> None:
    lines = make(checkout, "-n", "perf").stdout
    assert "python -m hvdperf.models.inputs.sample_sets data/samples" in lines
    assert "pytest perf/ --profile 'default'" in lines
    assert "--data-dir" not in lines
    options = ("PROFILE=nightly", "DATA_DIR=/data/cifar10", "ARGS=-k scaling -x")
    lines = make(checkout, "-n", "perf", *options).stdout
    assert "hvdperf.models.inputs.sample_sets" not in lines
    assert "pytest perf/ --profile 'nightly' --data-dir '/data/cifar10' -k scaling -x" in lines


@pytest.mark.parametrize("status", [0, 1, 4, 10])
def test_make_perf_tells_the_status_of_pytest(checkout: Path, status: int) -> None:
    script(checkout / ".venv/bin/pytest", f"exit {status}")
    result = make(checkout, "perf", "DATA_DIR=/nowhere")
    assert f"pytest ended with status {status}" in result.stdout
    assert (checkout / "results/exit_status").read_text() == f"{status}\n"
    assert result.returncode == (2 if status else 0), "as the README says"


def test_an_environment_that_cannot_be_built_leaves_no_status_of_before(checkout: Path) -> None:
    (checkout / "results").mkdir(exist_ok=True)
    (checkout / "results/exit_status").write_text("0\n")
    script(checkout / "ci/setup.sh", "exit 1")
    result = make(checkout, "perf", "DATA_DIR=/nowhere")
    assert result.returncode == 2, result.stdout
    assert not (checkout / "results/exit_status").exists()


def test_make_test_checks_before_it_tests(checkout: Path) -> None:
    for name in ("ruff", "mypy", "python", "pytest"):
        script(checkout / ".venv/bin" / name, f'echo {name} "$@"')
    script(checkout / "ci/slurm.sh", "")
    script(checkout / "ci/lint.sh", "echo ci/lint.sh")
    size = "python -m tests.test_house"
    lint = ["ruff check", "ruff format --check", "mypy", "ci/lint.sh", size]
    quick, everything = "pytest tests/ -n 4 -m not long", "pytest tests/ -n 4"
    assert make(checkout, "test").stdout.splitlines() == [*lint, quick]
    assert make(checkout, "test-all").stdout.splitlines() == [*lint, everything]


def test_make_test_leaves_lint_out_with_another_tensorflow(checkout: Path) -> None:
    (checkout / ".venv").rename(checkout / ".venv-tf2.15.1")
    for name in ("ruff", "mypy", "pytest"):
        script(checkout / ".venv-tf2.15.1/bin" / name, f'echo {name} "$@"')
    lines = make(checkout, "test", "TF=2.15.1", "ARGS=-x").stdout.splitlines()
    assert lines == ["pytest tests/ -n 4 -m not long -x"]


@pytest.mark.parametrize("broken", ["ruff check", "ruff format --check", "mypy"])
def test_make_test_stops_at_the_first_failure(checkout: Path, broken: str) -> None:
    for name in ("ruff", "mypy", "pytest"):
        fail = f'case "$*" in "{broken.partition(" ")[2]}") exit 1 ;; esac'
        text = f"echo {name}; " + (fail if broken.startswith(name) else "")
        script(checkout / ".venv/bin" / name, text)
    result = make(checkout, "test")
    assert result.returncode != 0
    assert "pytest" not in result.stdout


@pytest.mark.parametrize("status", [0, 2])
def test_ci_runs_all_tests_from_anywhere(checkout: Path, status: int) -> None:
    fake = script(checkout.parent / "fake/make", f'echo "$PWD: make $*"; exit {status}').parent
    script(fake / "chromium", "")
    path = f"{fake}:{os.environ['PATH']}"
    result = run(["bash", str(checkout / ".ci/run")], Path("/"), {"PATH": path})
    assert result.stdout == f"{checkout}: make test-all\n"
    assert result.returncode == status


# --- ci/setup.sh: what the machine lacks

PROGRAMS = (
    "awk bash cat chmod cp dirname env grep head id mkdir mv nproc readlink rm sed sh sleep tail "
    "timeout touch tr uname"
)


def python_of_version(path: Path, version: tuple[int, int, int]) -> None:
    """Write a program that is this interpreter and says that it is of another version."""
    said = script(path.with_name(f"{path.name}.py"), "")
    said.write_text(
        "import runpy, sys\n"
        f"sys.version_info, sys._base_executable = {version}, {str(path)!r}\n"
        "del sys.argv[0]\n"
        "if sys.argv[0] == '-c':\n"
        "    exec(sys.argv.pop(1))\n"
        "else:\n"
        "    runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    script(path, f'exec "{sys.executable}" "{said}" "$@"')


@pytest.fixture
def machine(checkout: Path) -> Path:
    """A directory to be the whole PATH: what every Debian has, a Python 3.11, and a compiler."""
    programs = checkout.parent / "programs"
    programs.mkdir()
    for name in PROGRAMS.split():
        found = shutil.which(name)
        assert found
        (programs / name).symlink_to(found)
    python_of_version(programs / "python3.11", (3, 11, 7))
    script(programs / "g++", "echo g++")
    script(programs / "make", "")
    return programs


def set_up(checkout: Path, machine: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return run(["bash", "ci/setup.sh"], checkout, {"PATH": str(machine), "CXX": "g++", **variables})


PYTHON_3_12 = "case $1 in -V) echo Python 3.12.1 ;; *) exit 1 ;; esac"
NO_VENV = 'case $* in *ensurepip*) exit 1 ;; *_base_executable*) echo "$0" ;; esac'


@pytest.mark.parametrize(
    ("programs", "variables", "said"),
    [
        ({"python3.11": None, "python3": PYTHON_3_12}, {}, "(python3 is Python 3.12.1): apt-get"),
        ({"python3.11": NO_VENV}, {}, "venv module is missing: apt-get install python3.11-venv"),
        ({"g++": None}, {}, "is missing: apt-get install g++"),
        ({"make": None}, {}, "is missing: apt-get install make"),
        ({}, {"GPU": "1", "CUDA_HOME": "/nowhere"}, "/nowhere/bin/nvcc is missing: apt-get"),
    ],
    ids=["another Python", "no venv", "no compiler", "no make", "no CUDA compiler"],
)
def test_what_a_machine_lacks_is_one_line(
    checkout: Path,
    machine: Path,
    programs: Mapping[str, str | None],
    variables: dict[str, str],
    said: str,
) -> None:
    """programs: that it has otherwise, None for one that it lacks."""
    for name, text in programs.items():
        (machine / name).unlink(missing_ok=True)
        if text is not None:
            script(machine / name, text)
    result = set_up(checkout, machine, **variables)
    (line,) = result.stdout.splitlines()
    assert line.startswith("env: ")
    assert said in line
    assert result.returncode != 0
    assert not (checkout / ".uv").exists(), "went on without what is missing"


# --- ci/browser.sh


def install_browser(
    checkout: Path, machine: Path, user: int, apt_get: str = ""
) -> subprocess.CompletedProcess[str]:
    """On a machine without a browser, with this apt-get (none: without one)."""
    (machine / "id").unlink()
    script(machine / "id", f"echo {user}")
    if apt_get:
        script(machine / "apt-get", apt_get)
    return run(["bash", "ci/browser.sh"], checkout, {"PATH": str(machine)})


@pytest.mark.parametrize(("user", "apt_get"), [(1000, "exit 9"), (0, "")])
def test_a_browser_that_may_not_be_installed_is_one_line(
    checkout: Path, machine: Path, user: int, apt_get: str
) -> None:
    result = install_browser(checkout, machine, user, apt_get)
    (line,) = result.stdout.splitlines()
    assert line.startswith("browser: chromium is missing")
    assert line.endswith("apt-get install chromium")
    assert result.returncode == 1


def test_root_installs_a_browser_once(checkout: Path, machine: Path) -> None:
    chromium = machine / "chromium"
    apt_get = f'echo "$*" >>asked; case $1 in install) cp "$0" {chromium} ;; esac; echo much'
    for _ in range(2):
        result = install_browser(checkout, machine, 0, apt_get)
        assert result.returncode == 0, result.stdout
        assert "much" not in result.stdout
    assert (checkout / "asked").read_text().splitlines() == [
        "update",
        "install --yes --no-install-recommends chromium fonts-liberation",
    ]


def test_an_installation_that_fails_shows_why(checkout: Path, machine: Path) -> None:
    result = install_browser(checkout, machine, 0, "echo E: no room; exit 100")
    assert "E: no room" in result.stdout
    assert result.stdout.endswith("then: apt-get install chromium\n")
    assert result.returncode == 1


def test_what_several_hosts_need_is_named(checkout: Path, machine: Path) -> None:
    (machine / "id").unlink()
    for name in ("slurmctld", "slurmd", "munged", "unshare", "nsenter", "taskset"):
        script(machine / name, "")
    script(machine / "id", "echo 1000")
    # Its own additions to the path are the real machine's.
    text = (checkout / "ci/slurm.sh").read_text().replace("PATH=$PATH:/usr/sbin:/sbin\n", "")
    (checkout / "ci/slurm.sh").write_text(text)
    result = run(["bash", "ci/slurm.sh"], checkout, {"PATH": str(machine)})
    assert result.returncode == 1
    assert result.stdout.endswith("; as root: apt-get install slurm-wlm iproute2\n")


# --- ci/setup.sh: what it does


@pytest.fixture
def stand_ins(checkout: Path, machine: Path) -> Path:
    """A checkout in which uv, Open MPI and Horovod answer as the real ones do."""
    version = re.search(r"^UV_VERSION=(.*)$", (checkout / "ci/setup.sh").read_text(), re.MULTILINE)
    assert version
    uv = f"""case $1 in
        --version) echo 'uv {version[1]} (stand-in)' ;;
        sync) echo "$UV_DEFAULT_INDEX" >index
            echo "$UV_PROJECT_ENVIRONMENT: $*" >synced
            echo "$CXXFLAGS" >flags
            echo "src.cc:1: error: no such thing"
            for line in $(awk 'BEGIN {{ for (i = 0; i < 99; i++) print i }}'); do echo $line; done
            exit ${{UV_STATUS:-0}} ;;
        pip) echo '[{{}}, {{}}, {{}}]' ;;
    esac"""
    script(checkout / ".uv/bin/uv", uv)
    script(checkout / ".uv/bin/python", "exit 1")
    script(checkout / ".venv/bin/python", f'exec "{sys.executable}" "$@"')
    script(checkout / ".venv/bin/orterun", 'echo "$OPAL_PREFIX: 2 ranks"; exit ${MPI_STATUS:-0}')
    read = 'sed -n "s/^\\(rmaps_base_oversubscribe\\) = 1/mca:\\1:value:true/p"'
    settings = checkout / ".venv/etc/openmpi-mca-params.conf"
    script(checkout / ".venv/bin/ompi_info", f'{read} "$OPAL_PREFIX/etc/{settings.name}"')
    settings.parent.mkdir()
    settings.write_text("# defaults\n")
    os.link(settings, checkout / "cached.conf")
    return checkout


def test_set_up_ends_with_an_environment_that_make_leaves_alone(
    stand_ins: Path, machine: Path
) -> None:
    set_dates(stand_ins, "pyproject.toml", 3000)
    result = set_up(stand_ins, machine)
    assert result.returncode == 0, result.stdout
    assert f"env: {stand_ins}/.venv: 2 ranks" in result.stdout
    assert "Nothing to be done" in make(stand_ins, "env").stdout


def test_set_up_builds_another_tensorflow_beside_the_first(stand_ins: Path, machine: Path) -> None:
    shutil.copytree(stand_ins / ".venv", stand_ins / ".venv-tf2.15.1")
    result = set_up(stand_ins, machine, TF="2.15.1")
    assert result.returncode == 0, result.stdout
    (line,) = (stand_ins / "synced").read_text().splitlines()
    assert line.startswith(".venv-tf2.15.1: sync ")
    assert line.endswith(" --no-group cpu --group tf2.15.1")
    assert f"env: {stand_ins}/.venv-tf2.15.1: 2 ranks" in result.stdout
    assert result.stdout.endswith("; to use it: HVDPERF_VENV=.venv-tf2.15.1 . ./activate\n")
    assert "Nothing to be done" in make(stand_ins, "env", "TF=2.15.1").stdout


def test_set_up_takes_a_python_that_only_pyenv_knows(stand_ins: Path, machine: Path) -> None:
    python = stand_ins.parent / "pyenv" / "bin" / "python"
    python_of_version(python, (3, 12, 1))
    script(machine / "pyenv", f'echo "{python.parent.parent}"')
    script(machine / "python3.12", "echo no version is set >&2; exit 127")
    shutil.copytree(stand_ins / ".venv", stand_ins / ".venv-tf2.21.0-py3.12")
    result = set_up(stand_ins, machine, TF="2.21.0", PYTHON="3.12")
    assert result.returncode == 0, result.stdout
    (line,) = (stand_ins / "synced").read_text().splitlines()
    assert line.startswith(f".venv-tf2.21.0-py3.12: sync -v --python {python} ")
    assert "Nothing to be done" in make(stand_ins, "env", "TF=2.21.0", "PYTHON=3.12").stdout


def test_horovod_is_compiled_with_what_its_tensorflow_needs(stand_ins: Path, machine: Path) -> None:
    shutil.copytree(stand_ins / ".venv", stand_ins / ".venv-tf2.18.1")
    for tensorflow, quirk in (("", True), ("2.18.1", False)):
        result = set_up(stand_ins, machine, TF=tensorflow, CXXFLAGS="-O1")
        assert result.returncode == 0, result.stdout
        flags = (stand_ins / "flags").read_text()
        assert flags.startswith("-O1 -include stdexcept ")
        assert ("xla_since_tensorflow_2_19.h" in flags) is quirk


# Compiles nothing: leaves a wheel where it is told to, and writes down what pip is asked.
COMPILER = """case $1 in
    ci/build_horovod.py) mkdir -p "$7" && touch "$7/horovod-$3.whl"
        echo "$5" >>built
        exit ${BUILD_STATUS:-0} ;;
    -m) echo "$*" >>pip ;;
esac"""


@pytest.mark.parametrize(
    ("tensorflow", "groups"),
    [("2.15.1", " --no-group cpu --group tf2.15.1"), ("2.20.0", "")],
)
def test_set_up_compiles_another_horovod(
    stand_ins: Path, machine: Path, tensorflow: str, groups: str
) -> None:
    name = f".venv-tf{tensorflow}-hvd0.28.0"
    shutil.copytree(stand_ins / ".venv", stand_ins / name)
    script(stand_ins / ".uv/bin/python", COMPILER)
    for _ in range(2):
        result = set_up(stand_ins, machine, TF=tensorflow, HOROVOD="0.28.0")
        assert result.returncode == 0, result.stdout
    (line,) = (stand_ins / "synced").read_text().splitlines()
    assert line.endswith(f"{groups} --no-install-package horovod")
    assert (stand_ins / "built").read_text().split() == [f"{name}/bin/python"] * 2
    installed = (stand_ins / "pip").read_text().splitlines()[-1]
    wheel = f".asv/wheels/horovod-0.28.0-tf{tensorflow}/horovod-0.28.0.whl"
    assert installed == f"-m pip --python {name}/bin/python install --no-deps {wheel}"
    assert result.stdout.endswith(f"; to use it: HVDPERF_VENV={name} . ./activate\n")


def test_another_horovod_that_does_not_compile_does_not_count(
    stand_ins: Path, machine: Path
) -> None:
    script(stand_ins / ".uv/bin/python", COMPILER)
    result = set_up(stand_ins, machine, TF="2.15.1", HOROVOD="0.27.0", BUILD_STATUS="1")
    assert result.returncode == 1
    assert "Horovod 0.27.0 cannot be built with TensorFlow 2.15.1" in result.stdout
    assert not (stand_ins / ".venv-tf2.15.1-hvd0.27.0/.ready").exists()


def test_set_up_allows_more_ranks_than_cores_once_and_no_ssh(
    stand_ins: Path, machine: Path
) -> None:
    assert "apt-get install openssh-client" in set_up(stand_ins, machine).stdout
    script(machine / "ssh", "")
    assert "openssh-client" not in set_up(stand_ins, machine).stdout
    lines = (stand_ins / ".venv/etc/openmpi-mca-params.conf").read_text().splitlines()
    assert [line for line in lines if line and not line.startswith("#")] == [
        "rmaps_base_oversubscribe = 1",
        "plm_rsh_agent = ssh : rsh : false",
    ]
    assert (stand_ins / "cached.conf").read_text() == "# defaults\n", "the package cache's own"


def test_two_set_ups_of_a_checkout_take_turns_and_say_so(stand_ins: Path, machine: Path) -> None:
    flock = shutil.which("flock")
    assert flock is not None, "it belongs to every Linux"
    (machine / "flock").symlink_to(flock)
    with open(stand_ins / ".uv" / "turn", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        other = threading.Timer(1.0, fcntl.flock, (turn, fcntl.LOCK_UN))
        other.start()
        result = set_up(stand_ins, machine)
        other.join()
    assert result.returncode == 0
    assert "another `make env`" in result.stdout


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "https://pip.example/index"),
        ({"UV_DEFAULT_INDEX": "https://uv.example/index"}, "https://uv.example/index"),
        ({"PIP_INDEX_URL": "https://env.example/index"}, "https://env.example/index"),
    ],
)
def test_uv_takes_the_index_of_pip_unless_it_has_its_own(
    stand_ins: Path, machine: Path, variables: dict[str, str], expected: str
) -> None:
    script(stand_ins / ".uv/bin/python", 'echo "https://pip.example/index"')
    given = {"UV_DEFAULT_INDEX": "", "UV_INDEX_URL": "", "PIP_INDEX_URL": "", **variables}
    assert set_up(stand_ins, machine, **given).returncode == 0
    assert (stand_ins / "index").read_text() == f"{expected}\n"


@pytest.mark.parametrize(
    ("variables", "shown"),
    [
        ({"UV_STATUS": "3"}, ["src.cc:1: error: no such thing", "uv sync failed with status 3"]),
        ({"MPI_STATUS": "1"}, ["Horovod does not run on 2 ranks"]),
    ],
)
def test_set_up_that_fails_shows_the_error_and_does_not_count(
    stand_ins: Path, machine: Path, variables: dict[str, str], shown: list[str]
) -> None:
    set_dates(stand_ins, "pyproject.toml", 3000)
    result = set_up(stand_ins, machine, **variables)
    assert result.returncode == 1
    assert [text for text in shown if text not in result.stdout] == []
    assert "ci/setup.sh" in make(stand_ins, "-n", "env").stdout


# --- pins


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def normalized(name: str) -> str:
    """The name as the index spells it, without extras."""
    return re.sub(r"[-_.]+", "-", name.partition("[")[0]).lower()


def group(name: str) -> Iterator[str]:
    """What a dependency group requires, with the groups that it includes."""
    for entry in pyproject()["dependency-groups"][name]:
        if isinstance(entry, str):
            yield entry
        else:
            yield from group(entry["include-group"])


def requirements(*groups: str) -> Iterator[str]:
    """Every requirement with these groups that does not take the version of another one."""
    content = pyproject()
    for name in ("suite", *groups):
        yield from group(name)
    yield from content["tool"]["uv"]["constraint-dependencies"]
    for needed in content["tool"]["uv"]["extra-build-dependencies"].values():
        for requirement in needed:
            if isinstance(requirement, str):
                yield requirement
            else:
                assert requirement["match-runtime"] is True


def pins(names: Iterable[str]) -> dict[str, str]:
    """The versions by name. No name may have two."""
    found: dict[str, str] = {}
    for name, _, version in (requirement.partition("==") for requirement in names):
        assert found.setdefault(normalized(name), version) == version, name
    return found


GROUPS: dict[str, list[Any]] = pyproject()["dependency-groups"]
FRAMEWORK = {"tensorflow", "tensorflow-cpu"}
# An environment has one of these besides dev.
TENSORFLOWS = {name: pinned for name in GROUPS if FRAMEWORK & (pinned := pins(group(name))).keys()}


def test_requirements_name_one_version() -> None:
    one = r"[\w.-]+(\[[\w,-]+\])?==\d+(\.\d+)*(\.?(a|b|rc|post)\d+)?"
    assert [each for each in requirements(*GROUPS) if not re.fullmatch(one, each)] == []


def test_every_tensorflow_pins_what_another_one_pins() -> None:
    # Until 2.15, TensorFlow had its own estimators, and TensorBoard a log-in. 2.21 needs no
    # TensorBoard.
    # Since 2.16, tf-keras stands beside Keras 3.
    own = {"cmake", "google-auth-oauthlib", "tensorboard", "tensorflow-estimator", "tf-keras"}
    own |= set(FRAMEWORK)
    assert len({frozenset(pinned.keys() - own) for pinned in TENSORFLOWS.values()}) == 1


@pytest.mark.parametrize("name", TENSORFLOWS)
def test_a_group_is_named_after_its_tensorflow_and_pins_each_package_once(name: str) -> None:
    assert pins(requirements("dev", name))
    included = [entry["include-group"] for entry in GROUPS[name] if isinstance(entry, dict)]
    (version,) = (v for n, v in TENSORFLOWS[name].items() if n in FRAMEWORK)
    assert f"tf{version}" in (name, *included) or name == "gpu"


def test_every_group_of_a_tensorflow_can_be_asked_for() -> None:
    named = [name.removeprefix("tf") for name in GROUPS if name.startswith("tf")]
    line = make(ROOT, "help", "TF=unknown").stdout
    assert line.rstrip().endswith(f": {' '.join(named)}.  Stop.")


def test_what_is_installed_is_what_is_pinned() -> None:
    # Not all of sys.path: setuptools, once imported, adds what it carries within itself.
    here = [sysconfig.get_path("purelib")]
    found = importlib.metadata.distributions(path=here)
    installed = {normalized(d.name): d.version for d in found}
    ((name, version),) = ((n, v) for n, v in installed.items() if n in FRAMEWORK)
    chosen = next(known for known, pinned in TENSORFLOWS.items() if pinned.get(name) == version)
    pinned = pins(requirements("dev", chosen))
    assert {name: pinned.get(name) for name in installed} == installed
