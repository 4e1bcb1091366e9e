"""Training scripts that nobody changed, run with the recorder in their ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hvdperf.machine.stack import probe
from hvdperf.paths import CACHE, ROOT
from hvdperf.plan.arms import Term
from hvdperf.script.launch import TAP, Command, on_all_hosts
from hvdperf.script.limits import groups_of
from hvdperf.script.recorded import Launch, Rank, Steps, last_job, read_launch, read_ranks
from hvdperf.script.training import training_of
from hvdperf.verdict import EXIT_STATUS, Verdict
from hvdperf.worker.script.tap._hvdperf_recorder import OF_LOOP, OF_SESSION
from tests.script.test_terms import known
from tests.support.whole_sessions import MPIRUN, completed

SCRIPTS = ROOT / "tests/support/scripts"
LOOP, ALONE, FORKED = (str(SCRIPTS / f"{name}.py") for name in ("loop", "alone", "forked"))
FAILS = "import horovod.tensorflow as hvd; hvd.init(); raise SystemExit(3)"
INVALID = EXIT_STATUS[Verdict.INVALID]
ENVIRONMENT = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(ROOT)}


def own(results: Path, *words: str) -> list[str]:
    """Return the command that runs another one with the recorder. words: options and it."""
    return [sys.executable, "-m", "hvdperf", "run", f"--results={results}", *words]


def run(tmp_path: Path, *words: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    """Run a command with the recorder. words: of the command. options: of hvdperf run."""
    tmp_path.mkdir(exist_ok=True)
    command = own(tmp_path, *options, "--", *words)
    return completed(command, tmp_path, ENVIRONMENT, timeout=240)


def on_two_ranks(*words: str) -> list[str]:
    """Return the command that runs Python on two ranks, as horovodrun does it, which imports
    TensorFlow before."""
    return [MPIRUN, "-np", "2", "--bind-to", "none", sys.executable, *words]


def ranks_of(tmp_path: Path) -> list[Rank]:
    (directory,) = (tmp_path / "scripts").iterdir()
    ranks, refused = read_ranks(directory)
    assert not refused
    return ranks


def steps_of(rank: Rank) -> Steps:
    assert rank.steps is not None
    return rank.steps


def series_of(rank: Rank, name: str) -> Steps:
    """Return the calls of a function, or the steps of a loop that has none."""
    (found,) = [each for each in rank.series if each.name == name]
    return found


def test_a_slow_rank_is_named_and_so_are_ranks_that_wait_for_each_other(tmp_path: Path) -> None:
    options = ("--slow", "0.06", "--steps", "60", "--stop", "2", "--stall-at", "50")
    # Beside other tests, a rank may take several seconds to trace its first step.
    environment = {**ENVIRONMENT, "HOROVOD_STALL_CHECK_TIME_SECONDS": "10"}
    with subprocess.Popen(
        own(tmp_path, "--", *on_two_ranks(LOOP, *options)),
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        # Tracing the first step may have been one, too.
        said = next(line for line in process.stderr if "(logged)" in line)
        os.killpg(process.pid, signal.SIGINT)
        text, _ = process.communicate(timeout=60)
    for sentences in (said, " ".join(text.split())):
        assert "hvd.allreduce (logged), which rank 0 calls at loop.py:" in sentences
        assert "waits for rank 1, which is at loop.py:" in sentences
        assert "waits for rank 0, which is at loop.py:" in sentences
    first, second = ranks = ranks_of(tmp_path)
    assert [each.missing for each in ranks] == [(), ()]
    assert [each.launched for each in ranks] == [(0, 2), (1, 2)]
    steps = steps_of(first)
    assert (steps.name, steps.count, steps.samples) == ("step", 51, 51 * 32)
    assert steps_of(second).count == 51
    assert first.exchanged["step"][0] == 3
    assert {"import tensorflow", "hvd.init"} <= {name for name, _, _ in first.events}
    parts = known(ranks)
    assert parts.slower is not None
    assert (parts.slower.rank, parts.slower.term) == (1, Term.COMPUTE)
    assert parts.by_rank[1].terms[Term.COMPUTE] > 0.06
    assert max(abs(each.residual) / each.period for each in parts.by_rank) < 0.02
    assert parts.stop is not None
    assert (parts.stop.rank, parts.stop.count, parts.stop.is_starved) == (1, 1, False)
    assert parts.stop.seconds == pytest.approx(2, abs=0.5)
    assert [len(group.ranks) for group in groups_of(ranks)] in ([2], [1, 1])
    (written,) = (tmp_path / "report").glob("*.html")
    assert f"report: report/{written.name}\n" in text


def test_fit_under_keras_3_exchanges_nothing_and_is_invalid(tmp_path: Path) -> None:
    script = str(SCRIPTS / "fit.py")
    done = run(tmp_path, *on_two_ranks(script), options=("--check", "--steps=60"))
    ranks = ranks_of(tmp_path)
    assert [(steps_of(each).count, each.missing) for each in ranks] == [(60, ())] * 2
    assert ranks[0].updated == 4
    if int(probe(sys.executable, CACHE).keras.split(".")[0]) >= 3:
        assert "no gradient is allreduced" in done.stdout
        assert done.returncode == INVALID
    else:
        assert ranks[0].exchanged
        assert done.returncode == 0


@pytest.mark.long
def test_the_example_fails_no_check_and_is_ended_after_so_many_steps(tmp_path: Path) -> None:
    words = on_two_ranks(str(ROOT / "examples/train.py"))
    done = run(tmp_path, *words, options=("--check", "--steps=40"))
    assert done.returncode == 0, done.stdout
    assert [(steps_of(each).name, each.count) for each in ranks_of(tmp_path)] == [("step", 40)] * 2
    assert "after 300 steps" not in done.stdout


def test_sound_trainings_in_ways_of_their_own_fail_no_check(tmp_path: Path) -> None:
    settings = ["env", "HOROVOD_DYNAMIC_PROCESS_SETS=1"]
    ways = ("gan", "allreduce", "several", "sets", "eager")
    words = on_two_ranks(str(SCRIPTS / "own_ways.py"), *ways)
    done = run(tmp_path, *settings, *words, options=("--check",))
    assert done.returncode == 0, done.stdout + done.stderr
    first, _ = ranks = ranks_of(tmp_path)
    of_two_tapes = series_of(first, "train_both")
    assert (of_two_tapes.count, of_two_tapes.exchanges) == (40, True)
    assert first.exchanged["train_both"][0] == 4
    assert all(row.earlier > 0 for row in of_two_tapes.rows)
    assert first.others == {"allreduce between steps": 2 * 40}
    on_four = series_of(first, "train_on_four")
    assert (on_four.count, on_four.samples) == (40, 40 * 4 * 32)
    (missing,) = first.missing
    assert "several batches" in missing
    assert [each.process_sets for each in ranks] == [((0,),), ((1,),)]
    assert [series_of(each, "train_alone").count for each in ranks] == [40, 40]
    # Those with an allreduce of their own, and a plain loop.
    in_loop = series_of(first, OF_LOOP)
    assert (in_loop.count, in_loop.updates) == (40 + 40, True)
    parts = known([replace(each, series=(series_of(each, OF_LOOP),)) for each in ranks])
    assert parts.in_loop
    for each in parts.by_rank:
        assert each.terms[Term.BETWEEN] == pytest.approx(0, abs=1e-5)
        assert min(each.terms.values()) > -1e-5
        assert min(each.terms[term] for term in (Term.COMPUTE, Term.APPLY, Term.EXCHANGE)) > 0


def test_what_a_session_runs_exchanges_or_does_not(tmp_path: Path) -> None:
    words = on_two_ranks(str(SCRIPTS / "session.py"), "bypass", "branches", "v2")
    done = run(tmp_path, *words, options=("--check", "--steps=60"))
    assert done.returncode == 0, done.stdout
    for rank in ranks_of(tmp_path):
        # The gradients that a session exchanges are those of both kinds of branches.
        assert [(each.count, each.updates, each.exchanges) for each in rank.series] == [
            (40, True, False),
            (60, False, True),
        ]
        assert (rank.exchanged[OF_SESSION][0], steps_of(rank).samples, len(rank.missing)) == (
            1,
            0,
            1,
        )
    assert "samples/s of all" not in done.stdout


def test_ranks_without_horovod_are_those_of_their_launcher_and_invalid(tmp_path: Path) -> None:
    done = run(tmp_path, *on_two_ranks(ALONE), options=("--check",))
    assert done.returncode == INVALID, done.stdout
    job, jobs = last_job(ranks_of(tmp_path))
    assert ([each.rank for each in job], jobs) == ([0, 1], 1)
    assert {(each.size, each.connected, each.steps and each.steps.count) for each in job} == {
        (2, 0, 40)
    }


def test_where_nothing_can_be_written_the_script_keeps_its_status(tmp_path: Path) -> None:
    in_a_namespace = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*in_a_namespace, "true"], check=False).returncode:
        pytest.skip("this machine allows no namespaces, in which a small disk could be mounted")
    small = f'mount -t tmpfs -o size=4k tmpfs {tmp_path} && exec "$@"'
    words = own(tmp_path, "--", sys.executable, LOOP, "--steps", "30", "--leave", "3")
    done = completed([*in_a_namespace, "sh", "-c", small, "sh", *words], env=ENVIRONMENT)
    assert done.returncode == 3, done.stderr
    assert "ranks could not write" in done.stderr
    assert "make room" in done.stderr
    assert "PYTHONPATH" not in done.stderr


def test_whatever_is_done_besides_the_training_step_has_its_own_term(tmp_path: Path) -> None:
    settings = ["env", "HOROVOD_CYCLE_TIME=3", "HOROVOD_SECRET_KEY=hidden"]
    launcher = str(Path(sys.executable).with_name("horovodrun"))
    command = [*settings, launcher, "-np", "2", sys.executable, str(SCRIPTS / "besides.py")]
    done = run(tmp_path, *command, options=("--check",))
    assert done.returncode == 0, done.stdout + done.stderr
    ranks = ranks_of(tmp_path)
    first, second = ranks
    assert first.missing == ()
    assert first.weights == second.weights != ()
    parts = known(ranks)
    found = parts.by_rank[0].terms
    assert found[Term.BETWEEN] > 0.02
    assert min(found[term] for term in (Term.OTHERS, Term.OTHER_EXCHANGE, Term.COLLECTING)) > 0
    assert min(found.values()) >= 0
    assert sum(found.values()) == pytest.approx(parts.by_rank[0].period, rel=0.01)
    assert {"evaluate", "hvd.broadcast_variables"} == set(parts.others)
    assert first.others["allreduce in steps"] == 3 * 60
    assert first.others["allreduce in branches of steps"] == 60
    assert "allreduce in branches of steps (up to 60)" in done.stdout
    assert first.others["broadcast_variables between steps"] == 60
    steps = steps_of(first)
    assert steps.period is not None
    assert (steps.samples, steps.batch) == (0, 48)
    assert steps.samples_per_second == pytest.approx(48 / steps.period)
    assert "(look_around)" in max(first.places, key=first.places.__getitem__)
    assert "(rest)" in max(first.places_after, key=first.places_after.__getitem__)
    training = training_of(ranks, 1)
    assert 1.5 < training.after[1] < training.seconds
    assert steps.cores is not None
    grown = steps.cores.grown / steps.cores.seconds * steps.period
    assert grown == pytest.approx(8e6, rel=0.2)
    assert {"tensorflow", "horovod"} <= set(first.versions)
    assert first.settings["HOROVOD_CYCLE_TIME"] == "3"
    assert "HOROVOD_SECRET_KEY" not in first.settings
    (directory,) = (tmp_path / "scripts").iterdir()
    assert read_launch(directory) == Launch(tuple(command), 0)
    assert "horovodrun -np 2" in (directory / "report.txt").read_text()


def test_one_rank_does_not_wait_for_its_gpu_and_may_leave_at_once(tmp_path: Path) -> None:
    done = run(tmp_path, sys.executable, LOOP, "--gpu", "--steps=100", "--leave=3")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "rank 0 is done" in done.stdout
    (only,) = ranks_of(tmp_path)
    assert (only.missing, only.count, only.is_over) == ((), 100, False)
    steps = steps_of(only)
    assert not any(row.done for row in steps.rows)
    assert steps.alone is not None
    assert len(steps.alone) == 6
    assert all(0 < queued <= done for queued, done in steps.alone)
    assert steps.summed == 80
    parts = known([only])
    assert parts.gpu is not None
    assert set(parts.by_rank[0].terms) == {Term.BETWEEN, Term.INPUT, Term.COMPUTE}


@pytest.mark.parametrize(
    ("words", "status", "count", "says"),
    [
        ((FORKED, "--fail-at", "12"), 1, 13, "RuntimeError: the script's own error"),
        (("-c", FAILS), 3, 0, "the command ended with status 3 before its first step"),
    ],
    ids=["it forks the one that trains, which fails", "it never trains"],
)
def test_however_a_script_ends_it_keeps_its_steps_and_its_status(
    words: tuple[str, ...], status: int, count: int, says: str, tmp_path: Path
) -> None:
    done = run(tmp_path, sys.executable, *words)
    assert done.returncode == status, done.stderr
    assert says in " ".join(done.stdout.split()) + done.stderr
    (alone,) = ranks_of(tmp_path)
    assert (alone.size, alone.count, alone.is_over) == (1, count, True)
    (directory,) = (tmp_path / "scripts").iterdir()
    assert read_launch(directory).status == status


def test_a_command_without_a_rank_keeps_its_status_and_its_sitecustomize(tmp_path: Path) -> None:
    hidden = tmp_path / "site"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("print('the own sitecustomize')\n")
    # One process without a launcher trains as it should.
    words = ["sh", "-c", f"{sys.executable} {ALONE}; exit 5"]
    done = run(tmp_path, "env", f"PYTHONPATH={TAP}:{hidden}", *words, options=("--check",))
    assert done.returncode == 5
    assert done.stdout.count("the own sitecustomize") == 1
    assert "no rank was seen: until it ended with status 5" in done.stderr


@pytest.mark.parametrize(
    ("options", "words", "problem"),
    [
        ((), (), "there is no command"),
        ((), ("no-such-program",), "does not start"),
        (("--against=A=1", "--writable=/no/such"), ("true",), "/no/such: no such directory"),
    ],
)
def test_what_is_no_command_is_one_line(
    tmp_path: Path, options: tuple[str, ...], words: tuple[str, ...], problem: str
) -> None:
    done = run(tmp_path, *words, options=options)
    assert done.returncode == 2
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["TERM", "USR1"])
def test_a_signal_reaches_the_command(name: str, tmp_path: Path) -> None:
    script = f"trap 'echo ended; exit 3' {name}; echo begun; while :; do sleep 0.1; done"
    command = own(tmp_path, "--", "sh", "-c", script)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.Signals[f"SIG{name}"])
        assert process.stdout.readline() == "ended\n"
        assert process.wait(30) == 3


def test_the_environment_keeps_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/own")
    found = Command((), settings={"A": "b"}).environment(tmp_path, 7)
    assert found["PYTHONPATH"] == f"{TAP}{os.pathsep}/own"
    assert (found["A"], found["HVDPERF_STEPS"]) == ("b", "7")


def test_open_mpi_on_several_hosts_hands_the_recorder_on() -> None:
    mpirun = str(Path(sys.executable).with_name("mpirun"))
    plain = [mpirun, "-np", "2", "python", "train.py"]
    assert on_all_hosts(plain) == plain
    hosts = [mpirun, "--host", "a:1,b:1", "python", "train.py"]
    assert on_all_hosts(hosts)[:3] == [mpirun, "-x", "PYTHONPATH"]
    others = ["horovodrun", "-H", "a:1,b:1", "python", "train.py"]
    assert on_all_hosts(others) == others
