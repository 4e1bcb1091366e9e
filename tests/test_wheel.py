"""The wheel: what it brings, and its plugin in another project's pytest."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.whole_sessions import PROFILE, completed, documents, environment_of_sessions

Call = Callable[..., subprocess.CompletedProcess[str]]

NETWORKS = """
from hvdperf.models import Network
NETWORKS = (Network("theirs", "networks:build", 8),)
def build(size, classes):
    import keras
    dense = keras.layers.Dense
    return keras.Sequential([keras.Input((size, size, 3)), keras.layers.Flatten(), dense(classes)])
"""
TEST = """
import pytest
from hvdperf.plan.questions import weak_scaling

@pytest.mark.question(ask=weak_scaling)
def test_scaling_of_ours(comparison, measure):
    assert measure(comparison).passed
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    completed(build).check_returncode()
    (found,) = directory.glob("hvdperf-*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of an environment that has the wheel, beside the TensorFlow, Horovod
    and pytest of this one."""
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(packages)
    return environment / "bin" / "python"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with a test of its own, one of the suite's, a network, and a module
    `models`."""
    for name, text in {
        "test_own.py": "import models\n\ndef test_own():\n    assert models.ours\n",
        "test_scaling.py": TEST,
        "models.py": "ours = True\n",
        "conftest.py": "",
        "networks.py": NETWORKS,
        "tiny.toml": PROFILE,
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def call(python: Path, project: Path) -> Call:
    """Return a function that runs a module in the project with the wheel's interpreter."""
    given = environment_of_sessions()
    del given["PYTHONPATH"]
    # One for all tests of this file: to look at the stack takes seconds.
    environment = {**given, "XDG_CACHE_HOME": str(python.parents[1] / "cache")}

    def called(*words: str) -> subprocess.CompletedProcess[str]:
        return completed([str(python), "-m", *words], project, environment)

    return called


def test_the_wheel_has_one_package_with_cases_profiles_and_networks(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    (facts,) = {name.partition("/")[0] for name in names} - {"hvdperf"}
    assert facts.endswith(".dist-info")
    for needed in (
        "hvdperf/perf/test_scaling.py",
        "hvdperf/ci/profiles/smoke.toml",
        "hvdperf/ci/thresholds/cpu-unknown.toml",
        "hvdperf/models/networks/classifiers.py",
        f"{facts}/licenses/LICENSE",
    ):
        assert needed in names


def test_without_a_cache_of_its_own_a_user_has_a_temporary_one(
    python: Path, tmp_path: Path
) -> None:
    code = "from hvdperf.paths import CACHE, ROOT; print(CACHE, ROOT)"
    # A relative one does not count, and nobody can write the other.
    environment = {"XDG_CACHE_HOME": "cache", "HOME": "/proc", "TMPDIR": str(tmp_path)}
    done = completed([str(python), "-c", code], tmp_path, environment)
    assert done.returncode == 0, done.stderr
    cache, root = map(Path, done.stdout.split())
    assert cache.parent == tmp_path
    assert root.parent == cache
    assert [each.name for each in root.iterdir()] == ["hvdperf"]
    assert [each.name for each in tmp_path.iterdir()] == [cache.name]


def test_a_project_that_does_not_ask_for_the_plugin_has_none(call: Call) -> None:
    done = call("pytest", "-q", "test_own.py")
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout
    assert "unrecognized arguments: --profile" in call("pytest", "--profile=smoke").stderr


@pytest.mark.long
@pytest.mark.mpirun
def test_a_project_measures_its_own_network(call: Call, project: Path) -> None:
    done = call("pytest", "-p", "hvdperf", "--profile=tiny.toml", "--workloads=networks.py")
    assert done.returncode == 6, done.stdout + done.stderr
    assert "1 INCONCLUSIVE" in done.stdout
    assert "1 passed, 1 inconclusive" in done.stdout, "its own test is as before"
    case = documents(project)["weak_scaling-theirs-np2.json"]
    assert case["outcome"]["rounds"]
    assert [line.partition(":")[0] for line in case["fingerprint"]["own_networks"]] == ["theirs"]
    assert len(list((project / "results" / "report").glob("*.html"))) == 1


def test_a_session_without_a_case_of_the_suite_has_no_summary(call: Call) -> None:
    done = call("pytest", "-p", "hvdperf", "test_own.py")
    assert (done.returncode, "hvdperf:" in done.stdout) == (0, False), done.stdout


def test_a_stack_that_is_not_there_is_one_line_without_a_make_of_the_checkout(call: Call) -> None:
    done = call("pytest", "-p", "hvdperf", "--dry-run", "--stack=/no/such/python")
    assert done.returncode == 4
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("ERROR: --stack: there is no Python interpreter at /no/such/python; ")
    assert "make env" not in line


def test_the_cases_of_the_package_are_found(call: Call) -> None:
    package = "--pyargs", "hvdperf.perf", "--profile=smoke", "--models=vgg_16_s"
    cases = call("pytest", "-p", "hvdperf", *package, "--collect-only", "-q")
    assert "test_weak_scaling[vgg_16_s-np2]" in cases.stdout, cases.stderr
    assert "history" not in call("hvdperf", "--help").stdout
    assert call("hvdperf", "--version").stdout == "0.2.0\n"
