"""Bisection over releases, and the comparisons that it rests on; and the version matrix, which has
no silent hole."""

from __future__ import annotations

import math
import os
import re
import signal
import sys
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci import build_horovod as build
from hvdperf.errors import UserError
from hvdperf.paths import ROOT
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.questions import against, parity, weak_scaling
from hvdperf.programs import run
from hvdperf.records.archive import Archive, read_session
from hvdperf.records.outcome import Failure, Outcome
from hvdperf.timeline import history, stacks
from hvdperf.timeline.history import Axis, RawResult, order, read_history
from hvdperf.timeline.stacks import (
    Answer,
    BisectRequest,
    NotBuilt,
    bisect,
    bisect_releases,
    conclusion,
    fill,
    measure,
    missing,
    result_of,
)
from hvdperf.verdict import Floor, Verdict, judge
from tests.support.histories import raw_result
from tests.support.reports import session_of
from tests.support.rounds import WORKLOAD, outcome

CHANGES = st.sampled_from([Answer.SLOWER, Answer.FASTER])


class Judge:
    """Answers about releases r0, r1, ... of which one brings a change, and counts the questions."""

    def __init__(self, step: int, change: Answer, without: Collection[int] = ()) -> None:
        self.step, self.change, self.without = step, change, without
        self.asked: list[tuple[str, str]] = []

    def __call__(self, older: str, newer: str) -> Answer:
        self.asked.append((older, newer))
        place = int(newer[1:])
        if place in self.without:
            return Answer.UNDECIDED
        return self.change if place >= self.step else Answer.SAME


def names(count: int) -> list[str]:
    return [f"r{place}" for place in range(count)]


@given(st.data())
def test_one_step_is_found_by_halving_round_what_gives_no_answer(data):
    count = data.draw(st.integers(2, 200))
    step = data.draw(st.integers(1, count - 1))
    change = data.draw(CHANGES)
    places = st.integers(1, max(1, count - 2))
    without = data.draw(st.sets(places, max_size=(count > 2) * 9))
    judge = Judge(step, change, without)
    found = bisect(names(count), judge)
    low, high = int(found.unchanged[1:]), int(found.changed[1:])
    assert low < step <= high
    assert found.answer is change
    # Whatever lies between has been asked about: no release is left out, and none is guessed.
    assert set(range(low + 1, high)) <= without
    assert list(found.unknown) == names(high)[low + 1 :]
    assert {older for older, _ in judge.asked} == {"r0"}, "no error adds up"
    assert len(judge.asked) == len(set(judge.asked))
    assert len(judge.asked) <= math.ceil(math.log2(count)) + 1 + len(without)


@pytest.mark.parametrize("without", [(), (8,)])
def test_where_the_ends_do_not_differ_nothing_is_searched(without: Collection[int]) -> None:
    judge = Judge(9, Answer.SLOWER, without)
    found = bisect(names(9), judge)
    assert judge.asked == [("r0", "r8")]
    assert found.answer is (Answer.UNDECIDED if without else Answer.SAME)
    assert "no change" in conclusion(found)


def test_the_conclusion_says_what_is_not_known():
    said = conclusion(bisect(names(6), Judge(3, Answer.SLOWER, (2, 3))))
    assert said.startswith("slower since r4 or a release between r1 and r4; which one is unknown")
    assert said.endswith("undecided: r2, r3")


RULE = Floor(0.98, 0.95)
# Of the rounds of a session, in a standard deviation of 0.8 %.
NOISE = (-0.012, -0.008, -0.004, 0.0, 0.002, 0.004, 0.008, 0.012)
ASKED = BisectRequest("2.15.1", "2.18.1", "resnet_50_s", 2)


def compared(comparison: Comparison) -> Comparison:
    made = against(comparison)
    assert made is not None
    return made


WEAK = compared(weak_scaling(WORKLOAD, 2))


def measured(ratio: float, comparison: Comparison = WEAK, times_noise: float = 1.0) -> Outcome:
    """As the suite judges it."""
    logs = [math.log(ratio) + times_noise * noise for noise in NOISE]
    made: Outcome = outcome(comparison, list(map(math.exp, logs)))
    return replace(made, judgement=judge(logs, RULE))


def session(directory: Path, *outcomes: Outcome) -> Archive:
    return read_session(session_of(directory, *outcomes, slots=4, per_node=4))


@pytest.mark.parametrize(
    ("ratio", "times_noise", "answer"),
    [
        (0.80, 1, Answer.SLOWER),
        (0.96, 1, Answer.SLOWER),
        (0.995, 1, Answer.SAME),
        # Surely slower, or faster, by less than a verdict is about: a part of a change, maybe.
        (0.985, 1, Answer.UNDECIDED),
        (1.015, 1, Answer.UNDECIDED),
        (1.06, 1, Answer.FASTER),
        (1.00, 8, Answer.UNDECIDED),
        (0.96, 5, Answer.UNDECIDED),
        # Surely no regression, and maybe 5 % faster: not the same.
        (1.04, 3, Answer.UNDECIDED),
    ],
)
def test_a_verdict_is_an_answer_in_both_directions(tmp_path, ratio, times_noise, answer):
    found = result_of(session(tmp_path, measured(ratio, times_noise=times_noise)), ASKED)
    assert found[0] is answer
    assert found[1] is not None
    assert found[1].estimate == pytest.approx(ratio, rel=1e-3)


def test_the_case_is_found_among_others(tmp_path):
    vgg = replace(WORKLOAD, model="vgg_16_s")
    archive = session(
        tmp_path,
        measured(0.5, compared(parity(WORKLOAD, 2))),
        measured(0.6, compared(weak_scaling(WORKLOAD, 4))),
        measured(0.7, compared(weak_scaling(vgg, 2))),
        measured(1.0),
    )
    assert result_of(archive, ASKED)[0] is Answer.SAME
    assert result_of(archive, replace(ASKED, np=4))[0] is Answer.SLOWER


@pytest.mark.parametrize(
    ("verdict", "has_failed"),
    [(Verdict.INVALID, False), (Verdict.INFO, False), (Verdict.FAIL, True)],
)
def test_what_was_not_measured_soundly_is_undecided_and_says_why(tmp_path, verdict, has_failed):
    made = measured(0.9)
    failure = Failure(WEAK.candidate.arm.name, 1, "first step", "it broke", [])
    judgement = replace(made.judgement, verdict=verdict, reason="other weights")
    made = replace(made, judgement=judgement, failure=failure if has_failed else None)
    found = result_of(session(tmp_path, made), ASKED)
    assert (found[0], found[2]) == (Answer.UNDECIDED, "other weights")


def test_a_session_without_the_case_is_one_line(tmp_path):
    # Weak scaling as such holds no stack against another.
    archive = session(tmp_path, outcome(weak_scaling(WORKLOAD, 2), [0.8] * 6))
    with pytest.raises(
        UserError, match="no case compares resnet_50_s at 2 replicas with"
    ) as caught:
        result_of(archive, ASKED)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("ends", "changed", "said"),
    [
        (("2.15.1", "3.0.0"), {}, "--to 3.0.0: known releases of tensorflow are 2.12.0"),
        (("0.28.1", "2.18.1"), {}, "--from 0.28.1: known releases of tensorflow"),
        (("2.18.1", "2.15.1"), {}, "the older release comes first"),
        (("2.15.1", "2.18.1"), {"at": "2.15.1"}, "--at 2.15.1: known releases of horovod"),
        (("2.15.1", "2.18.1"), {"model": "vgg_17"}, "vgg_17"),
        (("2.15.1", "2.18.1"), {"np": 999}, "999: this session has"),
        (("2.15.1", "2.18.1"), {"budget_minutes": -1.0}, "--budget -1"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_built(ends, changed, said, monkeypatch):
    monkeypatch.setattr(stacks, "build", lambda *_: pytest.fail("something was built"))
    with pytest.raises(UserError) as caught:
        bisect_releases(replace(ASKED, from_=ends[0], to=ends[1], **changed))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


SPEEDS = {"2.15.1": 1.0, "2.16.2": 1.0, "2.17.0": 0.9, "2.17.1": 0.9, "2.18.1": 0.9}


@pytest.fixture
def stand_ins(tmp_path, monkeypatch):
    """Stacks that are built at once, and have the speeds of SPEEDS; the others cannot be built."""

    def build(horovod: str, tensorflow: str) -> Path:
        assert horovod == "0.28.1"
        if tensorflow not in SPEEDS:
            raise NotBuilt(f"no wheel of {tensorflow}")
        return Path(tensorflow)

    def side_by_side(request: BisectRequest, candidate: Path, reference: Path, place: Path):
        ratio = SPEEDS[candidate.name] / SPEEDS[reference.name]
        return result_of(session(place, measured(ratio)), request)

    monkeypatch.setattr(history, "GENERATED", tmp_path)
    monkeypatch.setattr(stacks, "build", build)
    monkeypatch.setattr(stacks, "side_by_side", side_by_side)


@pytest.mark.usefixtures("stand_ins")
def test_every_step_is_told_and_its_session_kept(tmp_path, capsys):
    assert bisect_releases(ASKED) == 0
    said = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in said if "/" not in line)
    assert said[-1] == "2.17.0 is the release that is slower; 2.16.2, the one before, is not"
    (step,) = (line for line in said if line.startswith("2.15.1 -> 2.18.1: "))
    assert step.startswith("2.15.1 -> 2.18.1: 0.900 [0.89")
    assert step.endswith(" slower")
    (kept,) = (tmp_path / "bisect").iterdir()
    for directory in kept.iterdir():
        (one,) = (directory / "runs").iterdir()
        assert len(read_session(one).cases) == 1


@pytest.mark.usefixtures("stand_ins")
def test_what_cannot_be_built_is_told_with_its_reason(capsys):
    assert bisect_releases(replace(ASKED, from_="2.12.0", to="2.15.1")) == 1
    said = capsys.readouterr().out.splitlines()
    assert "2.12.0 -> 2.15.1: undecided (no wheel of 2.12.0)" in said
    assert said[-1] == "2.15.1 compared with 2.12.0 is undecided, so no change can be found"


def test_a_session_of_two_stacks_is_run_and_read(tmp_path, monkeypatch):
    """A stack against itself, of which no ranks start."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p tests.support.made_up_ranks")
    monkeypatch.setenv("MADE_UP_SECONDS", "0.05")
    own = Path(sys.executable)
    asked = replace(ASKED, model="alexnet_s", np=1, budget_minutes=0.1)
    found = stacks.side_by_side(asked, own, own, tmp_path)
    assert found[0] is Answer.SAME
    assert found[1] is not None
    assert found[1].estimate == pytest.approx(1.0)
    (kept,) = (tmp_path / "runs").iterdir()
    assert [case.name for case in read_session(kept).cases] == ["weak_scaling[alexnet_s-np1]"]


# The matrix ------------------------------------------------------------------------------------

MEASURED = raw_result(stacks.HOROVOD, "2.18.1")
OLDER = raw_result("0.28.0", "2.17.1")


def test_every_tensorflow_without_a_result_of_this_machine_is_missing():
    missing_here = missing([MEASURED, OLDER], MEASURED.machine)
    assert missing_here == [each for each in stacks.TENSORFLOW if each != "2.18.1"]
    assert missing([MEASURED, OLDER], None) == missing_here
    assert missing([MEASURED, OLDER], "another") == [*stacks.TENSORFLOW]


@pytest.fixture
def no_builds(monkeypatch) -> list[str]:
    """Nothing is built or measured; what would have been, in order."""
    tried: list[str] = []

    def build(horovod: str, tensorflow: str) -> Path:
        tried.append(f"{horovod} {tensorflow}")
        if tensorflow == "2.17.1":
            raise NotBuilt("no such header")
        return Path(f"{horovod}-{tensorflow}")

    def measure(interpreter: Path, quiet: bool) -> RawResult:
        horovod, _, tensorflow = interpreter.name.partition("-")
        return raw_result(horovod, tensorflow, number=len(tried))

    monkeypatch.setattr(stacks, "build", build)
    monkeypatch.setattr(stacks, "measure", measure)
    return tried


def test_what_is_missing_is_filled_or_told(tmp_path, no_builds):
    said: list[str] = []
    fill(["2.16.2", "2.17.1", "2.20.0"], said.append, tmp_path)
    assert no_builds == ["0.28.1 2.16.2", "0.28.1 2.17.1", "0.28.1 2.20.0"]
    results, refused = read_history(tmp_path)
    assert refused == []
    assert [result.fingerprint["tensorflow"] for result in results] == ["2.16.2", "2.20.0"]
    assert said[:3] == [
        "[1 of 3] Horovod 0.28.1, TensorFlow 2.16.2",
        "[2 of 3] Horovod 0.28.1, TensorFlow 2.17.1",
        "  cannot be built: no such header",
    ]


def test_an_environment_with_other_versions_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(stacks, "build", lambda *_: Path("x"))
    monkeypatch.setattr(stacks, "measure", lambda *_, **__: OLDER)
    with pytest.raises(UserError, match=r"holds Horovod 0\.28\.0"):
        fill(["2.17.1"], lambda _: None, tmp_path)
    assert read_history(tmp_path) == ([], [])


GCC = """\
  [ 10%] Building CXX object third_party/gloo/CMakeFiles/gloo.dir/types.cc.o
  /tmp/x/types.h:31:42: error: 'uint8_t' does not name a type
  /tmp/x/types.h:32:42: error: 'uint16_t' does not name a type
  error: subprocess-exited-with-error
"""


def test_the_reason_is_the_first_error():
    assert build.reason_of(GCC) == "/tmp/x/types.h:31:42: error: 'uint8_t' does not name a type"
    place = "/tmp/pip-wheel-g6gcrnwc/horovod_7637bcb1133847e586721ac5bd9a9ad5/"
    assert build.reason_of(f"{place}horovod/x.cc:1:2: error: no y") == (
        "horovod/x.cc:1:2: error: no y"
    )
    header = "/home/me/.venv/lib/python3.11/site-packages/tensorflow/include/y.h"
    assert build.reason_of(f"{header}:25:10: fatal error: z.h: No such file") == (
        "tensorflow/include/y.h:25:10: fatal error: z.h: No such file"
    )
    assert build.reason_of("one\ntwo\n") == "two"
    assert build.reason_of("") == "nothing was printed"
    assert len(build.reason_of("error: " + "x" * 1000)) == 240


def test_a_version_is_taken_from_a_commit_of_the_release_repository(tmp_path):
    (tmp_path / "release.txt").write_text("horovod==0.28.0\n")
    assert build.version_of(str(tmp_path / "release.txt")) == "0.28.0"
    assert build.version_of("0.27.0") == "0.27.0"


def test_quirks_are_of_releases_that_there_are():
    assert set(build.HOROVOD_QUIRKS) <= set(order(Axis.HOROVOD))
    assert set(build.TENSORFLOW_QUIRKS) <= set(order(Axis.TENSORFLOW))


def test_a_quirk_of_horovod_and_one_of_tensorflow_are_applied_together(monkeypatch):
    monkeypatch.setenv("CXXFLAGS", "-O1")
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", "/mine")
    of_both = build.settings("0.28.0", "2.21.0")["CXXFLAGS"].split(" -include ")
    assert of_both == [
        *("-O1", "stdexcept", "string"),
        *("gloo_before_0_28_1.h", "xla_since_tensorflow_2_19.h"),
    ]
    assert build.settings("0.28.1", "2.18.1") == {
        "CXXFLAGS": "-O1 -include stdexcept -include string",
        "CPLUS_INCLUDE_PATH": f"/mine:{ROOT / 'ci' / 'quirks'}",
    }


XLA_KERNEL = (
    "#ifndef TENSORFLOW_COMPILER_TF2XLA_XLA_OP_KERNEL_H_\n#include <no/such/header.h>\n#endif\n"
)


@pytest.mark.parametrize(("macros", "compiles"), [([], True), (["-DHAVE_GPU=1"], False)])
def test_headers_of_xla_are_left_out_without_gpus(tmp_path, monkeypatch, macros, compiles):
    header = tmp_path / "tensorflow" / "compiler" / "tf2xla" / "xla_op_kernel.h"
    header.parent.mkdir(parents=True)
    header.write_text(XLA_KERNEL)
    source = tmp_path / "xla_mpi_ops.cc"
    source.write_text(
        '#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"\n'
        '#include "tensorflow/compiler/xla/client/xla_builder.h"\n'
        'std::string said() { throw std::runtime_error(""); }\n'
    )
    variables = build.settings("0.28.1", "2.21.0")
    command = ["g++", "-std=c++17", "-fsyntax-only", *variables["CXXFLAGS"].split(), *macros]
    done = run([*command, f"-isystem{tmp_path}", source], env={**os.environ, **variables})
    assert (done.status == 0) is compiles, done.errors


def test_flags_are_those_of_the_suites_own_environment():
    text = (ROOT / "pyproject.toml").read_text()
    for name, value in build.FLAGS.items():
        assert f'{name} = "{value}"' in text


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An interpreter that tells TensorFlow's version, and a pip that writes what it was asked."""
    monkeypatch.setattr(build, "LOGS", tmp_path / "logs")
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho 2.16.2\n")
    python.chmod(0o755)
    return python


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that makes pip do what a script of the shell says."""
    program = tmp_path / "pip"
    monkeypatch.setattr(sys, "executable", str(program))

    def does(script: str) -> None:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    return does


def test_what_cannot_be_compiled_is_told_with_its_first_error(
    environment, pip, tmp_path, monkeypatch
):
    pip("echo 'x.h:1:2: error: no member named y'; exit 1")
    arguments = ["build_horovod.py", "--horovod", "0.27.0", "--wheels", str(tmp_path), "--python"]
    monkeypatch.setattr(sys, "argv", [*arguments, str(environment)])
    told = "build: Horovod 0.27.0 does not compile with TensorFlow 2.16.2: x.h:1:2: error: no mem"
    with pytest.raises(SystemExit, match=re.escape(told)):
        build.main()
    pip("exit 0")
    build.main()


def test_pip_hands_out_no_wheel_of_another_tensorflow(environment, pip, tmp_path):
    pip('echo "$@ $OPAL_PREFIX"')
    log = tmp_path / "log"
    assert build.compile_wheel(str(environment), "0.28.0", "2.16.2", tmp_path / "wheels", log) == 0
    asked = log.read_text()
    options = ("--no-build-isolation", "--no-cache-dir", "--no-binary horovod", "horovod==0.28.0")
    assert [each for each in (*options, f"{environment.parent.parent}") if each not in asked] == []


def test_an_environment_without_tensorflow_is_one_line(tmp_path):
    script = ROOT / "ci" / "build_horovod.py"
    options = ["--horovod", "0.28.0", "--wheels", str(tmp_path), "--python", "/bin/false"]
    told = "build: /bin/false has no TensorFlow to compile Horovod against\n"
    assert run([sys.executable, script, *options]) == (1, "", told)


# A session of a stack ---------------------------------------------------------------------------

STACK = Path("stack/bin/python")


@pytest.fixture
def ends(tmp_path, monkeypatch):
    """Have the session end with a status, after it has written a case with a verdict."""
    monkeypatch.setattr(history, "MEASURED", tmp_path)

    def ended(status: int, verdict: Verdict) -> None:
        def run(*_: object) -> int:
            made = outcome(weak_scaling(WORKLOAD, 2), [0.9] * 6, verdict=verdict)
            session_of(tmp_path / "stack", made)
            return status

        monkeypatch.setattr("hvdperf.timeline.processes.run_to_end", run)

    return ended


@pytest.mark.parametrize(
    ("status", "verdict", "said"),
    [
        # A throughput does not depend on the verdict.
        (0, Verdict.PASS, ""),
        (1, Verdict.FAIL, ""),
        (5, Verdict.INFO, "no valid case that measured a throughput"),
        (2, Verdict.PASS, "ended with status 2"),
        (-signal.SIGKILL, Verdict.PASS, "ended with status -9"),
    ],
)
def test_a_session_that_ended_is_measured_and_what_is_none_says_why(ends, status, verdict, said):
    ends(status, verdict)
    if not said:
        assert {each.world_size for each in measure(STACK, quiet=False).results} == {1, 2}
        return
    with pytest.raises(UserError, match=f"nothing was measured of .*{said}"):
        measure(STACK, quiet=False)
