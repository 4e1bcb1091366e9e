"""Every row of tests/session/bad_input.md: the suite says what the row claims, in one line."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hvdperf.__main__ import parser
from hvdperf.cli import run as run_command
from hvdperf.errors import UserError
from hvdperf.machine.host import Machine
from hvdperf.machine.placement import local_offers
from hvdperf.plan.options import Options
from hvdperf.plan.session_plan import plan_session
from tests.support.whole_sessions import PROFILE, ROOT, Run, documents

THRESHOLDS = 'label = "x"\n[match]\ndevice = "cpu"\n[thresholds]\n'


def rows(heading: str) -> Iterator[tuple[str, str]]:
    """Yield the two cells of each row of the tables whose first column has this heading."""
    inside = False
    for line in (ROOT / "tests" / "session" / "bad_input.md").read_text().splitlines():
        if not line.startswith("| "):
            inside = inside and line.startswith("|--")
            continue
        cells = [cell.strip().strip("`").strip() for cell in line.strip("|").split(" | ")]
        if inside:
            yield cells[0], cells[1]
        inside = inside or cells[0] == heading


def says(line: str, told: str) -> bool:
    """Return whether a line holds the text of a row, in which `...` stands for anything."""
    return re.search(".*".join(map(re.escape, told.split("..."))), line) is not None


def refused(plan: Run, tmp_path: Path, told: str, *arguments: str, **environment: str) -> None:
    """Check that a dry run ends with the status of bad input and says this in one line."""
    done = plan("--dry-run", *arguments, **environment)
    assert done.returncode == 4, done.stdout
    (line,) = (text for text in done.stderr.splitlines() if text.startswith("ERROR"))
    assert says(line, told), line
    assert "usage:" not in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert documents(tmp_path) == {}


OPTIONS = [row for row in rows("input") if not row[0].startswith("hvdperf")]
COMMANDS = [row for row in rows("input") if row[0].startswith("hvdperf")]


def test_the_tables_were_read() -> None:
    assert len(OPTIONS) > 50
    assert len(COMMANDS) > 20
    assert all(len(list(rows(f"in {what}"))) >= 5 for what in ("thresholds", "a profile"))


@pytest.mark.parametrize(("words", "told"), OPTIONS)
def test_an_option(plan: Run, tmp_path: Path, words: str, told: str) -> None:
    refused(plan, tmp_path, told, *words.split())


@pytest.mark.parametrize(("variable", "told"), list(rows("in the environment")))
def test_a_variable(plan: Run, tmp_path: Path, variable: str, told: str) -> None:
    name, _, value = variable.partition("=")
    refused(plan, tmp_path, told, **{name: value})
    allowed = plan("--dry-run", f"--allow-setting={name}", **{name: value})
    assert allowed.returncode == 0, allowed.stderr
    assert f"setting {name}=" in allowed.stdout


def test_a_variable_that_switches_tuning_off_is_not_refused(plan: Run) -> None:
    assert plan("--dry-run", HOROVOD_AUTOTUNE="0").returncode == 0


def refused_plan(told: str, **options: Any) -> None:
    """Check that a session with these options cannot be planned, and that the error says this."""
    machine = Machine("host", (0, 1), cpu_model="Some CPU")
    with pytest.raises(UserError) as raised:
        plan_session(Options(**options), machine, local_offers(machine))
    assert says(str(raised.value), told), raised.value


@pytest.mark.parametrize(("line", "told"), list(rows("in a profile")))
def test_a_profile(tmp_path: Path, line: str, told: str) -> None:
    key = line.partition(" ")[0]
    top, _, sampling = PROFILE.partition("\n\n")
    kept = [text for text in top.splitlines() if not text.startswith(f"{key} ")]
    path = tmp_path / "bad.toml"
    rest = "" if key == "sampling" else f"\n{sampling}"
    path.write_text("\n".join([*kept, line, rest]))
    refused_plan(told, profile=str(path))


@pytest.mark.parametrize(("line", "told"), list(rows("in thresholds")))
def test_thresholds(tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(f"{THRESHOLDS}{line}\n")
    refused_plan(told, thresholds=str(path), dataset="synthetic", models=("alexnet_s",))


@pytest.mark.parametrize(("line", "told"), list(rows("in a file of networks")))
def test_a_file_of_networks(plan: Run, tmp_path: Path, line: str, told: str) -> None:
    path = tmp_path / "bad_networks.py"
    path.write_text(f"{line}\n")
    refused(plan, tmp_path, told, f"--workloads={path}")


@pytest.mark.parametrize(("words", "told"), COMMANDS)
def test_a_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: str, told: str
) -> None:
    monkeypatch.chdir(ROOT)
    try:
        status = run_command(parser(), command_line=shlex.split(words)[1:])
    except SystemExit as ended:
        status = int(str(ended.code))
    captured = capsys.readouterr()
    assert status == 2, captured.out
    (line,) = captured.err.splitlines()
    assert says(line, told), line


def test_the_variable_of_the_data_directory_is_named(plan: Run, tmp_path: Path) -> None:
    told = "ERROR: HVDPERF_DATA_DIR: /no/such: no such directory"
    refused(plan, tmp_path, told, HVDPERF_DATA_DIR="/no/such")


def test_thresholds_for_other_machines_are_warned_of(plan: Run, tmp_path: Path) -> None:
    path = tmp_path / "other.toml"
    path.write_text('label = "x"\n[match]\ndevice = "gpu"\ngpu_name = "no such"\n[thresholds]\n')
    done = plan("--dry-run", f"--thresholds={path}")
    assert done.returncode == 0
    assert "thresholds: other.toml: x, but its [match] is for other machines" in done.stdout


def test_a_python_without_the_environment() -> None:
    code = "import sys, pytest; sys.modules['msgspec'] = None; sys.exit(pytest.main(['perf/']))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 4
    (line,) = done.stderr.splitlines()
    assert "msgspec" in line
    assert "activate" in line
