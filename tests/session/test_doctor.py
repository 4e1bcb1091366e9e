"""The command doctor and --require-fit, on this machine with a limit that makes it unfit."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

import pytest

from hvdperf.session.commands import check_of_pair
from hvdperf.stats import Interval
from hvdperf.verdict import Band, Judgement, Verdict
from tests.support.whole_sessions import (
    BIN,
    command,
    completed,
    documents,
)

# Open files of a session on two slots, less than the 272 that it may need.
FILES = 250


def limited(words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command with few open files."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))

    return completed(words, preexec_fn=limit)


def test_doctor_says_what_is_wrong_and_what_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "3")
    thresholds = tmp_path / "few.toml"
    thresholds.write_text(
        'label = "few"\n[match]\ndevice = "cpu"\n[thresholds]\n"weak_scaling/*/np*/*" = 0.5\n'
    )
    done = limited([str(BIN / "hvdperf"), "doctor", f"--thresholds={thresholds}"])
    assert done.returncode == 9, done.stdout + done.stderr
    told = " ".join(done.stdout.split())
    assert f"UNFIT open files {FILES} wrong: a session needs " in told
    assert "mend: ulimit -n 4096" in told
    assert "ok stack TensorFlow " in told
    assert "ok profile, data default: vgg_16_s, resnet_50_s, googlenet_s; cifar10" in told
    assert "ok settings HOROVOD_CYCLE_TIME=3" in told
    assert "UNFIT thresholds few.toml: few wrong: no limit for parity[vgg_16_s-np1], " in told
    last = done.stdout.splitlines()[-1]
    assert last.startswith("unfit: ")
    assert "open files" in last


@pytest.mark.parametrize(
    ("verdict", "estimate", "width", "problem"),
    [
        (Verdict.NOT_JUDGED, 1.02, 1.12, ""),
        (Verdict.NOT_JUDGED, 1.02, 1.25, "changes below 30 % should be seen"),
        (Verdict.NOT_JUDGED, 1.15, 1.12, "two identical groups differ"),
        (Verdict.INVALID, 1.30, 1.12, "two identical groups differ"),
        (Verdict.INVALID, 0.70, 1.12, "two identical groups differ"),
    ],
)
def test_a_pair_is_fit_if_it_is_narrow_and_its_groups_do_not_differ(
    verdict: Verdict, estimate: float, width: float, problem: str
) -> None:
    figure = Interval(estimate, estimate / width, estimate * width, 0.01, 3)
    check = check_of_pair(Judgement(verdict, figure, Band(0.9, 1.1111), 3, "A/A test: ..."))
    assert check.problem == problem
    assert bool(check.mend) == bool(problem)


def test_doctor_reports_bad_input_in_one_line() -> None:
    done = limited([str(BIN / "hvdperf"), "doctor", "--profile=hourly"])
    assert "refused wrong: unknown profile 'hourly'" in " ".join(done.stdout.split())
    assert done.returncode == 9
    assert done.stderr == ""


def test_a_session_that_requires_a_fit_machine_measures_nothing_on_another(
    options: list[str], tmp_path: Path
) -> None:
    done = limited(command(["perf/", *options, "--require-fit"]))
    assert done.returncode == 9, done.stdout + done.stderr
    assert f"Unfit to measure: open files: {FILES}: a session needs 272; ulimit" in done.stdout
    assert "exit status 9: this machine is not fit to measure" in done.stdout
    assert documents(tmp_path) == {}


def test_a_session_says_on_what_machine_it_measured(options: list[str], tmp_path: Path) -> None:
    done = limited(command(["perf/", *options, "-k", "weak_scaling"], made_up=True))
    assert "Unfit to measure: open files: " in done.stdout
    noted = documents(tmp_path)["session.json"]["unfit"]
    assert f"open files: {FILES}: a session needs 272; ulimit -n 4096" in noted
    (page,) = (tmp_path / "results/report").glob("*.html")
    assert "Unfit to measure: open files" in page.read_text()
