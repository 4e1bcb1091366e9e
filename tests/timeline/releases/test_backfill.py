"""The version matrix has no silent hole, what is there is not done again, and what cannot be built
is recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from ci import build_horovod as build
from hvdperf.errors import UserError
from hvdperf.paths import ROOT
from hvdperf.timeline.releases import backfill
from hvdperf.timeline.releases.backfill import (
    Combination,
    NotBuilt,
    State,
    combinations,
    fill,
    table,
)
from hvdperf.timeline.releases.raw import Axis, RawResult, order, read_history
from tests.support.histories import raw_result

HOROVOD, TENSORFLOW = ("0.28.1", "0.27.0"), ("2.16.2", "2.18.1")


def record(directory: Path, horovod: str, tensorflow: str, reason: str = "no such header") -> None:
    directory.mkdir(exist_ok=True)
    (directory / f"horovod-{horovod}-tensorflow-{tensorflow}.json").write_text(
        json.dumps({"reason": reason, "compiler": "g++ 12"})
    )


def states(
    tmp_path: Path, results: list[RawResult], machine: str | None = None
) -> list[Combination]:
    return list(combinations(results, machine, HOROVOD, TENSORFLOW, tmp_path / "not-built"))


def test_every_combination_is_told_oldest_first(tmp_path):
    record(tmp_path / "not-built", "0.27.0", "2.18.1")
    found = states(tmp_path, [raw_result("0.28.1", "2.18.1")])
    assert [(each.horovod, each.tensorflow, each.state) for each in found] == [
        ("0.27.0", "2.16.2", State.MISSING),
        ("0.27.0", "2.18.1", State.NOT_BUILT),
        ("0.28.1", "2.16.2", State.MISSING),
        ("0.28.1", "2.18.1", State.MEASURED),
    ]
    assert found[1].reason == "no such header (g++ 12)"
    of_other = states(tmp_path, [raw_result("0.28.1", "2.18.1")], "another")
    assert State.MEASURED not in {each.state for each in of_other}
    for text in ("", "{", "[]", '{"reason": 1}'):
        (tmp_path / "record.json").write_text(text)
        assert "remove the file" in backfill.reason_in(tmp_path / "record.json")


@pytest.fixture
def stand_ins(monkeypatch) -> list[str]:
    """Nothing is built or measured; what would have been, in order."""
    tried: list[str] = []

    def build(horovod: str, tensorflow: str) -> Path:
        tried.append(f"{horovod} {tensorflow}")
        if horovod == "0.27.0":
            raise NotBuilt("no such header (g++ 12)")
        return Path(f"{horovod}-{tensorflow}")

    def measure(interpreter: Path, quiet: bool) -> RawResult:
        horovod, _, tensorflow = interpreter.name.partition("-")
        return raw_result(horovod, tensorflow, number=len(tried))

    monkeypatch.setattr(backfill, "build", build)
    monkeypatch.setattr(backfill, "measure", measure)
    return tried


def test_what_is_missing_is_filled_and_nothing_else(tmp_path, stand_ins):
    said: list[str] = []
    wanted = states(tmp_path, [raw_result("0.28.1", "2.18.1")])
    done = fill(wanted, said.append, tmp_path / "history")
    assert stand_ins == ["0.27.0 2.16.2", "0.27.0 2.18.1", "0.28.1 2.16.2"]
    assert [each.state for each in done] == [
        State.NOT_BUILT,
        State.NOT_BUILT,
        State.MEASURED,
        State.MEASURED,
    ]
    results, refused = read_history(tmp_path / "history")
    assert refused == []
    assert [result.fingerprint["tensorflow"] for result in results] == ["2.16.2"]
    assert said[0] == "[1 of 4] Horovod 0.27.0, TensorFlow 2.16.2: not measured yet"
    stand_ins.clear()
    record(tmp_path / "not-built", "0.27.0", "2.18.1")
    fill(states(tmp_path, [])[1:2], said.append, tmp_path / "history")
    assert stand_ins == [], "what cannot be built is tried again only where that is asked"
    fill(states(tmp_path, [])[1:2], said.append, tmp_path / "history", again=True)
    assert stand_ins == ["0.27.0 2.18.1"]
    (tmp_path / "not-built/horovod-0.27.0-tensorflow-2.18.1.json").unlink()
    stand_ins.clear()
    fill(states(tmp_path, [*results, raw_result("0.28.1", "2.18.1")]), said.append)
    assert stand_ins == ["0.27.0 2.16.2", "0.27.0 2.18.1"]


def test_an_environment_with_other_versions_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(backfill, "build", lambda *_: Path("x"))
    monkeypatch.setattr(backfill, "measure", lambda *_, **__: raw_result("0.28.0", "2.16.2"))
    wanted = states(tmp_path, [])[2:]
    with pytest.raises(UserError, match=r"holds Horovod 0\.28\.0"):
        fill(wanted, lambda _: None, tmp_path / "history")
    assert read_history(tmp_path / "history") == ([], [])


def test_the_table_says_why_a_hole_is_there(tmp_path):
    record(tmp_path / "not-built", "0.27.0", "2.18.1")
    lines = table(states(tmp_path, [raw_result("0.28.1", "2.18.1")]))
    assert lines[0].split() == ["Horovod", "TF", "2.16.2", "TF", "2.18.1"]
    assert lines[1].split() == ["0.27.0", "missing", "-"]
    assert lines[2].split() == ["0.28.1", "missing", "measured"]
    assert "no such header" in " ".join(lines[3:])
    assert max(map(len, lines)) <= 80


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
    done = subprocess.run(
        [*command, f"-isystem{tmp_path}", str(source)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) is compiles, done.stderr


def test_flags_are_those_of_the_suites_own_environment():
    text = (ROOT / "pyproject.toml").read_text()
    for name, value in build.FLAGS.items():
        assert f'{name} = "{value}"' in text


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An interpreter that tells TensorFlow's version, and a pip that writes what it was asked."""
    monkeypatch.setattr(build, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(build, "NOT_BUILT", tmp_path / "not-built")
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho 2.16.2\n")
    python.chmod(0o755)
    return python


def test_what_cannot_be_compiled_is_recorded(environment, tmp_path, monkeypatch):
    pip = tmp_path / "pip"
    pip.write_text("#!/bin/sh\necho 'x.h:1:2: error: no member named y'\nexit 1\n")
    pip.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(pip))
    arguments = ["build_horovod.py", "--horovod", "0.27.0", "--wheels", str(tmp_path), "--python"]
    monkeypatch.setattr(sys, "argv", [*arguments, str(environment)])
    with pytest.raises(
        SystemExit, match=r"Horovod 0\.27\.0 does not compile with TensorFlow 2\.16"
    ):
        build.main()
    record = tmp_path / "not-built" / "horovod-0.27.0-tensorflow-2.16.2.json"
    document = json.loads(record.read_text())
    assert document["reason"] == "x.h:1:2: error: no member named y"
    assert document["compiler"]
    assert document["keras"] == document["python"] == "2.16.2", "as the interpreter says"
    assert date.fromisoformat(document["tried"]) >= date(2026, 11, 25)
    pip.write_text("#!/bin/sh\nexit 0\n")
    build.main()
    assert not record.exists(), "it can be compiled now"


def test_pip_hands_out_no_wheel_of_another_tensorflow(environment, tmp_path, monkeypatch):
    pip = tmp_path / "pip"
    pip.write_text('#!/bin/sh\necho "$@" > "$(dirname "$0")/asked"\necho "$OPAL_PREFIX"\n')
    pip.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(pip))
    log = tmp_path / "log"
    assert build.compile_wheel(str(environment), "0.28.0", "2.16.2", tmp_path / "wheels", log) == 0
    asked = (tmp_path / "asked").read_text()
    for wanted in (
        "--no-build-isolation",
        "--no-cache-dir",
        "--no-binary horovod",
        "horovod==0.28.0",
    ):
        assert wanted in asked
    assert str(environment.parent.parent) in log.read_text()


def test_an_environment_without_tensorflow_is_one_line(tmp_path):
    script = str(ROOT / "ci" / "build_horovod.py")
    options = ["--horovod", "0.28.0", "--wheels", str(tmp_path), "--python", "/bin/false"]
    done = subprocess.run(
        [sys.executable, script, *options], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "build: /bin/false has no TensorFlow to compile Horovod against\n"
