"""Short runs of a script: against itself under other settings, in another environment, at another
revision, and from night to night."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.paths import CACHE, ROOT
from hvdperf.records.documents import Kind
from hvdperf.records.outcome import Measure
from hvdperf.script import launch
from hvdperf.script.launch import Command, Figure, Run
from hvdperf.script.recorded import Cores, read_ranks
from hvdperf.script.short_runs import RUNS, Comparison, measure_night, told
from hvdperf.timeline.commands import told_next_to_others
from hvdperf.timeline.nights.night import Night, path_of, read_nights, write_night
from hvdperf.timeline.store import NIGHTS
from hvdperf.verdict import Verdict
from hvdperf.work.in_turn import in_turn
from tests.script.test_terms import SAME, changed, made, of_steps
from tests.support.whole_sessions import MPIRUN, completed

SCRIPTS = ROOT / "tests/support/scripts"
COMMAND, OTHER = Command(()), Command((), "X=1")


def git(place: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "-C", str(place), *identity, *words], check=True, capture_output=True)


def test_what_it_is_compared_with_is_told_from_its_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "below").mkdir()
    git(tmp_path, "init", "-q")
    for text in ("first", "second"):
        git(tmp_path, "commit", "--allow-empty", "-qm", text)
    monkeypatch.chdir(tmp_path / "below")
    assert COMMAND.against("A=1 B=x=y").settings == {"A": "1", "B": "x=y"}
    flags = {"TF_XLA_FLAGS": "--a --b=2", "C": ""}
    assert COMMAND.against("TF_XLA_FLAGS=--a --b=2 C=").settings == flags
    assert COMMAND.against(sys.executable).interpreter == Path(sys.executable)
    assert COMMAND.against("HEAD~1").revision == "HEAD~1"
    with pytest.raises(UserError, match="not answer as Python does"):
        COMMAND.against("/bin/true")
    for wanted in ("", "no-such-revision", "--output=x", "/no/python", "b A=1"):
        with pytest.raises(UserError, match="--against"):
            COMMAND.against(wanted)


def test_a_program_of_the_command_that_the_other_environment_lacks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    other = Command(("horovodrun", "python"), interpreter=tmp_path / "bin" / "python")
    with pytest.raises(UserError, match="there is no horovodrun in"):
        other.check_programs()


# A comparison ------------------------------------------------------------------------------------


def pair_of(rng: random.Random, compute: float, on: int | None = None) -> tuple[Run, Run]:
    """Return a pair of runs of two ranks, in which a rank (None: both) of the command takes so many
    times as long to compute."""
    between, wait, work = SAME

    def run(command: Command, factor: float) -> Run:
        noise = rng.gauss(1.0, 0.01)
        times = [factor if on in (None, rank) else 1.0 for rank in range(2)]
        own = [[[between, wait, work * noise * each]] * 50 for each in times]
        return Run(command, made(own))

    return run(COMMAND, compute), run(OTHER, 1.0)


def compared(pairs: int, compute: float, on: int | None = None) -> Comparison:
    """Return the comparison of so many pairs."""
    rng = random.Random(7)
    found = Comparison("X=1", 600.0, lambda _: pair_of(rng, compute, on))
    for _ in range(pairs):
        found.take_round()
    found.finish()
    return found


def test_a_budget_that_is_over_still_has_one_pair() -> None:
    found = Comparison("X=1", -1.0, lambda _: pair_of(random.Random(7), 1.0))
    in_turn([found])
    assert len(found.pairs) == 1
    assert {each.verdict for each in found.judged.values()} == {Verdict.INCONCLUSIVE}


def test_both_figures_rest_on_all_pairs() -> None:
    """The mean differs from pair to pair, and is decided later than the 10th percentile."""
    rng, factors = random.Random(7), iter([1.0, 1.3, 0.8] * 8)

    def run_pair(_: int) -> tuple[Run, Run]:
        own, other = pair_of(rng, 1.0)
        factor, sums = next(factors), own.job[0].series[0].sums
        return replace(own, job=of_steps([*own.job], sums=factor * sums)), other

    found = Comparison("X=1", 600.0, run_pair)
    in_turn([found])
    assert found.judged[Figure.LOW].verdict is Verdict.PASS
    assert found.judged[Figure.MEAN].verdict is Verdict.INCONCLUSIVE
    assert {each.rounds for each in found.judged.values()} == {24}


def test_a_check_that_fails_makes_the_comparison_invalid_and_names_the_side() -> None:
    own, other = pair_of(random.Random(7), 1.25)
    silent = replace(other, job=changed(of_steps([*other.job], exchanges=False), exchanged={}))
    found = Comparison("X=1", 600.0, lambda _: (own, silent))
    in_turn([found])
    assert {each.verdict for each in found.judged.values()} == {Verdict.INVALID}
    assert found.wrong.startswith("X=1: no gradient")
    assert found.wrong in " ".join(" ".join(told(found)).split())


@pytest.mark.parametrize(
    ("pairs", "compute", "on", "verdict", "says"),
    [
        (8, 1.5, None, Verdict.FAIL, ("% slower than", "compute on all ranks")),
        (8, 1.5, 1, Verdict.FAIL, ("% slower than", "compute on rank 1")),
        (8, 0.6, None, Verdict.PASS, ("% faster than", "compute on all ranks")),
        (12, 1.0, None, Verdict.PASS, ("No difference",)),
        (3, 1.25, None, Verdict.INCONCLUSIVE, ()),
    ],
)
def test_whether_and_where_the_command_is_slower_is_told(
    pairs: int, compute: float, on: int | None, verdict: Verdict, says: tuple[str, ...]
) -> None:
    found = compared(pairs, compute, on)
    assert [each.verdict for each in found.judged.values()] == [verdict] * len(Figure)
    text = "\n".join(told(found))
    assert all(each in text for each in says)
    known = ("% slower than", "% faster than", "No difference")
    assert [each for each in known if each in text] == [*says[:1]]


def test_a_small_difference_that_the_rule_does_not_call_is_none() -> None:
    for compute in (0.98, 1.02):
        found = compared(24, compute)
        low = found.judged[Figure.LOW].figure
        assert low is not None
        assert low.lower > 1 or low.upper < 1
        text = "\n".join(told(found))
        assert "No difference" in text
        assert "% slower than" not in text


def test_runs_that_end_before_the_steps_asked_are_told_with_their_side() -> None:
    found = compared(8, 1.0)
    found.pairs = [(replace(own, asked=60), replace(its, asked=50)) for own, its in found.pairs]
    text = " ".join(" ".join(told(found)).split())
    assert "the command: the script ended by itself after 50 of 60 steps" in text
    assert text.count("ended by itself") == 1


@pytest.mark.long
def test_a_revision_is_run_beside_the_files_as_they_are(tmp_path: Path) -> None:
    own = tmp_path / "own"
    (own / "lib").mkdir(parents=True)
    git(own, "init", "-q")
    text, log = (SCRIPTS / "loop.py").read_text(), own / "log.txt"
    (own / "train.py").write_text(
        text.replace("hvd.init()\n", f"hvd.init()\nimport lib.of\nopen('{log}', 'a')\n", 1)
    )
    for number in range(2):
        (own / "lib" / "of.py").write_text(f"NUMBER = {number}\n")
        git(own, "add", ".")
        git(own, "commit", "-qm", f"{number}")
    shutil.copytree(own / "lib", tmp_path / "elsewhere" / "lib")
    # All directories beside that of temporary files are mounted, and /tmp may have hundreds.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(CACHE)}

    def run(script: Path) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "hvdperf", "run", f"--results={tmp_path}"]
        # In a shell, and by absolute paths.
        line = f"cd {own}; {MPIRUN} -np 1 {sys.executable} {script}"
        asked = ["--against=HEAD~1", "--steps=40", "--budget=0.01", "--", "bash", "-c", line]
        return completed([*words, *asked], own, environment, 240)

    done = run(own / "train.py")
    assert "only 1 round" in done.stdout, done.stderr
    assert "largest difference" in done.stdout
    assert sorted(path.name for path in own.iterdir()) == [".git", "lib", "train.py"]
    ranks = [read_ranks(place)[0][0] for place in sorted(tmp_path.glob("scripts/*/1-*"))]
    codes = [rank.code for rank in ranks]
    assert [code and code.files for code in codes] == [("lib/of.py", "train.py")] * 2
    assert len({code and code.sha256 for code in codes}) == 2, "each side ran its own"
    shutil.move(own / "train.py", tmp_path / "elsewhere" / "train.py")
    refused = run(tmp_path / "elsewhere" / "train.py")
    assert f"a rank imported {tmp_path}/elsewhere/lib/of.py" in refused.stderr


# Nights ------------------------------------------------------------------------------------------

NIGHTLY = Command(("env", "A=b", "/bin/horovodrun", "-np", "2", "python", "train.py"))
Measured = Callable[..., Night]


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measured:
    """Return a function that measures a night in which computing takes so many times as long. The
    runs are made up. fields: of the ranks."""
    rng = random.Random(3)

    def night(factor: float, **fields: object) -> Night:
        def run(command: Command, *_: object) -> Run:
            between, wait, work = SAME
            of_run = rng.gauss(1.0, 0.01)
            steps = [[[between, wait, work * factor * of_run]] * 30] * 2
            own = {"HOROVOD_CYCLE_TIME": "5", "OMP_NUM_THREADS": "3"}
            ranks = changed(made(steps), interpreter=sys.executable, settings=own, **fields)
            return Run(command, of_steps(ranks, cores=Cores((0,), 1.0, 1.0, 1.0, 0, 0.0)))

        monkeypatch.setattr(launch, "short_run", run)
        # It times the machine for a second.
        monkeypatch.setattr("hvdperf.machine.probe.probe", dict)
        directory = tmp_path / "scripts" / "20261126T010203Z-7"
        return measure_night(NIGHTLY, "mine", directory, 30, lambda _: None)

    return night


def test_a_script_that_became_slower_falls_and_is_measured_again(
    measured: Measured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nights, days = tmp_path / NIGHTS, 12
    for ago in range(days, 0, -1):
        night = measured(1.0)
        path_of(nights, "mine", night.night).unlink()
        write_night(nights, replace(night, night=night.night - timedelta(days=ago)))
    verdict = told_next_to_others(measured(1.0), tmp_path)
    assert verdict is not Verdict.FAIL
    with pytest.raises(UserError, match="has been measured already"):
        measured(1.0)
    path_of(nights, "mine", night.night).unlink()
    slower = measured(1.3)
    assert [part.kind for part in slower.parts] == [Kind.OWN, Kind.AGAIN]
    capsys.readouterr()
    verdict = told_next_to_others(slower, tmp_path)
    assert verdict is Verdict.FAIL
    text = capsys.readouterr().out
    command = "env A=b /bin/horovodrun -np 2 python train.py"
    assert f"hvdperf run --series mine --steps 30 -- {command}" in text
    assert "results/scripts/20261126T010203Z-7" in text


def test_a_night_keeps_the_results_of_its_runs_and_may_be_repeated_if_it_fails(
    measured: Measured, tmp_path: Path
) -> None:
    failed = measured(1.0, unexchanged=("w2",))
    verdict = told_next_to_others(failed, tmp_path)
    assert verdict is Verdict.NOT_RUN
    assert "w2" in failed.told
    assert measured(1.0).told == "throughputs: 2"
    (night,) = read_nights(tmp_path / NIGHTS, ["mine"]).of["mine"]
    assert night.ended_at is not None
    assert {model for model, _ in night.speeds} == {"train.py, 10th percentile", "train.py, mean"}
    assert {len(speeds) for speeds in night.speeds.values()} == {RUNS}
    assert all(night.figures(measure) for measure in (Measure.START, Measure.MEMORY))
    assert night.script == "env A=b /bin/horovodrun -np 2 python train.py"
    known = night.parts[0].fingerprint
    assert known["launcher"] == "horovodrun"
    assert known["rank_cores"] == ["0: 0", "1: 0"]
    assert known["horovod_cycle_time_ms"] == 5
    assert known["thread_settings"] == ["OMP_NUM_THREADS=3"]
