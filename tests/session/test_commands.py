"""The commands that look before measuring: list, doctor and thresholds."""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hvdperf.paths import ROOT
from hvdperf.session.commands import check_of_scripts, from_here
from tests.support.stores import STACK
from tests.support.whole_sessions import BIN, command, completed, documents


def test_a_profile_is_a_file_of_the_users_directory_if_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smoke").mkdir()
    assert from_here("profile", "mine.toml") == str(tmp_path / "mine.toml")
    assert from_here("profile", "smoke") == "smoke"


def test_pytest_leaves_nothing_where_it_is_typed(tmp_path):
    words = "-m", "pytest", f"{ROOT}/perf", "--collect-only", "-q", "--np=1"
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


HEAD = 'label = "mine"\n[match]\ndevice = "cpu"\n[thresholds]\n'


# Open files of a session on two slots, less than the 272 that it may need.
FILES = 250


def limited(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command with few open files."""
    return completed(
        words, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    )


def test_doctor_says_what_is_wrong_and_what_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "3")
    none = tmp_path / "none.toml"
    none.write_text(HEAD)
    done = limited([str(BIN / "hvdperf"), "doctor", f"--thresholds={none}"])
    assert done.returncode == 9, done.stdout + done.stderr
    told = " ".join(done.stdout.split())
    assert f"FIX open files {FILES} problem: a session needs " in told
    assert "fix: ulimit -n 4096" in told
    assert "ok stack TensorFlow " in told
    assert "ok profile, data default: vgg_16_s, resnet_50_s, googlenet_s; cifar10" in told
    assert "ok settings HOROVOD_CYCLE_TIME=3" in told
    assert "FIX thresholds none.toml: mine problem: no limits for this machine" in told
    last = done.stdout.splitlines()[-1]
    assert last.startswith("not ready to measure: ")
    assert "open files" in last


@pytest.mark.parametrize(
    ("keras", "value"),
    [
        ("2.15.0", "gradients are exchanged"),
        ("3.15.1", "under Keras 3.15.1, your own scripts cannot"),
    ],
)
def test_scripts_fail_in_silence_with_a_keras_that_horovod_does_not_know(
    keras: str, value: str
) -> None:
    check = check_of_scripts(replace(STACK, keras=keras, mpirun_version="mpirun (Open MPI) 4.1.8"))
    assert check.value.startswith(value)
    assert not check.problem
    assert ("set TF_USE_LEGACY_KERAS=1" in check.note) is (keras > "3")


def test_doctor_reports_bad_input_in_one_line() -> None:
    done = limited([str(BIN / "hvdperf"), "doctor", "--profile=hourly"])
    assert "refused problem: unknown profile 'hourly'" in " ".join(done.stdout.split())
    assert done.returncode == 9
    assert done.stderr == ""


def test_a_session_that_requires_a_fit_machine_measures_nothing_on_another(
    options: list[str], tmp_path: Path
) -> None:
    done = limited(command(["perf/", *options, "--require-fit"]))
    assert done.returncode == 9, done.stdout + done.stderr
    assert f"Not ready to measure: open files: {FILES}: a session needs 272; ulimit" in done.stdout
    assert "exit status 9: this machine is not ready to measure" in done.stdout
    assert documents(tmp_path) == {}


def test_a_session_says_on_what_machine_it_measured(options: list[str], tmp_path: Path) -> None:
    done = limited(command(["perf/", *options, "-k", "weak_scaling"], made_up=True))
    assert "Not ready to measure: open files: " in done.stdout
    noted = documents(tmp_path)["session.json"]["unfit"]
    assert f"open files: {FILES}: a session needs 272; ulimit -n 4096" in noted
    (page,) = (tmp_path / "results/report").glob("*.html")
    assert "Not ready to measure: open files" in page.read_text()
