"""Sessions on two hosts under a real Slurm, and the batch script of ci/slurm/."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from hvdperf.timeline.nights.night import Night, read_night, read_nights
from tests.support import leftovers, slurm, whole_sessions

mpirun, long = pytest.mark.mpirun, pytest.mark.long
SCRIPT = "ci/slurm/nightly.sbatch"
# Two networks and time for many rounds. The first one fails at once, and so is decided early.
TWO_NETWORKS = whole_sessions.PROFILE.replace('["alexnet_s"]', '["alexnet_s", "vgg_16_s"]').replace(
    "budget_s = 1\n", "budget_s = 600\n"
)
# A round is a launch of one rank on each host.
ONE_LAUNCH = "-k", "efficiency"
FIRST, SECOND = "communication-alexnet_s-np2", "communication-vgg_16_s-np2"
FIRST_FAILS = "--inject=exit:rank=1,phase=import,model=alexnet_s"
# Seconds that a condition may take, on a machine that others use, too.
PATIENCE_S = 120.0
UNFINISHED = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")


@dataclass(frozen=True)
class Job:
    """A job of the batch script."""

    cluster: slurm.Cluster
    number: str
    log: Path

    def wait_for_ranks_of(self, network: str) -> None:
        """Wait until the session has begun a round of the network and runs a rank on node2."""
        begun = rf"\b{network}\b.*round \d+ of \d+: start"

        def has_begun() -> bool:
            assert self._field("JobState") in UNFINISHED, self.tell()
            return re.search(begun, self.output) is not None

        wait_until(has_begun, self.tell)
        self.cluster.hosts.wait_for("node2", "hvd-rank-1")

    def end(self) -> str:
        """Wait for the end of the job, and return its exit code as Slurm shows it."""
        wait_until(lambda: self._field("JobState") not in UNFINISHED, self.tell)
        return self._field("ExitCode")

    def tell(self) -> str:
        return f"{self.cluster.run('scontrol', 'show', 'job', self.number)}\n{self.output}"

    @property
    def output(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def _field(self, name: str) -> str:
        shown = self.cluster.run("scontrol", "show", "job", self.number)
        (value,) = re.findall(rf"\b{name}=(\S+)", shown)
        return str(value)


def wait_until(condition: Callable[[], bool], tell: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, tell()
        time.sleep(0.2)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[slurm.Cluster]:
    directory = tmp_path_factory.mktemp("slurm")
    with slurm.slurm_cluster(directory, whole_sessions.environment_of_sessions()) as made:
        yield made


@pytest.fixture
def submit(cluster: slurm.Cluster, tmp_path: Path) -> Callable[..., Job]:
    """Return a function that submits the batch script with a profile of two networks. night:
    options of the night; the others are of pytest."""

    def submitted(*arguments: str, night: Sequence[str] = ()) -> Job:
        (tmp_path / "tiny.toml").write_text(TWO_NETWORKS)
        asked = ["--parsable", "-N2", "--ntasks-per-node=1", f"--output={tmp_path}/%j.log"]
        places = [f"--results={tmp_path / 'results'}", f"--profile={tmp_path / 'tiny.toml'}"]
        of_pytest = ["--", "--np=2", "--oversubscribe", *ONE_LAUNCH, *arguments]
        words = [*asked, SCRIPT, "--series=two", *places, *night, *of_pytest]
        number = cluster.run("sbatch", *words)
        return Job(cluster, number, tmp_path / f"{number}.log")

    return submitted


def test_the_options_of_the_batch_script_come_before_its_commands() -> None:
    lines = (whole_sessions.ROOT / SCRIPT).read_text().splitlines()
    options = [at for at, line in enumerate(lines) if line.startswith("#SBATCH")]
    # A session that is told in time writes its report; a lost node must not end or requeue it.
    for option in ("--signal=B:TERM@300", "--no-requeue", "--no-kill", "--exclusive"):
        assert f"#SBATCH {option}" in lines
    # sbatch reads options up to the first command.
    commands = [at for at, line in enumerate(lines) if line and not line.startswith("#")]
    assert max(options) < commands[0]


@mpirun
@long
def test_an_allocation_of_two_hosts_runs_one_session(
    cluster: slurm.Cluster, options: list[str], tmp_path: Path
) -> None:
    words = ["salloc", "-N2", "-n2", "mpirun", "pytest", "perf/", *options, *ONE_LAUNCH]
    with cluster.start(*words) as session:
        output, _ = session.communicate(timeout=PATIENCE_S)
    assert session.returncode == 6, output
    assert output.count("test session starts") == 1
    assert leftovers.ended(cluster.processes())
    whole_sessions.case_on_two_hosts(tmp_path)


@mpirun
@long
def test_a_night_that_is_warned_of_its_end_or_cancelled_goes_on_in_the_next_job(
    submit: Callable[..., Job], tmp_path: Path
) -> None:
    warned = submit(FIRST_FAILS)
    warned.wait_for_ranks_of("vgg_16_s")
    assert whole_sessions.verdicts(tmp_path) == {FIRST: "FAIL"}
    # The signal that --signal=B:TERM@300 sends to the script's shell.
    warned.cluster.run("scancel", "--batch", "--signal=TERM", warned.number)
    assert warned.end() == "1:0", warned.output
    assert "hvdperf: 1 FAIL" in warned.output
    assert_interrupted(warned, tmp_path)

    cancelled = submit(FIRST_FAILS)
    cancelled.wait_for_ranks_of("vgg_16_s")
    cancelled.cluster.run("scancel", cancelled.number)
    cancelled.end()
    assert_interrupted(cancelled, tmp_path)
    assert whole_sessions.verdicts(tmp_path) == {FIRST: "FAIL"}

    last = submit(FIRST_FAILS, "--budget=0.1")
    assert last.end() == "1:0", last.output
    assert whole_sessions.verdicts(tmp_path) == {FIRST: "FAIL", SECOND: "INCONCLUSIVE"}, last.tell()
    assert night_of(tmp_path).is_whole


def assert_interrupted(job: Job, tmp_path: Path) -> None:
    assert leftovers.ended(job.cluster.processes())
    assert "exit status 2: interrupted" in job.output
    assert whole_sessions.documents(tmp_path)["session.json"]["exit_status"] == 2
    assert night_of(tmp_path).ended_at is None, "the next job goes on with it"


def night_of(tmp_path: Path) -> Night:
    (file,) = (tmp_path / "results" / "nights" / "two").glob("*.json")
    return read_night(file)


@mpirun
@long
def test_each_node_measures_itself_in_one_job(submit: Callable[..., Job], tmp_path: Path) -> None:
    asked = "-k", "weak_scaling", "--models=alexnet_s", "--budget=0.1"
    job = submit(*asked, night=["--by-node"])
    assert job.end() == "5:0", "a node has one core for two ranks"
    assert leftovers.ended(job.cluster.processes())
    ((night,),) = read_nights(tmp_path / "results" / "nights", ["two"]).of.values()
    assert night.nodes == ("node1", "node2")
    assert night.ended_at is not None
    assert {part.hosts for part in night.parts} == {("node1",), ("node2",)}
    assert (tmp_path / "results" / "nights" / "index.html").exists()


# The last one, since the cluster has a node less afterwards.
@mpirun
@long
def test_a_lost_node_fails_the_case_that_runs_on_it(
    submit: Callable[..., Job], tmp_path: Path
) -> None:
    job = submit()
    job.wait_for_ranks_of("alexnet_s")
    job.cluster.run("scontrol", "update", "nodename=node2", "state=down", "reason=test")
    assert job.end() == "1:0", job.output
    assert leftovers.ended(job.cluster.processes())
    assert whole_sessions.verdicts(tmp_path) == {FIRST: "FAIL", SECOND: "NOT RUN"}
    failed, not_run = (row.reason for row in whole_sessions.summary(tmp_path).cases)
    assert "rank 1 on node2 failed" in failed
    assert "the slot of rank 1 on node2 is gone" in not_run
    assert "exit status 1: FAIL" in job.output
    assert list((tmp_path / "results" / "report").glob("*.html"))
