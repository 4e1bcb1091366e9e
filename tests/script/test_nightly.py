"""A night of a script is one of a series, and what becomes slower from night to night falls."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.records.documents import Kind
from hvdperf.records.outcome import Measure
from hvdperf.script.arms import Run, Runner
from hvdperf.script.checks import Problem
from hvdperf.script.nightly import RUNS, measure_night
from hvdperf.script.recorded import Cores
from hvdperf.timeline.commands import told_next_to_others
from hvdperf.timeline.nights.night import Night, path_of, read_nights, write_night
from hvdperf.timeline.store import NIGHTS
from hvdperf.verdict import Verdict
from tests.script.test_terms import SAME, changed, made, of_steps

Measured = Callable[[float], Night]


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measured:
    """Return a function that measures a night in which computing takes so many times as long. The
    runs are made up."""
    rng = random.Random(3)

    def night(factor: float) -> Night:
        def run(*_: object) -> Run:
            between, wait, work = SAME
            of_run = rng.gauss(1.0, 0.01)
            steps = [[[between, wait, work * factor * of_run] for _ in range(30)]] * 2
            own = {"HOROVOD_CYCLE_TIME": "5", "OMP_NUM_THREADS": "3"}
            ranks = changed(made(steps), interpreter=sys.executable, settings=own)
            return Run(of_steps(ranks, cores=Cores((0,), 1.0, 1.0, 1.0, 0, 0.0)))

        monkeypatch.setattr(Runner, "run", run)
        directory = tmp_path / "scripts" / "20261126T010203Z-7"
        command = ["env", "A=b", "/bin/horovodrun", "-np", "2", "python", "train.py"]
        return measure_night(command, "mine", directory, tmp_path, 30, lambda _: None)

    return night


def test_a_night_has_the_launch_of_the_command_and_not_that_of_the_suite(
    measured: Measured,
) -> None:
    known = measured(1.0).parts[0].fingerprint
    assert known["launcher"] == "horovodrun"
    assert known["rank_cores"] == ["0: 0", "1: 0"]
    assert known["horovod_cycle_time_ms"] == 5
    assert known["thread_settings"] == ["OMP_NUM_THREADS=3"]


def test_a_script_that_became_slower_falls_and_is_measured_again(
    measured: Measured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nights, days = tmp_path / NIGHTS, 12
    for ago in range(days, 0, -1):
        night = measured(1.0)
        path_of(nights, "mine", night.night).unlink()
        write_night(nights, replace(night, night=night.night - timedelta(days=ago)))
    _, verdict, _ = told_next_to_others(measured(1.0), tmp_path)
    assert verdict is not Verdict.FAIL
    with pytest.raises(UserError, match="has been measured already"):
        measured(1.0)
    path_of(nights, "mine", night.night).unlink()
    slower = measured(1.3)
    assert [part.kind for part in slower.parts] == [Kind.OWN, Kind.AGAIN]
    capsys.readouterr()
    _, verdict, _ = told_next_to_others(slower, tmp_path)
    assert verdict is Verdict.FAIL
    told = capsys.readouterr().out
    command = "env A=b /bin/horovodrun -np 2 python train.py"
    assert f"hvdperf run --series mine --steps 30 -- {command}" in told
    assert "results/scripts/20261126T010203Z-7" in told


def test_a_night_whose_script_fails_is_kept_with_the_reason_and_measured_again(
    measured: Measured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        problem = Problem("no gradient is allreduced", "wrap the tape")
        context.setattr("hvdperf.script.nightly.problems", lambda _: [problem])
        failed = measured(1.0)
    _, verdict, _ = told_next_to_others(failed, tmp_path)
    assert verdict is Verdict.NOT_RUN
    assert "no gradient is allreduced" in failed.told
    assert measured(1.0).told == "throughputs: 2"


def test_a_night_keeps_speeds_starts_and_memory_of_each_run(
    measured: Measured, tmp_path: Path
) -> None:
    measured(1.0)
    (night,) = read_nights(tmp_path / NIGHTS, ["mine"]).of["mine"]
    assert night.ended_at is not None
    assert {model for model, _ in night.speeds} == {"train.py, 10th percentile", "train.py, mean"}
    assert {len(speeds) for speeds in night.speeds.values()} == {RUNS}
    assert all(night.figures(measure) for measure in (Measure.START, Measure.MEMORY))
    assert night.script == "env A=b /bin/horovodrun -np 2 python train.py"
