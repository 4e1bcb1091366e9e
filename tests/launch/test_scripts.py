"""Real groups that run a training script of the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hvdperf.launch.arm_launcher import ArmLauncher
from hvdperf.launch.live_launch import LiveLaunch
from hvdperf.models import inputs, own_networks, registry
from hvdperf.paths import ROOT
from hvdperf.plan.arms import Arm, Workload
from hvdperf.plan.data import DataSource
from hvdperf.plan.questions import communication, weak_scaling
from hvdperf.records.rounds import BlockReport, Evidence, Metadata, RunReport
from hvdperf.session.control import try_all
from hvdperf.verdict import Verdict
from hvdperf.work.training import problems_of_run
from hvdperf.worker.strategies import Strategy
from tests.support.groups import DEADLINE_S, MakeStarter

SCRIPTS = ROOT / "tests/support/scripts"
LOOP = (SCRIPTS / "loop.py").read_text()
STARTS = {"import", "init", "build", "trace", "first step"}
Make = Callable[..., tuple[Workload, ArmLauncher]]
pytestmark = pytest.mark.mpirun


@contextmanager
def ready(starter: ArmLauncher, arm: Arm) -> Iterator[LiveLaunch]:
    """Yield a group that is ready, and end it."""
    group = starter.start(arm, (), 1, share_startup=False)
    try:
        group.wait_ready(DEADLINE_S)
        yield group
    finally:
        group.end()


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arm_launchers: MakeStarter) -> Make:
    """Return a function that writes a script, and returns its workload and what launches it."""
    networks = dict(registry.NETWORKS)
    for module in (registry, own_networks):
        monkeypatch.setattr(module, "NETWORKS", networks)
    monkeypatch.setitem(inputs.INPUTS, "script", inputs.Input("script", 0))

    def make(text: str, arguments: str = "") -> tuple[Workload, ArmLauncher]:
        path = tmp_path / "own" / "train.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        name = own_networks.load_script(f"{path} {arguments}").name
        starter = arm_launchers("mpirun")
        starter.data = {"script": DataSource("script", "", 0)}
        return Workload(name, "script", 0, 1), starter

    return make


def test_a_script_trains_in_blocks(made: Make, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.bin"
    elsewhere.write_bytes(b"old")
    written = f"hvd.init(); open('log.txt', 'w'); tf.io.write_file('{elsewhere}', 'new')"
    workload, starter = made(LOOP.replace("hvd.init()", written), "--steps=100000")
    arm = Arm(workload, Strategy.HOROVOD, 2)
    with ready(starter, arm) as group:
        assert group.startup_seconds()[0].keys() >= STARTS
        for rank, facts in enumerate(group.metadata(Metadata)):
            assert (facts.rank, facts.world_size, facts.gradient_tensors) == (rank, 2, 3)
            assert facts.gradient_bytes == 4 * (64 * 256 + 256 * 256 + 256)
            assert facts.transport == "mpi"
        for kind in ("full", "local"):
            for block in group.reports(BlockReport, "block", DEADLINE_S, kind=kind, steps=7):
                assert (block.samples, len(block.step_seconds)) == (7 * 32, 7)
                assert 0 < sum(block.step_seconds) <= block.seconds
                assert 0 <= sum(block.input_seconds) < block.seconds
                assert 0 < block.inside_seconds < block.seconds
        (run, other) = group.reports(RunReport, "run", DEADLINE_S, steps=50)
        assert run.steps == 50
        assert [steps for steps, _ in run.memory] == [25, 50]
        assert problems_of_run(arm, [run, other]) == []
        first, second = group.reports(Evidence, "evidence", DEADLINE_S)
        assert first.world_size == 2
        assert first.digests == second.digests != []
        group.close(leave_group=True)
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["train.py"], "it left a file"
    assert elsewhere.read_bytes() == b"old"


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        ("one = 1\nraise ValueError('no data')\n", "", "line 2: ValueError: no data"),
        (f"{LOOP}\nimport os\nos._exit(0)\n", "--steps=4", "it ended after 4 steps, before"),
        (LOOP, "--no-exchange", "no gradient is exchanged"),
    ],
    ids=["error", "short", "no exchange"],
)
def test_a_script_that_cannot_be_measured_is_told(
    made: Make, text: str, arguments: str, said: str
) -> None:
    workload, starter = made(text, arguments)
    (found,) = try_all([weak_scaling(workload, 2)], starter, lambda _: None).values()
    assert said in found.error


@pytest.mark.parametrize(
    ("script", "arguments", "tensors"),
    [
        ("loop.py", "--eager", 3),
        ("session.py", "", 1),
        pytest.param("own_ways.py", "gan", 4, marks=pytest.mark.long),
    ],
)
def test_steps_of_every_kind_are_blocks(
    made: Make, script: str, arguments: str, tensors: int
) -> None:
    workload, starter = made((SCRIPTS / script).read_text(), arguments)
    with ready(starter, Arm(workload, Strategy.HOROVOD, 2)) as group:
        for block in group.reports(BlockReport, "block", DEADLINE_S, kind="full", steps=5):
            assert len(block.step_seconds) == 5
        assert {rank.gradient_tensors for rank in group.metadata(Metadata)} == {tensors}
        (first, second) = group.reports(Evidence, "evidence", DEADLINE_S)
        assert first.digests == second.digests != []
        group.close()


def test_a_script_that_hides_its_exchange_has_no_communication(made: Make) -> None:
    workload, starter = made((SCRIPTS / "own_ways.py").read_text(), "allreduce")
    (found,) = try_all([weak_scaling(workload, 2)], starter, lambda _: None).values()
    assert found.error == ""
    judgement = found.judgement(communication(workload, 2))
    assert judgement is not None
    assert judgement.verdict is Verdict.INFO
    assert found.judgement(weak_scaling(workload, 2)) is None
