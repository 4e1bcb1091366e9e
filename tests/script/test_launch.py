"""Training scripts that nobody changed, run with the recorder in their ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hvdperf.machine.stack import probe
from hvdperf.paths import CACHE, ROOT
from hvdperf.plan.arms import Term
from hvdperf.script.launch import TAP, Command, on_all_hosts
from hvdperf.script.recorded import Launch, Rank, Steps, last_job, read_launch, read_ranks
from hvdperf.script.training import training_of
from hvdperf.session.ending import EXIT_STATUS
from hvdperf.verdict import Verdict
from tests.script.test_terms import known

SCRIPTS = ROOT / "tests/support/scripts"
LOOP = str(SCRIPTS / "loop.py")
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
    return subprocess.run(
        command,
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def on_two_ranks(*words: str) -> list[str]:
    launcher = Path(sys.executable).with_name("horovodrun")
    return [str(launcher), "-np", "2", sys.executable, *words]


def ranks_of(tmp_path: Path) -> list[Rank]:
    (directory,) = (tmp_path / "scripts").iterdir()
    ranks, refused = read_ranks(directory)
    assert not refused
    return ranks


def steps_of(rank: Rank) -> Steps:
    assert rank.steps is not None
    return rank.steps


def test_a_loop_is_measured_and_its_slow_rank_is_named(tmp_path: Path) -> None:
    options = ("--slow", "0.06", "--steps", "60", "--stop", "2")
    done = run(tmp_path, *on_two_ranks(LOOP, *options))
    assert done.returncode == 0, done.stderr
    assert "rank 0 is done" in done.stdout
    first, second = ranks_of(tmp_path)
    assert [first.missing, second.missing] == [(), ()]
    steps = steps_of(first)
    assert (steps.name, steps.count, steps.samples) == ("step", 60, 60 * 32)
    assert first.exchanged["step"][0] == 3
    assert first.weights == second.weights
    parts = known([first, second])
    assert parts.slower is not None
    assert (parts.slower.rank, parts.slower.term) == (1, Term.COMPUTE)
    assert parts.by_rank[1].terms[Term.COMPUTE] > 0.06
    assert max(abs(each.residual) / each.period for each in parts.by_rank) < 0.02
    # On a busy machine other programs may stand first.
    assert "rank 1 takes" in " ".join(done.stdout.split())
    assert parts.stop is not None
    assert (parts.stop.rank, parts.stop.count, parts.stop.is_starved) == (1, 1, False)
    assert parts.stop.seconds == pytest.approx(2, abs=0.5)
    assert [len(group.ranks) for group in parts.groups] in ([2], [1, 1])
    (written,) = (tmp_path / "report").glob("*.html")
    assert f"report: report/{written.name}\n" in done.stdout
    assert {"import tensorflow", "hvd.init"} <= {name for name, _, _ in first.events}


def test_fit_under_keras_3_exchanges_nothing_and_is_invalid(tmp_path: Path) -> None:
    script = str(SCRIPTS / "fit.py")
    done = run(tmp_path, *on_two_ranks(script), options=("--check",))
    first, _ = ranks_of(tmp_path)
    assert (steps_of(first).count, first.missing) == (80, ())
    assert first.updated == 4
    if int(probe(sys.executable, CACHE).keras.split(".")[0]) >= 3:
        assert "no gradient is allreduced" in done.stdout
        assert done.returncode == INVALID
    else:
        assert first.exchanged
        assert done.returncode == 0


@pytest.mark.parametrize(
    "options", [(), pytest.param(("--no-exchange",), marks=pytest.mark.long)], ids=len
)
def test_a_script_is_ended_after_so_many_steps(options: tuple[str, ...], tmp_path: Path) -> None:
    words = on_two_ranks(LOOP, "--steps", "9999", *options)
    done = run(tmp_path, *words, options=("--steps=30",))
    assert done.returncode == 0, done.stderr
    assert [steps_of(each).count for each in ranks_of(tmp_path)] == [30, 30]
    assert "is done" not in done.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "way", "name"),
    [
        ("tests/support/scripts/own_ways.py", ["gan"], "train_both"),
        ("tests/support/scripts/own_ways.py", ["allreduce"], "a loop"),
        ("tests/support/scripts/own_ways.py", ["several"], "train_on_four"),
        ("tests/support/scripts/own_ways.py", ["sets"], "train_alone"),
        ("examples/train.py", [], "step"),
    ],
    ids=["gan", "allreduce", "several", "sets", "the example"],
)
def test_a_sound_training_in_a_way_of_its_own_fails_no_check(
    script: str, way: list[str], name: str, tmp_path: Path
) -> None:
    own = ["env", "HOROVOD_DYNAMIC_PROCESS_SETS=1"] if way == ["sets"] else []
    words = on_two_ranks(str(ROOT / script), *way)
    done = run(tmp_path, *own, *words, options=("--check", "--steps=40"))
    assert done.returncode == 0, done.stdout
    first, _ = ranks_of(tmp_path)
    steps = steps_of(first)
    assert steps.name.startswith(name)
    assert steps.count == 40
    if way == ["gan"]:
        assert first.exchanged[name][0] == 4
        assert first.missing == ()
        assert all(row.earlier > 0 for row in steps.rows)
    if way == ["several"]:
        assert steps.samples == 40 * 4 * 32
        assert any("several batches" in each for each in first.missing)


def test_a_session_that_does_not_run_the_exchange_of_its_graph_is_invalid(tmp_path: Path) -> None:
    words = on_two_ranks(str(SCRIPTS / "session.py"), "bypass")
    done = run(tmp_path, *words, options=("--check",))
    assert done.returncode == INVALID, done.stdout
    first, _ = ranks_of(tmp_path)
    assert first.exchanged
    steps = steps_of(first)
    assert (steps.count, steps.updates, steps.exchanges) == (40, True, False)


def test_ranks_without_horovod_are_those_of_their_launcher_and_invalid(tmp_path: Path) -> None:
    script = str(SCRIPTS / "alone.py")
    done = run(tmp_path, *on_two_ranks(script), options=("--check",))
    assert done.returncode == INVALID, done.stdout
    job, jobs = last_job(ranks_of(tmp_path))
    assert ([each.rank for each in job], jobs) == ([0, 1], 1)
    assert {(each.size, each.connected, each.steps and each.steps.count) for each in job} == {
        (2, 0, 40)
    }
    # One process without a launcher trains as it should.
    other = tmp_path / "other"
    alone = run(other, sys.executable, script, options=("--check",))
    assert alone.returncode == 0
    assert ranks_of(other) == []


def test_ranks_that_wait_for_each_other_are_named_with_their_steps(tmp_path: Path) -> None:
    # Beside other tests, a rank may take several seconds to trace its first step.
    environment = {**ENVIRONMENT, "HOROVOD_STALL_CHECK_TIME_SECONDS": "10"}
    with subprocess.Popen(
        own(tmp_path, "--", *on_two_ranks(LOOP, "--stall-at", "20")),
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if "no step finishes" in line)
        os.killpg(process.pid, signal.SIGINT)
        text, _ = process.communicate(timeout=60)
    for sentences in (said, " ".join(text.split())):
        assert "hvd.allreduce (logged), which rank 0 calls at loop.py:" in sentences
        assert "waits for rank 1, which is at loop.py:" in sentences
        assert "waits for rank 0, which is at loop.py:" in sentences
    assert [each.steps and each.steps.count for each in ranks_of(tmp_path)] == [21, 21]


def test_where_nothing_can_be_written_the_script_keeps_its_status(tmp_path: Path) -> None:
    in_a_namespace = ["unshare", "--user", "--map-root-user", "--mount"]
    if subprocess.run([*in_a_namespace, "true"], check=False).returncode:
        pytest.skip("this machine allows no namespaces, in which a small disk could be mounted")
    small = f'mount -t tmpfs -o size=4k tmpfs {tmp_path} && exec "$@"'
    words = own(tmp_path, "--", sys.executable, LOOP, "--steps", "30", "--leave", "3")
    done = subprocess.run(
        [*in_a_namespace, "sh", "-c", small, "sh", *words],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "ranks could not write" in done.stderr
    assert "make room" in done.stderr
    assert "PYTHONPATH" not in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("control_flow", [(), ("v2",)], ids=["branches", "functions"])
def test_the_exchange_of_a_session_is_found_and_what_it_hides_is_told(
    control_flow: tuple[str, ...], tmp_path: Path
) -> None:
    words = on_two_ranks(str(SCRIPTS / "session.py"), *control_flow)
    done = run(tmp_path, *words, options=("--check", "--steps=25"))
    assert done.returncode == 0, done.stdout
    for each in ranks_of(tmp_path):
        assert (steps_of(each).count, steps_of(each).samples, len(each.missing)) == (25, 0, 1)
    assert "samples/s of all" not in done.stdout


def test_whatever_is_done_besides_the_training_step_has_its_own_term(tmp_path: Path) -> None:
    settings = ["env", "HOROVOD_CYCLE_TIME=3", "HOROVOD_SECRET_KEY=hidden"]
    command = [*settings, *on_two_ranks(str(SCRIPTS / "besides.py"))]
    done = run(tmp_path, *command, options=("--check",))
    assert done.returncode == 0, done.stdout + done.stderr
    ranks = ranks_of(tmp_path)
    first = ranks[0]
    assert first.missing == ()
    parts = known(ranks)
    found = parts.by_rank[0].terms
    assert found[Term.BETWEEN] > 0.02
    assert min(found[term] for term in (Term.OTHERS, Term.OTHER_EXCHANGE, Term.COLLECTING)) > 0
    assert min(found.values()) >= 0
    assert sum(found.values()) == pytest.approx(parts.by_rank[0].period, rel=0.01)
    assert {"evaluate", "hvd.broadcast_variables"} == set(parts.others)
    assert first.others["allreduce in steps"] == 3 * 60
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


def test_a_loop_without_a_function_computes_between_its_exchanges(tmp_path: Path) -> None:
    done = run(tmp_path, *on_two_ranks(LOOP, "--eager"))
    assert done.returncode == 0, done.stderr
    ranks = ranks_of(tmp_path)
    parts = known(ranks)
    for each in parts.by_rank:
        assert each.terms[Term.BETWEEN] == pytest.approx(0, abs=1e-5)
        assert min(each.terms.values()) > -1e-5
        assert min(each.terms[term] for term in (Term.COMPUTE, Term.APPLY, Term.EXCHANGE)) > 0
    assert parts.in_loop


def test_one_rank_does_not_wait_for_its_gpu(tmp_path: Path) -> None:
    done = run(tmp_path, sys.executable, LOOP, "--gpu", "--steps=100")
    assert done.returncode == 0, done.stdout + done.stderr
    (only,) = ranks_of(tmp_path)
    assert only.missing == ()
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
    ("words", "status", "count", "is_over", "says"),
    [
        ((str(SCRIPTS / "forked.py"),), 0, 20, True, ""),
        ((LOOP, "--steps", "30", "--leave", "3"), 3, 30, False, ""),
        ((LOOP, "--fail-at", "12"), 1, 13, True, "RuntimeError: the script's own error"),
        (("-c", FAILS), 3, 0, True, "the command ended with status 3 before its first step"),
    ],
    ids=["it forks the one that trains", "it leaves at once", "it fails", "it never trains"],
)
def test_however_a_script_ends_it_keeps_its_steps_and_its_status(
    words: tuple[str, ...], status: int, count: int, is_over: bool, says: str, tmp_path: Path
) -> None:
    done = run(tmp_path, sys.executable, *words)
    assert done.returncode == status, done.stderr
    assert says in " ".join(done.stdout.split()) + done.stderr
    (alone,) = ranks_of(tmp_path)
    assert (alone.size, alone.count, alone.is_over) == (1, count, is_over)
    (directory,) = (tmp_path / "scripts").iterdir()
    assert read_launch(directory).status == status


def test_a_command_without_a_rank_keeps_its_status_and_its_sitecustomize(tmp_path: Path) -> None:
    hidden = tmp_path / "site"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("print('the own sitecustomize')\n")
    code = "import sys; sys.exit(5)"
    words = ["env", f"PYTHONPATH={TAP}:{hidden}", sys.executable, "-c", code]
    done = run(tmp_path, *words)
    assert done.returncode == 5
    assert done.stdout.count("the own sitecustomize") == 1
    assert "no rank was seen" in done.stderr


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "there is no command"),
        (("no-such-program",), "does not start"),
    ],
)
def test_what_is_no_command_is_one_line(
    tmp_path: Path, words: tuple[str, ...], problem: str
) -> None:
    done = run(tmp_path, *words)
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
