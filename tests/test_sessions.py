"""Whole sessions as a user starts them: exit status, reports, interruption, slots."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hvdperf.launch.mpirun import is_running
from hvdperf.machine.rank_environment import rank_environment
from hvdperf.machine.stack import find_mpirun
from hvdperf.results.archive import read_document
from hvdperf.results.documents import Limit, Summary
from tests.support.filesystems import make_read_only, small_disk
from tests.support.terminals import Terminal

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
MPIRUN = str(find_mpirun(Path(sys.executable)))

# One network of 16 tensors, and one round within the budget.
PROFILE = """\
models = ["alexnet_s"]
dataset = "cifar10"
batch = 8
budget_s = 1
world_sizes = [1, 2]

[sampling]
looks = [8]
early = false
turns_min = 1
turns_max = 1
min_block_seconds = 0.05
startup_deadline_s = 60
block_deadline_s = 20
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


def command(arguments: Sequence[str], ranks: int) -> list[str]:
    outer = [MPIRUN, "-np", str(ranks), "--oversubscribe"] if ranks else []
    return [*outer, str(BIN / "pytest"), *arguments]


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    profile = tmp_path / "tiny.toml"
    profile.write_text(PROFILE)
    return [
        f"--profile={profile}",
        f"--results={tmp_path / 'results'}",
        "--np=2",
        "--oversubscribe",
    ]


@pytest.fixture
def run(options: list[str]) -> Run:
    def session(*arguments: str, ranks: int = 0) -> subprocess.CompletedProcess[str]:
        environment = rank_environment(sys.executable)
        environment["PATH"] = f"{BIN}:{environment['PATH']}"
        environment.setdefault("OPAL_PREFIX", str(BIN.parent))
        return subprocess.run(
            command(["perf/", *options, *arguments], ranks),
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return session


@pytest.fixture
def sit_before(options: list[str]) -> Callable[..., Terminal]:
    """The same, before a terminal."""

    def session(*arguments: str, ranks: int = 0) -> Terminal:
        environment = rank_environment(sys.executable)
        environment.setdefault("OPAL_PREFIX", str(BIN.parent))
        return Terminal(command(["perf/", *options, *arguments], ranks), ROOT, environment)

    return session


def documents(tmp_path: Path) -> dict[str, dict]:
    """What the session knows, without its summary."""
    paths = (tmp_path / "results" / "runs").glob("*/*.json")
    return {p.name: json.loads(p.read_text()) for p in paths if p.name != "summary.json"}


def summary(tmp_path: Path) -> Summary:
    (path,) = (tmp_path / "results" / "runs").glob("*/summary.json")
    return read_document(path, Summary)


def last_words(output: str) -> str:
    """The last line before pytest's own."""
    *_, said, _ = output.strip().splitlines()
    return said


@pytest.mark.mpirun
def test_a_failed_launch_fails_its_cases_and_no_other(run: Run, tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    done = run("--plant=raise:rank=1", "-k", "parity or efficiency", f"--junitxml={junit}")
    assert done.returncode == 1, done.stdout
    words = {
        name: found["outcome"]["judgement"]["verdict"]
        for name, found in documents(tmp_path).items()
        if "outcome" in found
    }
    assert words == {
        "communication-alexnet_s-np2.json": "FAIL",
        "parity-alexnet_s-np2.json": "FAIL",
        "parity-alexnet_s-np1.json": "INCONCLUSIVE",
    }
    assert "rank 1 failed in phase 'block': PlantedFault" in done.stdout
    (page,) = (tmp_path / "results" / "report").glob("*.html")
    assert f"report: {page}" in done.stdout
    assert "PlantedFault" in page.read_text()
    suite = ET.parse(junit).getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("3", "3")
    told = {
        case.get("name"): {each.get("name"): each.get("value") for each in case.iter("property")}
        for case in suite.iter("testcase")
    }
    assert told["test_parity[alexnet_s-np2]"] == {"verdict": "FAIL", "limit": "in 0.75..1.33"}
    assert told["test_parity[alexnet_s-np1]"].keys() == {"verdict", "figure", "limit"}
    assert last_words(done.stdout) == (
        "exit status 1: FAIL, 2 of 3 cases missed their limit or broke (see above)"
    )
    assert "To measure what is FAIL again, alone (the first of 2):" in done.stdout
    assert "pytest 'perf/test_parity.py::test_parity[alexnet_s-np2]' \\" in done.stdout
    assert "To decide 1 INCONCLUSIVE (up to " in done.stdout
    assert "Benchmark" not in done.stdout + done.stderr, "there was nothing to record"


@pytest.mark.mpirun
def test_too_little_time_is_inconclusive_and_no_pass(run: Run, tmp_path: Path) -> None:
    record = tmp_path / "benchmark.json"
    done = run("-k", "efficiency or strong_scaling", f"--benchmark-json={record}")
    assert done.returncode == 6, done.stdout
    assert done.stdout.count("INCONCLUSIVE") >= 2
    benchmarks = json.loads(record.read_text())["benchmarks"]
    case = documents(tmp_path)["communication-alexnet_s-np2.json"]["outcome"]
    blocks = [b for b in case["rounds"][0]["launches"][0]["blocks"] if b["kind"] == "full"]
    recorded = next(b for b in benchmarks if "communication" in b["name"])
    assert recorded["stats"]["data"] == pytest.approx(
        [max(rank["seconds"] for rank in b["ranks"]) for b in blocks]
    )
    assert recorded["extra_info"]["word"] == "INCONCLUSIVE"
    assert "benchmark 'communication'" not in done.stdout, "its tables are shown on request"
    assert last_words(done.stdout).startswith("exit status 6: INCONCLUSIVE, 2 of 2 cases could not")
    told = summary(tmp_path)
    assert (told.exit_status, len(told.cases)) == (6, 2)
    assert (told.cases[0].name, told.cases[0].figure, told.cases[0].limit) == (
        "communication[alexnet_s-np2]",
        case["judgement"]["figure"]["estimate"],
        Limit(at_least=case["judgement"]["rule"]["pass_from"], at_most=None),
    )


@pytest.mark.mpirun
def test_x_stops_at_inconclusive_unless_that_is_allowed(run: Run) -> None:
    stopped = run("-x", "-k", "efficiency or strong_scaling", "--benchmark-columns=median")
    assert (stopped.returncode, cases_in_table(stopped.stdout)) == (6, 2)
    assert " 1 inconclusive in " in stopped.stdout
    assert 0 < stopped.stdout.find("benchmark 'strong_scaling'") < stopped.stdout.find("hvdperf:")
    allowed = run("-x", "-k", "efficiency or strong_scaling", "--inconclusive=ok")
    assert (allowed.returncode, cases_in_table(allowed.stdout)) == (0, 2)
    assert " 2 inconclusive in " in allowed.stdout
    assert last_words(allowed.stdout) == (
        "exit status 0: 0 PASS, 2 INCONCLUSIVE, which --inconclusive=ok allows"
    )


@pytest.mark.mpirun
def test_what_was_decided_along_with_the_case_that_x_stopped_at_is_told(run: Run) -> None:
    done = run("-x", "-k", "parity", "--plant=raise:rank=1")
    assert " 1 inconclusive in " in done.stdout, "pytest does not come to the other one"
    assert "rank 1 failed in phase 'block': PlantedFault" in done.stdout
    assert done.returncode == 1, "the worst verdict is that of the session"


def cases_in_table(output: str) -> int:
    return sum(line.startswith(("strong ", "comm. ")) for line in output.splitlines())


@pytest.mark.mpirun
@pytest.mark.parametrize("launcher", ["mpirun", "agents"])
def test_a_session_under_mpirun_has_one_report(run: Run, launcher: str, tmp_path: Path) -> None:
    done = run("-k", "efficiency", "--plant=kill:rank=1", f"--launcher={launcher}", ranks=2)
    assert done.returncode == 1, done.stdout
    assert done.stdout.count("test session starts") == 1
    assert "rank 1 failed in phase 'block'" in done.stdout
    assert "SIGKILL" in done.stdout


@pytest.mark.mpirun
def test_a_sweep_shows_its_table_and_writes_every_figure(run: Run, tmp_path: Path) -> None:
    done = run("-k", "test_sweep and broadcast")
    assert done.returncode == 6, done.stdout
    lines = done.stdout.splitlines()
    begin = next(i for i, text in enumerate(lines) if text.startswith("np 2: busbw in GB/s"))
    assert [text.split()[:2] for text in lines[begin + 2 : begin + 9]] == [
        *(["64", "KB"], ["256", "KB"], ["1", "MB"], ["4", "MB"]),
        *(["16", "MB"], ["64", "MB"], ["128", "MB"]),
    ]
    case = documents(tmp_path)["collective_overhead-broadcast-sweep-np2.json"]["outcome"]
    launches = {launch["arm"]["strategy"]: launch for launch in case["rounds"][0]["launches"]}
    assert set(launches) == {"horovod", "bare"}
    for launch in launches.values():
        assert {each["ranks"][0]["bytes"] for each in launch["series"]} == {
            2**power for power in (16, 18, 20, 22, 24, 26, 27)
        }
        assert all(min(each["ranks"][0]["seconds"]) > 0 for each in launch["series"])


@pytest.mark.mpirun
def test_a_sweep_with_wrong_numbers_is_invalid(run: Run, tmp_path: Path) -> None:
    done = run("-k", "test_sweep and broadcast", "--plant=corrupt:rank=0")
    assert done.returncode == 7, done.stdout
    case = documents(tmp_path)["collective_overhead-broadcast-sweep-np2.json"]["outcome"]
    assert "number 0 is 1 instead of 0" in case["judgement"]["reason"]


@pytest.mark.mpirun
def test_what_is_planted_is_caught(run: Run, tmp_path: Path) -> None:
    profile = tmp_path / "planted.toml"
    # Its first round is enough for these; the others have no time for a second.
    trials = '[trials]\nskip = ["alexnet_s"]\ndata = ["alexnet_s"]\nslow15 = ["alexnet_s"]\n'
    profile.write_text(PROFILE + trials)
    done = run(f"--profile={profile}", "-k", "test_planted")
    assert done.returncode == 6, done.stdout
    found = {
        name.removeprefix("trust-").removesuffix("-alexnet_s-np2.json"): case["outcome"]
        for name, case in documents(tmp_path).items()
        if name.startswith("trust-")
    }
    words = {name: case["judgement"]["verdict"] for name, case in found.items()}
    assert words == {"skip": "PASS", "data": "PASS", "slow15": "INCONCLUSIVE"}
    assert found["data"]["noticed"]["called"] == "INVALID"
    assert found["data"]["comparison"]["candidate"]["arm"]["planted"] == "data"
    assert "planted data:rank=1: INVALID" in " ".join(done.stdout.split())


def test_sizes_above_the_cores_are_marked(run: Run) -> None:
    ranks = 2 * len(os.sched_getaffinity(0))
    done = run("--collect-only", "-q", "--np", str(ranks), f"--world-sizes=1,{ranks}", ranks=ranks)
    assert done.returncode == 0, done.stdout
    assert f"world sizes 1, {ranks} (oversubscribed)" in done.stdout
    assert done.stdout.count(f"test_weak_scaling[alexnet_s-np{ranks}]") == 1


def test_pytest_alone_measures_and_collects_none_of_the_suites_own_tests() -> None:
    done = subprocess.run(
        [
            str(BIN / "pytest"),
            "--collect-only",
            "-q",
            "--np=2",
            "--oversubscribe",
            "--models=lstm_s",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    cases = [line for line in done.stdout.splitlines() if "::" in line]
    assert cases
    assert all(case.startswith("perf/") and "lstm_s" in case for case in cases)


def test_networks_of_several_options_are_added_up(run: Run) -> None:
    done = run("--collect-only", "-q", "--models=lstm_s", "--models=vgg_16_s", "-k", "weak_scaling")
    found = re.findall(r"test_weak_scaling\[(\w+)-np2\]", done.stdout)
    assert found == ["lstm_s", "vgg_16_s"]


def test_a_question_that_is_not_asked_has_no_case(run: Run, tmp_path: Path) -> None:
    done = run("--collect-only", "-q", "--world-sizes=1")
    assert done.returncode == 0, done.stdout
    cases = [line for line in done.stdout.splitlines() if "::" in line]
    assert sorted(case.partition("::")[2] for case in cases) == [
        "test_memory[alexnet_s-np1]",
        "test_parity[alexnet_s-np1]",
        "test_recipe[bf16-alexnet_s-np1]",
        "test_recipe[rate-alexnet_s-np1]",
        "test_startup[broadcast-alexnet_s-np1]",
        "test_startup[first_step-alexnet_s-np1]",
        "test_startup[init-alexnet_s-np1]",
        "test_startup[trace-alexnet_s-np1]",
        "test_horovod_overhead[alexnet_s-np1]",
    ]
    assert "9 tests collected" in done.stdout


def test_a_file_that_is_named_asks_what_the_profile_does_not(run: Run, tmp_path: Path) -> None:
    files = "perf/test_ledger.py", "tests/../perf/test_memory.py"
    done = run("--collect-only", "-q", "--profile=smoke", *files)
    cases = [line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line]
    assert "perf/test_scaling.py::test_weak_scaling" in cases, "of perf/ as the profile says"
    assert "perf/test_ledger.py::test_wall_time" in cases
    assert "perf/test_memory.py::test_memory" in cases
    assert "perf/test_startup.py::test_startup" not in cases


@pytest.mark.mpirun
def test_a_stack_may_be_held_against_itself(run: Run, tmp_path: Path) -> None:
    done = run(f"--against={sys.executable}", "-k", "parity and np1")
    assert done.returncode == 6, done.stdout
    assert "nothing differs: this is a stack against itself" in done.stdout
    written = documents(tmp_path)
    case = written["parity-alexnet_s-np1.json"]["outcome"]
    arms = [case["comparison"][side]["arm"] for side in ("candidate", "reference")]
    assert [arm["stack"] for arm in arms] == ["", "against"]
    assert arms[0]["strategy"] == "mirrored"
    (measured,) = case["rounds"]
    ours, theirs = (launch["blocks"] for launch in measured["launches"])
    # One turn, and once more where other programs disturbed it.
    assert 1 <= len(ours) == len(theirs) <= 2
    assert case["judgement"]["rule"]["fail_below"] == 0.98
    session = written["session.json"]
    assert (session["against"], session["changed"]) == (sys.executable, [])


@pytest.mark.mpirun
def test_another_stack_is_measured_than_pytests_own(run: Run, tmp_path: Path) -> None:
    """An environment whose interpreter notes that it was started, and is pytest's own otherwise."""
    environment, own = tmp_path / "environment", BIN.parent
    (environment / "bin").mkdir(parents=True)
    for name in ("lib", "bin/mpirun", "etc", "share"):
        if (own / name).exists():
            (environment / name).symlink_to(own / name)
    python, started = environment / "bin" / "python", tmp_path / "started"
    python.write_text(f'#!/bin/sh\necho "$3" >> {started}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    done = run(f"--stack={python}", "-k", "weak_scaling and np2")
    assert done.returncode == 6, done.stdout
    (measured,) = documents(tmp_path)["weak_scaling-alexnet_s-np2.json"]["outcome"]["rounds"]
    assert len(measured["launches"]) == 2
    # One of one rank and one of two, for which a server forks them.
    names = [Path(line).name for line in started.read_text().split()]
    assert sorted(names) == [*["fork_stub.py"] * 3, "hvdperf.worker.fork_server"]


def test_nothing_selected_is_no_pass(run: Run) -> None:
    assert run("-k", "no_such_case").returncode == 5


def test_a_dry_run_lists_the_arms_and_starts_none(run: Run, tmp_path: Path) -> None:
    done = run("--dry-run")
    assert done.returncode == 0
    assert "alexnet_s horovod@2" in done.stdout
    assert documents(tmp_path) == {}


BAD_INPUT = (
    (["--data-dir=/no/such/place"], "--data-dir: /no/such/place"),
    (["--models=vgg_17"], "unknown network 'vgg_17'"),
    (["--profile=hourly"], "unknown profile 'hourly'"),
    (["--thresholds=pytest.ini"], "pytest.ini:"),
    (["--world-sizes=0"], "--world-sizes 0"),
    (["--world-sizes=64"], "--world-sizes 64"),
    (["--np=0"], "--np 0: a session needs one slot at least"),
    (["--np=-1"], "--np -1: a session needs one slot at least"),
    (["--batch-size=0"], "--batch-size 0"),
    (["--plant=tickle"], "unknown fault 'tickle'"),
    (["--plant=slow:rank=x"], "rank=x is no number; give a whole number"),
    (["--plant=kill", "--plant=hang"], "--plant: given 2 times, kill and hang"),
    (["--budget=0.01"], "--budget 0.01: is 0.6 s"),
    (["--plant=kill:rank=9"], "the ranks of this session are 0 to 1"),
    (["-n2"], "leave out -n"),
    (["--plant=kill:phase=lunch"], "it strikes in import, init, build,"),
    (["--plant=kill:phase=gradients"], "it strikes in import, init, build,"),
    (["--against=/no/such/python"], "no Python interpreter at /no/such/python"),
    (["--stack=/no/such/python"], "no Python interpreter at /no/such/python"),
    (["--baseline=/no/such/session"], "give the directory of a session"),
    (["--resume=/no/such/session"], "give the directory of a session"),
    (["--resume=tests"], "there is no session.json in it"),
    (["--results="], "--results: names no directory"),
    (["--junitxml=/proc/none/x.xml"], "--junitxml /proc/none/x.xml: cannot be written"),
    (["--benchmark-json=/proc/x.json"], "--benchmark-json /proc/x.json: cannot be written"),
    (["--benchmark-json=tests"], "--benchmark-json tests: cannot be written: Is a directory"),
)
# Of these, one for each place that finds them, since a start of mpirun takes seconds.
UNDER_MPIRUN = (
    "--data-dir=/no/such/place",
    "--np=-1",
    "--plant=kill:rank=9",
    "-n2",
    "--resume=tests",
)


@pytest.mark.parametrize(
    ("arguments", "told", "ranks"),
    [
        *((*each, 0) for each in BAD_INPUT),
        *((*each, 2) for each in BAD_INPUT if each[0][0] in UNDER_MPIRUN),
    ],
)
def test_bad_input_is_one_line_before_anything_is_launched(
    run: Run, arguments: list[str], told: str, ranks: int, tmp_path: Path
) -> None:
    done = run(*arguments, ranks=ranks)
    assert done.returncode == 4
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    assert len(lines) == 1
    assert told in lines[0]
    assert "Traceback" not in done.stderr + done.stdout
    assert documents(tmp_path) == {}


def test_sessions_that_srun_starts_side_by_side_are_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    done = run("--collect-only")
    assert done.returncode == 4
    (line,) = (text for text in done.stderr.splitlines() if text.startswith("ERROR"))
    assert line.endswith("start one in the allocation with mpirun -np 4")


def test_more_slots_than_cores_must_be_asked_for(tmp_path: Path) -> None:
    done = subprocess.run(
        command(["perf/", "--np=999"], 0), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 4
    assert "--oversubscribe" in done.stderr


# mpirun kills its ranks a second after it has told them to end: the report is written by then.
@pytest.mark.mpirun
@pytest.mark.parametrize(
    ("ranks", "how"),
    [(0, signal.SIGINT), (2, signal.SIGINT), (0, signal.SIGHUP), (0, signal.SIGTERM)],
)
def test_an_interrupted_session_still_reports_and_leaves_nothing(
    options: list[str], ranks: int, how: signal.Signals, tmp_path: Path
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {**rank_environment(sys.executable), "TMPDIR": str(temporary)}
    environment.setdefault("OPAL_PREFIX", str(BIN.parent))
    process = subprocess.Popen(
        command(["perf/", *options, "-k", "efficiency", "--plant=hang:rank=1"], ranks),
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell that runs the tests in the background has them, and their children, ignore it.
        preexec_fn=lambda: signal.signal(how, signal.SIG_DFL),
    )
    workers: list[int] = []
    deadline = time.monotonic() + 60
    while len(workers) < 2 and time.monotonic() < deadline:
        workers = workers_below(process.pid)
        time.sleep(0.2)
    assert len(workers) == 2
    process.send_signal(how)
    output, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in output
    assert "hvdperf:" in output, "no summary was written"
    assert "exit status 2: interrupted" in output
    assert "Benchmark" not in output, "there was nothing to record"
    assert documents(tmp_path)["session.json"]["exit_status"] == 2
    deadline = time.monotonic() + 10
    while any(map(is_running, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(is_running, workers))
    if ranks == 0:  # else mpirun may have killed them before they were done
        assert list(temporary.glob("hvdperf-*")) == []


# Before a terminal -----------------------------------------------------------------------------

LIVE_LINE = re.compile(rb"\r\[ *[\d.]+ s\] ([^\r\n]*)\x1b\[K")


def without_figures(lines: Sequence[str]) -> list[str]:
    """As two sessions have them in common: not what other programs did meanwhile."""
    ends = [i for i, line in enumerate(lines) if " min, " in line]
    begins = [i for i, line in enumerate(lines) if line.startswith("INCONCLUSIVE ")]
    if begins:
        lines = [*lines[: begins[0]], *lines[ends[-1] :]]
    texts = [re.sub(r"[\d.]+", "0", line.removeprefix("collecting ... ")) for line in lines]
    return [re.sub(r"([ =-])\1+", r"\1", re.sub(r"0T0Z-0", "0", text)).strip() for text in texts]


def live_lines(there: Terminal) -> list[str]:
    """All that have been shown, without the time."""
    return [text.decode() for text in LIVE_LINE.findall(there.output)]


@pytest.mark.mpirun
def test_a_terminal_shows_a_live_line_and_colours_and_otherwise_the_same(
    run: Run, sit_before: Callable[..., Terminal]
) -> None:
    # Of one arm: several start in an order that is drawn.
    there = sit_before("-k", "efficiency")
    assert there.end() == 6
    # A budget of a second is over before the ranks have started.
    assert "alexnet_s  round 1 of 8: start horovod@2" in live_lines(there)
    assert b"\x1b[33mINCONCLUSIVE\x1b[0m" in there.output
    piped = run("-k", "efficiency")
    assert "\x1b" not in piped.stdout + piped.stderr
    assert without_figures(there.shown()) == without_figures(piped.stdout.split("\n"))


@pytest.mark.mpirun
def test_the_terminal_of_a_rank_is_that_of_its_mpirun(
    run: Run, sit_before: Callable[..., Terminal]
) -> None:
    there = sit_before("-k", "parity and np1", ranks=2)
    assert there.end() == 6
    assert any(text.startswith("alexnet_s  round 1 of 8: start ") for text in live_lines(there))
    said = [line for line in there.shown() if "round 1 of 8" in line]
    assert len(said) == 1, "the line of progress, and nothing else"
    piped = run("-k", "parity and np1", ranks=2)
    assert "round 1 of 8" in piped.stdout
    assert "\x1b" not in piped.stdout + piped.stderr


@pytest.mark.mpirun
@pytest.mark.parametrize(
    "arguments", [["--color=no"], ["-q"], ["-p", "no:terminal"]], ids=lambda given: given[-1]
)
def test_who_does_not_want_a_live_line_has_none(
    sit_before: Callable[..., Terminal], tmp_path: Path, arguments: list[str]
) -> None:
    there = sit_before("-k", "parity and np1", *arguments)
    assert there.end() == 6
    assert b"\x1b[K" not in there.output
    assert "parity-alexnet_s-np1.json" in documents(tmp_path)


@pytest.mark.mpirun
@pytest.mark.parametrize("capture", ["fd", "sys", "no"])
def test_ctrl_c_at_a_terminal_leaves_no_live_line_and_a_report(
    sit_before: Callable[..., Terminal], tmp_path: Path, capture: str
) -> None:
    junit = tmp_path / "junit.xml"
    there = sit_before("-k", "efficiency", f"--capture={capture}", f"--junitxml={junit}")
    # Once for good, and twice in a line that is rewritten.
    there.wait_for(b"round 1 of 8", times=3)
    there.press(b"\x03")
    assert there.end() == 2
    lines = there.shown()
    at = [number for number, line in enumerate(lines) if "round 1 of 8" in line]
    assert len(at) == 1, "the line of progress, and nothing else"
    assert any("KeyboardInterrupt" in line for line in lines)
    assert any("hvdperf: nothing measured" in line for line in lines)
    assert "round 1" not in junit.read_text()


@pytest.mark.mpirun
def test_ctrl_c_while_the_page_is_written_loses_only_the_page(
    sit_before: Callable[..., Terminal], tmp_path: Path
) -> None:
    there = sit_before("-k", "parity and np1")
    there.wait_for(b"results: ")
    deadline = time.monotonic() + 10
    while not is_written(tmp_path):
        assert time.monotonic() < deadline, there.output
    there.press(b"\x03")
    assert there.end() == 6
    lines = there.shown()
    assert not any("KeyboardInterrupt" in line or "Traceback" in line for line in lines)
    (told,) = (line for line in lines if "no report: interrupted; to write it: " in line)
    command = told.partition("to write it: ")[2].split()
    assert command[0] == "hvdperf"
    subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=True)
    assert any("exit status 6: INCONCLUSIVE" in line for line in lines)
    assert documents(tmp_path)["session.json"]["exit_status"] == 6
    assert list((tmp_path / "results" / "report").glob("*.html"))


def is_written(results: Path) -> bool:
    """Return whether a process writes the page of a session below this directory."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_text().split("\0")
        except OSError:
            continue  # it has ended
        if command[2:4] == ["hvdperf", "report"] and command[4].startswith(str(results)):
            return True
    return False


@pytest.mark.mpirun
def test_a_terminal_that_is_closed_leaves_nothing(
    sit_before: Callable[..., Terminal], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    there = sit_before("-k", "efficiency", "--plant=hang:rank=1")
    there.wait_for(b"round 1 of 8", times=3)
    assert list(temporary.glob("hvdperf-*"))
    there.close()
    assert documents(tmp_path)["session.json"]["exit_status"] == 2
    assert list(temporary.glob("hvdperf-*")) == []


@pytest.mark.mpirun
def test_a_killed_session_goes_on_where_it_was(
    run: Run, options: list[str], tmp_path: Path
) -> None:
    """Two workloads have three rounds each; then every one is on disk before the next begins."""
    two_workloads = ["-k", "efficiency or (test_sweep and broadcast)"]
    process = subprocess.Popen(
        command(["perf/", *options, *two_workloads, "--budget=3"], 0),
        cwd=ROOT,
        env=rank_environment(sys.executable),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    undecided = "collective_overhead-broadcast-sweep-np2.json"
    deadline = time.monotonic() + 150
    while undecided not in documents(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
    before = documents(tmp_path)
    assert before.keys() == {undecided, "session.json"}, "it was killed too late"
    assert before["session.json"]["exit_status"] is None
    recorded = before[undecided]["outcome"]["rounds"]
    assert len(recorded) == 3
    (directory,) = (tmp_path / "results" / "runs").iterdir()
    refused = run(*two_workloads, f"--resume={directory}", "--batch-size=16")
    assert refused.returncode == 4
    assert "batch: 8 -> 16" in refused.stderr
    resumed = run(*two_workloads, f"--resume={directory}", "--budget=0.4")
    after = documents(tmp_path)
    assert after.keys() == {*before, "communication-alexnet_s-np2.json"}
    # The other workload has its three rounds first.
    assert len(after["communication-alexnet_s-np2.json"]["outcome"]["rounds"]) >= 1
    assert after[undecided]["outcome"]["rounds"][:3] == recorded
    session = after["session.json"]
    assert session["exit_status"] == resumed.returncode == 6, resumed.stdout
    assert session["taken_over"] == ["collective_overhead[broadcast-sweep-np2]"]
    assert len(session["resumed_at"]) == 1
    assert session["elapsed_seconds"] > before["session.json"]["elapsed_seconds"]
    assert "np 2: busbw in GB/s" in resumed.stdout


@pytest.mark.parametrize("how", ["a file", "read-only"])
def test_results_that_cannot_be_written_are_one_line_before_anything_is_launched(
    run: Run, tmp_path: Path, how: str
) -> None:
    with small_disk(tmp_path / "disk") as disk:
        results = disk / "results"
        if how == "a file":
            results.write_text("mine")
        make_read_only(disk)
        done = run("-k", "parity", f"--results={results}")
    assert done.returncode == 4
    (line,) = (text for text in done.stderr.splitlines() if text.startswith("ERROR"))
    assert "no results can be written to" in line
    assert "Traceback" not in done.stderr + done.stdout
    assert "round 1" not in done.stdout


@pytest.mark.mpirun
def test_a_disk_that_fills_up_is_told_and_no_success(run: Run, tmp_path: Path) -> None:
    # Room for the session's documents, and not for that of a sweep.
    with small_disk(tmp_path / "disk", "20k") as disk:
        done = run("-k", "test_sweep and broadcast", f"--results={disk}")
        left = sorted(path.name for path in disk.glob("runs/*/*"))
    name = "collective_overhead[broadcast-sweep-np2]"
    assert f"NOT WRITTEN {name}: " in done.stdout
    assert "No space left on device" in done.stdout
    assert done.returncode == 6
    assert any(text.startswith("horovod_overhead/bc") for text in done.stdout.splitlines())
    assert "Traceback" not in done.stderr + done.stdout
    assert left == ["session.json", "summary.json"]


def workers_below(pid: int) -> list[int]:
    """Ranks, fresh or forked, among the descendants of a process."""
    found, pending = [], [pid]
    while pending:
        parent = pending.pop()
        try:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
            name = Path(f"/proc/{parent}/comm").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if name.startswith("hvd-rank"):
            found.append(parent)
        pending += map(int, children)
    return found


@pytest.mark.mpirun
def test_an_idle_slot_uses_less_than_a_hundredth_of_a_core() -> None:
    environment = rank_environment(sys.executable)
    environment.setdefault("OPAL_PREFIX", str(BIN.parent))
    process = subprocess.Popen(
        command(["tests/support/sleeping_case.py", "-q"], 2),
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        time.sleep(4)
        slot = max(int(pid) for pid in children_of(process.pid))
        rank = Path(f"/proc/{slot}/environ").read_bytes()
        assert b"OMPI_COMM_WORLD_RANK=1" in rank
        before, began = cpu_seconds(slot), time.monotonic()
        time.sleep(3)
        share = (cpu_seconds(slot) - before) / (time.monotonic() - began)
    finally:
        process.wait(60)
    assert process.returncode == 0
    assert share < 0.01


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def cpu_seconds(pid: int) -> float:
    """In nanoseconds as the scheduler counts them, of all threads."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        total += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
    return total / 1e9
