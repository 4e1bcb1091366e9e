"""The real command, on made-up lines with known steps; and what is made of one that fails."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.change_points import RELEASES, Machine, made_line
from hvdperf.errors import UserError
from hvdperf.history import otava, places
from hvdperf.history.changes import change_of
from hvdperf.history.otava import COMMAND, VERSION, Settings, change_points
from hvdperf.paths import ROOT
from tests.support.damage import FUZZ, damaged_json

INSTALL = ROOT / "ci" / "otava.sh"
QUIET = Machine(noise=0.01)
FIRST, SECOND, _, FOURTH, LAST = RELEASES

STEPS = {
    "none": {},
    "up": {RELEASES[2]: 1.10},
    "down": {RELEASES[2]: 0.92},
    "two": {SECOND: 0.90, FOURTH: 1.15},
    "first": {SECOND: 0.90},
    "last": {LAST: 0.90},
}


@pytest.mark.usefixtures("otava")
def test_steps_are_found_where_they_are_and_nowhere_else():
    lines = {name: made_line(QUIET, steps) for name, steps in STEPS.items()}
    constant = made_line(Machine(noise=0.0))
    step = made_line(Machine(noise=0.0), {RELEASES[2]: 0.95})
    short = [made_line(Machine(0.01, launches=1), releases=RELEASES[:count]) for count in (1, 2)]
    # All at once: a start of the command takes seconds.
    *found, nothing, one, two, (point,) = change_points([*lines.values(), constant, *short, step])
    for (name, line), points in zip(lines.items(), found, strict=True):
        told = {change.since: change.size for change in (change_of(line, p) for p in points)}
        expected = {release: factor - 1 for release, factor in STEPS[name].items()}
        assert told == pytest.approx(expected, abs=0.02), name
        assert all(point.version == line.points[point.index].version for point in points)
        assert all(0 <= point.p_value < Settings().largest_p for point in points)
    # Lines too short, or without noise, bring no change and no error.
    assert (nothing, one, two) == ((), (), ())
    assert (point.index, point.version) == (16, RELEASES[2])
    assert (point.mean_before, point.mean_after) == pytest.approx((500.0, 475.0))
    assert point.p_value == 0.0


@pytest.mark.usefixtures("otava")
def test_settings_are_heeded():
    line = made_line(QUIET, {RELEASES[2]: 0.92})
    assert change_points([line], Settings(smallest_size=0.12)) == [()]
    assert change_points([line], Settings(largest_p=1e-30)) == [()]


@pytest.mark.usefixtures("otava")
def test_it_writes_nowhere_else_and_heeds_no_settings_of_the_user(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BRANCH", "a-branch-of-CI")
    monkeypatch.setenv("OTAVA_CONFIG", "/no/such/file")
    (tmp_path / ".otava").mkdir()
    (tmp_path / ".otava" / "otava.yaml").write_text("tests: [")
    monkeypatch.chdir(tmp_path)
    assert len(change_points([made_line(QUIET, {LAST: 0.9})])[0]) == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".otava", "otava.yaml"]


def test_no_line_needs_no_otava():
    assert change_points([], command=Path("/no/such/otava")) == []


def refusal(command: Path) -> str:
    with pytest.raises(UserError) as caught:
        change_points([made_line(QUIET)], command=command)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def printed(**wrong: object) -> str:
    """A script that prints one change point, with something wrong in it."""
    told = {"index": 9, "mean_before": "1", "mean_after": "2", "pvalue": "0", **wrong}
    return f"echo '{json.dumps({'line0': [{'changes': [told]}]})}'"


def test_a_missing_otava_says_what_installs_it():
    assert "`make changes` installs it" in refusal(Path("/no/such/otava"))


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'ERROR: no such test' >&2; exit 1", "exit code 1: ERROR: no such test"),
        ("exit 3", "exit code 3: it printed nothing"),
        ("echo 'ERROR: Column not found' >&2", "ERROR: Column not found"),
        ("echo 'no JSON'", "it printed 'no JSON'"),
        ("echo 17", "it printed '17'"),
        ("true", "it printed results of 0 lines instead of 1"),
        ("""echo '{"line0": [{}]}'""", "a change point: KeyError: 'changes'"),
        ("""echo '{"line0": [{"changes": []}]}'""", "a change point: ValueError"),
        ("""echo '{"line0": 5}'""", "a change point: TypeError"),
        (printed(index=99), "index 99 of 40 points"),
        (printed(mean_before="nan"), "means nan and 2"),
        (printed(mean_after="0.0"), "means 1 and 0"),
        (printed(pvalue="1.5"), "p 1.5"),
    ],
)
def test_an_otava_that_fails_or_prints_something_else_is_one_line(tmp_path, script, said):
    command = tmp_path / "otava"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    assert said in refusal(command)


CHANGE = {"index": 9, "mean_before": "1", "mean_after": "2", "pvalue": "0"}


@FUZZ
@given(st.data())
def test_whatever_it_prints_is_a_change_or_one_line(data):
    told = {"line0": [{"time": 1, "changes": [{"metric": "speed", **CHANGE}]}]}
    text = damaged_json(data, json.dumps(told))
    line = made_line(QUIET)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(otava, "_run", lambda *_: text)
        try:
            (points,) = change_points([line])
        except UserError as error:
            assert "\n" not in str(error)
        else:
            assert all(0 < point.index < len(line.points) for point in points)


@pytest.mark.usefixtures("otava")
def test_what_is_installed_is_not_installed_again():
    installed = places.GENERATED / "otava" / "installed.txt"
    before = installed.stat().st_mtime_ns
    done = subprocess.run([INSTALL], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert installed.stat().st_mtime_ns == before


def test_without_the_environment_installing_says_what_to_do(tmp_path):
    shutil.copytree(INSTALL.parent, tmp_path / "ci")
    done = subprocess.run(
        [tmp_path / "ci" / INSTALL.name], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "otava: there is no .uv yet; run: make env\n"


def test_what_is_read_is_what_is_installed():
    pins = (ROOT / "ci" / "otava.txt").read_text()
    assert re.search(rf"^apache-otava=={re.escape(VERSION)}$", pins, re.MULTILINE)
    assert COMMAND.is_relative_to(ROOT / ".asv" / "otava")
