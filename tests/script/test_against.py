"""A script against itself under other settings, in another environment, at another revision."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.paths import ROOT
from hvdperf.script import revisions
from hvdperf.script.against import Comparison, told
from hvdperf.script.arms import Arm, Figure, Run, Runner, launch_settings, other_arm
from hvdperf.script.recorded import read_ranks
from hvdperf.verdict import Verdict
from hvdperf.work.in_turn import in_turn
from hvdperf.worker.script.tap import _hvdperf_private as private
from tests.script.test_terms import SAME, made

SCRIPTS = ROOT / "tests/support/scripts"


def git(place: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", "-C", str(place), *identity, *words], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository of two revisions of train.py, with files that are not tracked."""
    top = tmp_path / "own"
    top.mkdir()
    git(top, "init", "-q")
    for text in ("first", "second"):
        (top / "train.py").write_text(text)
        git(top, "add", "train.py")
        git(top, "commit", "-qm", text)
    (top / "train.py").write_text("edited")
    (top / "logs").mkdir()
    (top / "logs" / "old.txt").write_text("a line")
    return top


def test_what_it_is_compared_with_is_told_from_its_form(repository: Path) -> None:
    assert other_arm("A=1 B=x=y", repository).settings == {"A": "1", "B": "x=y"}
    flags = {"TF_XLA_FLAGS": "--a --b=2", "C": ""}
    assert other_arm("TF_XLA_FLAGS=--a --b=2 C=", repository).settings == flags
    assert other_arm(sys.executable, repository).interpreter == Path(sys.executable)
    with pytest.raises(UserError, match="not answer as Python does"):
        other_arm("/bin/true", repository)
    assert other_arm("HEAD~1", repository).revision == "HEAD~1"
    for wanted in ("", "no-such-revision", "--output=x", "/no/python", "b A=1"):
        with pytest.raises(UserError, match="--against"):
            other_arm(wanted, repository)


def test_a_copy_holds_the_files_as_they_are(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private, "LINKED", 100)
    (repository / "data.bin").write_bytes(bytes(101))
    environment = repository / ".venv"
    environment.mkdir()
    (environment / "pyvenv.cfg").touch()
    results = repository / "results"
    results.mkdir()
    work = tmp_path / "work"
    work.mkdir()
    private.copy(repository, work, results)
    assert sorted(path.name for path in work.iterdir()) == [".venv", "data.bin", "logs", "train.py"]
    assert (work / "data.bin").readlink() == repository / "data.bin"
    assert (work / ".venv").readlink() == environment
    assert (work / "train.py").read_text() == "edited"


def test_a_revision_is_kept_with_the_names_that_it_replaces(
    repository: Path, tmp_path: Path
) -> None:
    found = revisions.repository(repository / "logs")
    assert found is not None
    revisions.keep_revision(found, "HEAD~1", tmp_path)
    assert (tmp_path / private.REPLACED).read_text() == "train.py\0"
    with tarfile.open(tmp_path / private.ARCHIVE) as archive:
        member = archive.extractfile("train.py")
        assert member is not None
        assert member.read() == b"first"


def compared(pairs: int, compute: float, on: int | None = None) -> Comparison:
    """Return pairs of runs of two ranks, in which a rank (None: both) of the command takes so many
    times as long to compute."""
    rng = random.Random(7)

    def run(factor: float) -> Run:
        noise = rng.gauss(1.0, 0.01)
        between, wait, work = SAME
        times = [factor if on in (None, r) else 1.0 for r in range(2)]
        own = [[[between, wait, work * noise * each] for _ in range(50)] for each in times]
        return Run(made(own))

    found = Comparison(Arm("X=1"))
    for _ in range(pairs):
        found.add((run(compute), run(1.0)))
    found.finish()
    return found


def test_a_program_of_the_command_that_the_other_environment_lacks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.chdir(own)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    other = Arm("other", interpreter=tmp_path / "bin" / "python")
    with pytest.raises(UserError, match="there is no horovodrun in"):
        Runner(["horovodrun", "-np", "2", "python", "a.py"], tmp_path / "out").run(other, "0", 40)


def test_a_slower_command_fails_and_an_equal_one_passes() -> None:
    slower = compared(8, 1.25).judged
    assert [each.verdict for each in slower.values()] == [Verdict.FAIL] * len(Figure)
    equal = compared(12, 1.0).judged
    assert [each.verdict for each in equal.values()] == [Verdict.PASS] * len(Figure)
    early = compared(3, 1.25).judged
    assert {each.verdict for each in early.values()} == {Verdict.INCONCLUSIVE}


def test_a_budget_that_is_over_still_has_one_pair() -> None:
    pair = compared(1, 1.0).pairs[0]
    found = Comparison(Arm("X=1"), -1.0, lambda number: pair)
    in_turn([found])
    assert found.pairs == [pair]
    assert {each.verdict for each in found.judged.values()} == {Verdict.INCONCLUSIVE}


def test_both_figures_rest_on_all_pairs() -> None:
    """The mean differs from pair to pair, and is decided later than the 10th percentile."""
    factors = iter([1.0, 1.3, 0.8] * 8)

    def run_pair(number: int) -> tuple[Run, Run]:
        ((own, other),) = compared(1, 1.0).pairs
        factor, job = next(factors), []
        for rank in own.job:
            series = tuple(replace(each, sums=factor * each.sums) for each in rank.series)
            job.append(replace(rank, series=series))
        return replace(own, job=job), other

    found = Comparison(Arm("X=1"), run_pair=run_pair)
    in_turn([found])
    assert found.judged[Figure.LOW].verdict is Verdict.PASS
    assert found.judged[Figure.MEAN].verdict is Verdict.INCONCLUSIVE
    assert {each.rounds for each in found.judged.values()} == {24}


def test_an_interrupted_comparison_without_a_pair_has_no_verdict() -> None:
    found = Comparison(Arm("X=1"))
    found.finish()
    assert found.judged == {}


def test_the_suites_launch_shares_the_cores_of_a_host() -> None:
    ranks = made([[SAME] * 10] * 4, hosts=("a", "b"))
    assert launch_settings(ranks, 8, has_gpus=False)["TF_NUM_INTRAOP_THREADS"] == "4"
    assert launch_settings(ranks, 1, has_gpus=False)["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in launch_settings(ranks, 8, has_gpus=True)


def test_a_check_that_fails_makes_the_comparison_invalid() -> None:
    found = compared(8, 1.25)
    found.wrong = "X=1: no gradient is allreduced"
    found.finish()
    assert {each.verdict for each in found.judged.values()} == {Verdict.INVALID}
    assert found.wrong in told(found)


def test_where_the_difference_lies_is_named() -> None:
    assert any("compute on rank 1" in line for line in told(compared(8, 1.5, on=1)))
    assert any("compute on all ranks" in line for line in told(compared(8, 1.5)))


@pytest.mark.parametrize(
    ("compute", "word"), [(1.5, "% slower than"), (0.6, "% faster than"), (1.0, "No difference")]
)
def test_whether_the_command_is_slower_or_faster_is_a_sentence(compute: float, word: str) -> None:
    text = "\n".join(told(compared(8, compute)))
    known = ("% slower than", "% faster than", "No difference")
    assert [each for each in known if each in text] == [word]


def test_a_small_difference_that_the_rule_does_not_call_is_none() -> None:
    for compute in (0.98, 1.02):
        found = compared(24, compute)
        low = found.judged[Figure.LOW].figure
        assert low is not None
        assert low.lower > 1 or low.upper < 1
        text = "\n".join(told(found))
        assert "No difference" in text
        assert "% faster than" not in text
        assert "% slower than" not in text


def test_runs_that_end_before_the_steps_asked_are_told_with_their_arm() -> None:
    found = compared(8, 1.0)
    found.pairs = [(replace(own, asked=60), replace(its, asked=50)) for own, its in found.pairs]
    text = " ".join(" ".join(told(found)).split())
    assert "the command: the script ended by itself after 50 of 60 steps" in text
    assert text.count("ended by itself") == 1


@pytest.mark.long
def test_a_revision_is_run_beside_the_files_as_they_are(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    git(own, "init", "-q")
    text = (SCRIPTS / "loop.py").read_text()
    log = own / "log.txt"
    (own / "train.py").write_text(
        text.replace("hvd.init()\n", f"hvd.init()\nimport lib.of\nopen('{log}', 'a')\n", 1)
    )
    (own / "lib").mkdir()
    for number in range(2):
        (own / "lib" / "of.py").write_text(f"NUMBER = {number}\n")
        git(own, "add", ".")
        git(own, "commit", "-qm", f"{number}")
    shutil.copytree(own / "lib", tmp_path / "elsewhere" / "lib")
    launcher = str(Path(sys.executable).with_name("horovodrun"))
    # In a shell, and by absolute paths.
    line = f"cd {own}; {launcher} -np 2 {sys.executable} {own}/train.py"

    def run() -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "hvdperf", "run", f"--results={tmp_path}"]
        asked = ["--against=HEAD~1", "--steps=40", "--budget=0.01", "--", "bash", "-c", line]
        return subprocess.run(
            [*words, *asked],
            cwd=own,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )

    done = run()
    assert "only 1 round" in done.stdout, done.stderr
    assert "largest difference" in done.stdout
    assert sorted(path.name for path in own.iterdir()) == [".git", "lib", "train.py"]
    ranks = [read_ranks(place)[0][0] for place in sorted(tmp_path.glob("scripts/*/1-*"))]
    codes = [rank.code for rank in ranks]
    assert [code and code.files for code in codes] == [("lib/of.py", "train.py")] * 2
    assert len({code and code.sha256 for code in codes}) == 2, "each side ran its own"
    shutil.move(own / "train.py", tmp_path / "elsewhere" / "train.py")
    line = line.replace(f"{own}/train.py", f"{tmp_path}/elsewhere/train.py")
    refused = run()
    assert f"a rank imported {tmp_path}/elsewhere/lib/of.py" in refused.stderr
