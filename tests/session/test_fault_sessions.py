"""How `make trust` adds sessions: what is counted as one, and how it is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench import trust
from bench.trust import read_log
from hvdperf.errors import UserError
from hvdperf.paths import ROOT
from hvdperf.plan import questions
from hvdperf.records.outcome import Attribution, Detection, Outcome
from hvdperf.timeline.processes import NO_SESSION
from hvdperf.verdict import Band, Floor, Verdict
from tests.support.rounds import WORKLOAD, outcome
from tests.support.stores import case_of, write_session

(AA,) = questions.fault_cases(WORKLOAD, 1)
QUIET = outcome(
    AA, [1.0] * 6, Floor(0.98, 0.95), Verdict.PASS, detection=Detection(Verdict.PASS, Attribution())
)
ALIKE = outcome(questions.aa(WORKLOAD, 2), [1.0] * 6, Band(0.9, 1.1))


class Sessions:
    """In place of pytest: leaves the documents of a session behind."""

    def __init__(self, root: Path) -> None:
        self.log = root / "trust" / "sessions.jsonl"
        self.status = 0
        self.said: Outcome = QUIET
        self.is_over = True

    def __call__(self, command: Sequence[str], output: object) -> int:
        (results,) = [a.split("=")[1] for a in command if a.startswith("--results=")]
        case = case_of(self.said, session="20261122T000000Z-1")
        ending = {} if self.is_over else {"exit_status": None}
        write_session(Path(results) / "runs", case, **ending)
        return self.status


@pytest.fixture
def sessions(tmp_path, monkeypatch):
    made = Sessions(tmp_path)
    monkeypatch.setattr("hvdperf.timeline.processes.run_to_end", made)
    monkeypatch.setattr(trust, "LOG", made.log)
    return made


@pytest.mark.parametrize("status", [0, 1, 6, 7])
def test_a_session_counts_whatever_its_verdicts_were(sessions, status):
    sessions.status = status
    trust.add_session("test_faults")
    (entry,) = read_log(sessions.log)
    assert [tried.trial for tried in entry.tried] == ["aa"]


@pytest.mark.parametrize("status", [*NO_SESSION, -signal.SIGKILL, -signal.SIGSEGV])
def test_one_that_was_interrupted_or_killed_does_not(sessions, status):
    sessions.status = status
    with pytest.raises(UserError, match=rf"not counted: pytest ended with status {status}"):
        trust.add_session("test_faults")
    assert read_log(sessions.log) == []


def test_nor_one_that_has_not_come_to_its_end(sessions):
    sessions.is_over = False
    with pytest.raises(UserError, match=r"was killed.*; it is not counted"):
        trust.add_session("test_faults")
    assert read_log(sessions.log) == []


def test_where_no_fault_is_injected_the_user_is_told(sessions):
    sessions.said = ALIKE
    with pytest.raises(UserError, match="--only test_aa: no fault was injected"):
        trust.add_session("test_aa")


def test_a_log_that_cannot_be_written_is_a_line_also_before_anything_is_measured(sessions):
    trust.append(sessions.log)
    assert read_log(sessions.log) == []
    sessions.log.unlink()
    sessions.log.mkdir()
    with pytest.raises(UserError, match=r"sessions\.jsonl cannot be written: Is a directory"):
        trust.append(sessions.log)
    with pytest.raises(UserError, match=r"cannot be written: Is a directory: session .*-1 is not"):
        trust.add_session("test_faults")


# It takes longer to end than subprocess.run leaves whoever it runs.
WAITS = """
trap 'echo ending; sleep 0.6; echo ended; exit 7' INT TERM
echo runs
while :; do sleep 0.05; done
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_ends_it_waits_for_pytest_to_end(number):
    code = "import sys; from hvdperf.timeline.processes import run_to_end; "
    code += f"sys.exit(run_to_end(['sh', '-c', {WAITS!r}]))"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "runs\n"
    # A terminal tells all of its foreground; who ends one process, that one.
    send = os.killpg if number == signal.SIGINT else os.kill
    send(process.pid, number)
    told, _ = process.communicate(timeout=60)
    assert (told, process.returncode) == ("ending\nended\n", 7)
