"""Whole sessions of a tiny profile, as a user starts them, and what is expected of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hvdperf.json_records import plain
from hvdperf.machine.stack import find_mpirun
from hvdperf.machine.starting import rank_environment
from hvdperf.records.archive import read_document, read_session
from hvdperf.records.documents import SUMMARY_FORMAT, Summary, file_name
from tests.support.leftovers import eventually
from tests.support.terminals import Terminal

ROOT = Path(__file__).resolve().parents[2]

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


# The fixtures of tests/session/conftest.py.
Run = Callable[..., subprocess.CompletedProcess[str]]
SitBefore = Callable[..., Terminal]
Press = Callable[..., Terminal]


SWEEP = "-k", "test_sweep and broadcast"
CASE_OF_SWEEP = "collective_overhead-broadcast-sweep-np2.json"


def command(arguments: Sequence[str], ranks: int = 0, made_up: bool = False) -> list[str]:
    """Return the command line of a session. ranks: of an outer mpirun, 0 for none. made_up: the
    session starts no ranks of its own."""
    outer = [MPIRUN, "-np", str(ranks), "--oversubscribe"] if ranks else []
    without_ranks = [sys.executable, "-m", "pytest", "-p", "tests.support.made_up_ranks"]
    return [*outer, *(without_ranks if made_up else [str(BIN / "pytest")]), *arguments]


def environment_of_sessions() -> dict[str, str]:
    environment = rank_environment(sys.executable)
    environment["PATH"] = f"{BIN}:{environment['PATH']}"
    environment.setdefault("OPAL_PREFIX", str(BIN.parent))
    return environment


def completed(
    words: Sequence[str],
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    timeout: float = 120,
    **given: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, and return it with its output. env: by default, that of sessions.
    given: more arguments of subprocess.run."""
    env = environment_of_sessions() if env is None else env
    found: Mapping[str, Any] = {"cwd": cwd, "env": env, "timeout": timeout, **given}
    return subprocess.run(words, capture_output=True, text=True, check=False, **found)


def documents(tmp_path: Path) -> dict[str, dict]:
    """Return what the session knows, without its summary, by file: cases with their rounds."""
    found = {}
    for path in (tmp_path / "results" / "runs").glob("*/session.json"):
        found[path.name] = json.loads(path.read_text())
        for case in read_session(path.parent).cases:
            found[f"{file_name(case.name)}.json"] = plain(case)
    return found


def verdicts(tmp_path: Path) -> dict[str, str]:
    """Return the verdict of each case whose document has been written, by its name."""
    return {
        name.removesuffix(".json"): found["outcome"]["judgement"]["verdict"]
        for name, found in documents(tmp_path).items()
        if "outcome" in found
    }


def case_on_two_hosts(tmp_path: Path) -> dict:
    """Return the document of the only case of a session of one round on a slot of two hosts each,
    after a check of it."""
    (case,) = [found for found in documents(tmp_path).values() if "outcome" in found]
    assert case["replicas_per_node"] == [1, 1]
    (measured,) = case["outcome"]["rounds"]
    assert max(len(launch["evidence"]) for launch in measured["launches"]) == 2
    assert case["outcome"]["judgement"]["verdict"] == "INCONCLUSIVE"
    return case


def wait_for_workers(pid: int) -> list[int]:
    """Wait until there are two ranks below a process, and return them."""
    assert eventually(lambda: len(workers_below(pid)) == 2, 60)
    return workers_below(pid)


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


def summary(tmp_path: Path) -> Summary:
    (path,) = (tmp_path / "results" / "runs").glob("*/summary.json")
    return read_document(path, Summary, SUMMARY_FORMAT)


def last_words(output: str) -> str:
    """The last line before pytest's own."""
    *_, said, _ = output.strip().splitlines()
    return said


def assert_every_figure_is_written(case: dict) -> None:
    launched = case["outcome"]["rounds"][0]["launches"]
    launches = {launch["arm"]["strategy"]: launch for launch in launched}
    assert set(launches) == {"horovod", "bare"}
    for launch in launches.values():
        assert {each["ranks"][0]["bytes"] for each in launch["work"]["series"]} == {
            2**power for power in (16, 18, 20, 22, 24, 26, 27)
        }
        assert all(min(each["ranks"][0]["seconds"]) > 0 for each in launch["work"]["series"])
