"""The mpirun or srun that has started this process, and what its ranks tell each other."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.launch import outer
from tests.support.leftovers import eventually

VARIABLES = (
    *(each.rank for each in (*outer.LAUNCHERS, *outer.OTHERS)),
    *(each.size for each in (*outer.LAUNCHERS, *outer.OTHERS)),
    *(each.nodes for each in outer.LAUNCHERS),
    *(name for each in outer.LAUNCHERS for name in each.ids),
)
# A shell of sbatch or salloc, a task of srun, a rank of mpirun in an allocation.
BATCH = {"SLURM_PROCID": "0", "SLURM_JOB_ID": "7"}
STEP = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_ID": "1"}
TASK = {"SLURM_PROCID": "3", "SLURM_JOB_ID": "7", **STEP}
OF_MPIRUN = {"RANK": "5", "SIZE": "8", "LOCAL_SIZE": "8"}
RANK = {**TASK, **{f"OMPI_COMM_WORLD_{name}": value for name, value in OF_MPIRUN.items()}}


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The directory of the file."""
    monkeypatch.setattr(outer, "CACHE", tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def started_with(monkeypatch, cache):
    """Return a function that sets the variables of a launcher, and no others of theirs."""

    def set_all(environment: dict[str, str]) -> None:
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)

    return set_all


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({}, (0, 1, True)),
        (BATCH, (0, 1, True)),
        ({**BATCH, "SLURM_STEP_NUM_TASKS": "1"}, (0, 1, True)),
        (TASK, (3, 4, False)),
        ({**TASK, "SLURM_STEP_NUM_NODES": "1"}, (3, 4, True)),
        (RANK, (5, 8, True)),
        ({**RANK, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, (5, 8, False)),
    ],
)
def test_the_place_among_the_ranks_is_known(started_with, environment, place):
    started_with(environment)
    assert (outer.outer_rank(), outer.outer_size(), outer.started_by().on_one_host()) == place


@pytest.mark.parametrize(
    "environment",
    [
        {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2"},
        {"PMIX_RANK": "1"},
        {"JSM_NAMESPACE_RANK": "3", "JSM_NAMESPACE_SIZE": "4"},
        {**BATCH, "HOROVOD_RANK": "0", "HOROVOD_SIZE": "2"},
    ],
)
def test_several_sessions_of_another_launcher_are_refused(started_with, environment):
    started_with(environment)
    with pytest.raises(UserError) as refused:
        outer.check_launcher()
    assert all(name in str(refused.value) for name in environment if name not in BATCH)


def test_a_session_alone_or_of_a_known_launcher_is_not(started_with):
    for environment in (
        *({}, BATCH, TASK, {**RANK, "PMIX_RANK": "5"}, {**TASK, "PMI_RANK": "3", "PMI_SIZE": "4"}),
        *({"PMI_RANK": "0", "PMI_SIZE": "1"}, {"PMIX_RANK": "0"}, {"HOROVOD_SIZE": "2"}),
        {"OMPI_COMM_WORLD_SIZE": ""},
    ):
        started_with(environment)
        outer.check_launcher()


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_RANK"])
def test_a_number_that_is_none_is_named(started_with, name):
    started_with({name: "two"})
    with pytest.raises(UserError, match=rf"^{name}=two"):
        outer.check_launcher()


@pytest.mark.parametrize("environment", [TASK, RANK])
def test_ranks_find_what_rank_0_publishes_in_a_file_of_its_owner(started_with, cache, environment):
    started_with(environment)
    found: list[str] = []
    waiting = threading.Thread(target=lambda: found.append(outer.started_by().look_up()))
    waiting.start()
    outer.started_by().publish("where rank 0 is")
    waiting.join(5.0)
    assert found == ["where rank 0 is"]
    (file,) = cache.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    outer.started_by().withdraw()
    assert not list(cache.iterdir())


def test_another_step_of_the_job_has_a_file_of_its_own(started_with, monkeypatch):
    monkeypatch.setattr(outer, "JOIN_S", 0.05)
    started_with(TASK)
    outer.started_by().publish("where rank 0 is")
    started_with({**TASK, "SLURM_STEP_ID": "2"})
    with pytest.raises(UserError, match=r"rank 0 has not written .*srun-7\.2\.json within"):
        outer.started_by().look_up()
    monkeypatch.setattr(outer, "CACHE", Path("/proc/nowhere"))
    with pytest.raises(UserError, match=r"srun-7\.2\.json cannot be written"):
        outer.started_by().publish("where rank 0 is")


def test_a_directory_is_gone_after_a_process_was_killed(tmp_path):
    code = (
        "import sys, time; from hvdperf.launch.helpers import scratch_directory;"
        "print(scratch_directory('hvdperf-'), flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path.cwd())},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    directory = Path(process.stdout.readline().strip())
    (directory / "below").mkdir()
    assert directory.parent == tmp_path
    process.kill()
    process.wait()
    assert eventually(lambda: not list(tmp_path.iterdir()), 20)
