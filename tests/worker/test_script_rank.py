"""The rank of a training script, without a launch."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from hvdperf import paths
from hvdperf.worker import process
from hvdperf.worker.script.rank import ROOT, BadScript, ScriptRank
from hvdperf.worker.script.tap import _hvdperf_private as private
from hvdperf.worker.script.tap import _hvdperf_recorder as recorder
from hvdperf.worker.script.tap._hvdperf_recorder import Row, Steps
from hvdperf.worker.session_link import Fault
from tests.support.rank_configs import rank_config


def test_a_rank_runs_in_a_copy_with_the_users_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top, copy = tmp_path / "project", tmp_path / "copy"
    (copy / "src").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(private, "restrict_rank", lambda: str(copy))
    for name in ("HVDPERF_RECORD", "TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "4")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}/own")
    places = {"script_place": str(top / "src"), "script_top": str(top)}
    config = rank_config(script=[str(top / "train.py")], intra_op=2, inter_op=1, **places)
    driver: Any = None
    rank = ScriptRank(config, driver)
    rank._set_environment()
    assert (os.getcwd(), rank.path) == (str(copy / "src"), str(copy / "train.py"))
    assert os.environ["PYTHONPATH"] == "/own"
    assert str(paths.ROOT) == ROOT
    asked = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
    assert [os.environ[name] for name in asked] == ["2", "4", "2"], "the user's own stays"


# The rank between the steps of its script --------------------------------------------------------


class Left(BaseException):
    """Stands for the end of the process."""


class Told:
    """A driver that gives these orders, and keeps what it is told."""

    entered_at = 42.0
    steps_begun = 0

    def __init__(self, *orders: dict[str, Any]) -> None:
        self.orders, self.fault = list(orders), Fault(None, 0)
        self.entered: list[tuple[Any, ...]] = []
        self.metadata: dict[str, Any] = {}
        self.replies: list[dict[str, Any]] = []
        self.failures: list[tuple[str, str, bool]] = []
        self.closed = 0

    def enter(self, phase: str, at: float | None = None, metadata: Any = None) -> None:
        self.entered.append((phase, at))
        self.metadata = metadata or self.metadata

    def reply(self, result: dict[str, Any]) -> None:
        self.replies.append(result)

    def fail(self, error: BaseException, message: str, of_user: bool = False) -> None:
        self.failures.append((type(error).__name__, message, of_user))

    def next_order(self) -> dict[str, Any]:
        return self.orders.pop(0)

    def close(self) -> None:
        self.closed += 1


class Script:
    """A rank with the steps of a made-up script."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *orders: dict[str, Any]) -> None:
        self.driver = Told(*orders)
        self.state = SimpleNamespace(
            exchanged={"step": dict(enumerate([(4000, False), (90, True), (6, False)]))},
            others={},
            updated={},
            local=set(),
        )
        self.state.exchanged_variables, self.state.session = {}, (None, None)
        self.pinned: list[Any] = []
        self.asked: list[str] = []
        self.gpus: list[str] = []
        self.eager = True
        monkeypatch.setattr(recorder, "_state", self.state)
        monkeypatch.setattr(process, "leave", self._leave)
        monkeypatch.setattr(process, "pin", self.pinned.append)
        monkeypatch.setitem(sys.modules, "tensorflow", self._tensorflow())
        monkeypatch.setitem(sys.modules, "horovod.tensorflow", self._horovod())
        # A rank that really left would end the tests, and soundly.
        monkeypatch.setattr(os, "_exit", self._leave)
        config = rank_config(script=["train.py"], cores=[3])
        driver: Any = self.driver
        self.rank = ScriptRank(config, driver)
        self.steps: Any = Steps("step")
        self.steps.traced_at = 101.5
        self.at = 100.0

    def _leave(self, status: int) -> None:
        raise Left(status)

    def _tensorflow(self) -> Any:
        tf: Any = ModuleType("tensorflow")
        tf.executing_eagerly = lambda: self.eager
        tf.zeros = lambda shape: shape
        tf.config = SimpleNamespace(list_physical_devices=lambda kind: self.gpus)
        sync = SimpleNamespace(sync_devices=lambda: time.sleep(0.02))
        tf.test = SimpleNamespace(experimental=sync)
        return tf

    def _horovod(self) -> Any:
        hvd: Any = ModuleType("horovod.tensorflow")
        hvd.rank, hvd.size = lambda: 1, lambda: 2
        hvd.mpi_enabled, hvd.nccl_built = lambda: False, lambda: 0
        hvd.shutdown = lambda: self.asked.append("shutdown")

        def meet(_: Any, name: str) -> Any:
            return SimpleNamespace(numpy=lambda: self.asked.append(name))

        hvd.mpi_ops = SimpleNamespace(_allreduce=meet)
        return hvd

    def run(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def step(self, samples: int = 32, steps: Any = None) -> None:
        """Do a step of two seconds, whose last half second is its exchange."""
        steps = self.steps if steps is None else steps
        steps.count, self.at = steps.count + 1, self.at + 2.0
        steps.samples += samples
        end = self.at
        row = Row(steps.count, end - 2, end - 1.5, end, 0.25, 0.125, end - 0.5, end, 0.0, 0.25)
        steps.rows, steps.last, steps.ended = [*steps.rows, row], row, end
        self.rank._at_step(steps)


def block(steps: int, kind: str = "full") -> dict[str, Any]:
    return {"op": "block", "steps": steps, "kind": kind}


CLOSE = {"op": "close", "leave_group": True}


def test_a_rank_carries_out_orders_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = [block(2), block(2, "local"), {"op": "run", "steps": 26}, {"op": "evidence"}, CLOSE]
    script = Script(monkeypatch, *orders)
    script.step()
    assert script.driver.entered == [], "a start has two steps"
    script.step()
    starts = [("trace", 100.5), ("first step", 101.5), ("broadcast", 102.0), ("ready", None)]
    assert script.driver.entered == [*starts, ("block", None)]
    metadata = script.driver.metadata
    assert metadata.pop("peak_bytes") > 0
    assert metadata == {
        "rank": 1,
        "world_size": 2,
        "transport": "gloo",
        "gradient_tensors": 3,
        "gradient_bytes": 4096,
    }
    assert script.pinned == [[3]]
    assert script.asked == ["hvdperf.barrier"]
    script.rank._order.before = script.at
    process.Resumes.count += 2
    other: Any = Steps("other")
    script.step(steps=other)
    assert script.driver.replies == [], "the steps are those of one function"
    script.at -= 2.0
    for _ in range(2):
        script.step()
    (full,) = script.driver.replies
    assert (full["samples"], full["step_seconds"]) == (64, [2.0, 2.0])
    assert (full["input_seconds"], full["resumed"]) == ([0.375, 0.375], 2)
    assert full["inside_seconds"] == 2 * (1.5 - 0.125)
    assert 0 < full["seconds"] < 60
    script.rank._order.before = script.at
    for _ in range(2):
        script.step(samples=0)
    local = script.driver.replies[1]
    assert local["step_seconds"] == [2.0 - 0.75] * 2
    assert local["inside_seconds"] == 2 * (1.5 - 0.125 - 0.75)
    assert local["samples"] == 2, "a step without a batch counts as one"
    assert local["seconds"] == pytest.approx(-1.5, abs=1.4)
    assert script.driver.entered[-2:] == [("ready", None), ("run", None)]
    with pytest.raises(Left, match="0"):
        script.run(26)
    run, evidence = script.driver.replies[2:]
    assert (run["steps"], run["samples"]) == (26, 26 * 32)
    assert [steps for steps, _ in run["memory"]] == [25]
    assert evidence["world_size"] == 2
    assert evidence["digests"] == []
    assert script.driver.entered[-3:] == [("evidence", None), ("ready", None), ("end", None)]
    assert script.asked == ["hvdperf.barrier"] * 3 + ["shutdown"]
    assert script.driver.closed == 1
    assert script.driver.steps_begun == 2 + 2 + 26
    assert script.driver.failures == []


def test_a_loop_without_a_trace_starts_with_its_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, block(1), {"op": "close", "leave_group": False})
    script.steps.traced_at, script.eager = 0.0, False
    with pytest.raises(Left, match="0"):
        script.run(3)
    assert script.driver.entered[:2] == [("first step", 42.0), ("broadcast", 102.0)]
    assert script.asked == [], "nobody leaves the group, and a session cannot be waited for"


def test_the_weights_are_compared_by_their_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch)
    script.state.exchanged_variables = {1: [1.0, 2.0]}
    (digest,) = script.rank._evidence()["digests"]
    assert len(digest) == 64
    script.state.exchanged_variables = {1: [1.0, 3.0]}
    assert script.rank._evidence()["digests"] != [digest]


@pytest.mark.parametrize(
    ("exchanged", "reductions", "ranks", "is_refused"),
    [
        ({}, 0, 2, True),
        ({}, 0, 1, False),
        ({}, 9, 2, False),
        # Of a tensor whose size is unknown while the graph is made.
        ({"step": {0: (0, False)}}, 0, 2, False),
    ],
)
def test_ranks_that_exchange_nothing_are_refused(
    exchanged: Any, reductions: int, ranks: int, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(monkeypatch, {"op": "check", "steps": 1}, block(1))
    script.rank._config = script.rank._config._replace(world_size=ranks)
    script.state.exchanged = exchanged
    script.state.others = {"allreduce between steps": reductions}
    with pytest.raises(Left, match="1") if is_refused else nullcontext():
        script.run(3)
    assert len(script.driver.replies) == (not is_refused)
    failures = [(kind, of_user) for kind, _, of_user in script.driver.failures]
    assert failures == [("BadScript", True)] * is_refused


@pytest.mark.parametrize("stamps", [False, True])
def test_a_block_without_the_exchange_needs_to_see_it(
    stamps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(monkeypatch, block(1, "local"), block(1))
    script.steps.has_exchange_stamps = stamps
    script.run(2)
    end = script.at + 2.0
    script.steps.last = Row(3, end - 2, end - 1.5, end, 0.25, 0.125, 0.0, 0.0)
    with nullcontext() if stamps else pytest.raises(Left, match="1"):
        script.rank._at_step(script.steps)
    # With stamps it is one of several steps whose gradients are added up.
    assert [reply["seconds"] > 0 for reply in script.driver.replies] == [True] * stamps
    for kind, message, of_user in script.driver.failures:
        assert (kind, of_user) == ("BadScript", True)
        assert message.startswith("the exchange within a step is not seen")
    assert len(script.driver.failures) == (not stamps)


def test_an_error_of_ours_is_not_one_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch)
    with pytest.raises(Left, match="1"):
        script.run(2)
    assert script.driver.failures[0][0] == "IndexError", "there is no order"
    assert script.driver.failures[0][2] is False


def test_a_gpu_is_waited_for_at_the_end_of_an_order(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, block(2), block(1))
    script.gpus = ["GPU:0"]
    for number in range(4):
        if number == 2:
            script.rank._order.before = script.at
        script.step()
    first, last = script.driver.replies[0]["step_seconds"]
    assert first == 2.0
    assert 2.02 <= last < 30.0


def test_a_script_begins_in_the_phases_of_its_init(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(monkeypatch, block(9))
    for is_over in (False, True, False, True):
        script.rank._at_init(is_over)
    assert script.driver.entered == [("init", None), ("build", None)]
    for _ in range(2):
        script.step()
    script.rank._initialised = False
    entered = list(script.driver.entered)
    script.rank._at_init(False)
    assert script.driver.entered == entered, "steps have begun"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it ended without a training step that was seen"),
        ("import sys; sys.exit(0)", "it ended without a training step that was seen"),
        ("import sys; sys.exit(3)", "it exited with status 3"),
        ("import sys; assert sys.argv[1:] == ['--a', '1']", "it ended without"),
        ("import beside; assert __name__ == '__main__'", "it ended without"),
    ],
)
def test_a_script_that_ends_by_itself_says_how(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(monkeypatch)
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "beside.py").write_text("")
    script.rank._config = rank_config(script=["train.py", "--a", "1"])
    script.rank.path = str(tmp_path / "train.py")
    forked: list[Any] = []
    monkeypatch.setattr(script.rank, "_set_environment", lambda: None)
    monkeypatch.setattr(os, "register_at_fork", lambda **named: forked.extend(named.values()))
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", [*sys.path, ROOT])
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    with pytest.raises(BadScript, match=said):
        script.rank.run()
    assert script.driver.entered == [("import", None)]
    followed = (script.state.at_step, script.state.at_init)
    assert followed == (script.rank._at_step, script.rank._at_init)
    assert sys.path[0] == str(tmp_path)
    assert sys.path[-1] == ROOT, "the script's own modules come first"
    assert sys.path.count(ROOT) == 1
    assert forked == [script.rank._forked]


@pytest.mark.parametrize(
    ("status", "steps", "said"),
    [(0, 0, "without a training step"), (0, 4, "it ended after 4 steps"), (3, 4, "status 3")],
)
def test_a_script_that_leaves_at_once_is_reported(
    status: int, steps: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script(monkeypatch, block(9))
    for _ in range(steps):
        script.step()
    killed: list[str] = []
    child = SimpleNamespace(kill=lambda: killed.append("child"))
    loaders = SimpleNamespace(active_children=lambda: [child])
    monkeypatch.setitem(sys.modules, "multiprocessing", loaders)
    with pytest.raises(Left, match="1"):
        script.rank._exits(status)
    ((kind, message, of_user),) = script.driver.failures
    assert (kind, of_user) == ("BadScript", True)
    assert said in message
    assert killed == ["child"]
    assert script.driver.closed == 1


def test_a_thread_or_a_child_of_the_script_that_leaves_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = Script(monkeypatch)
    left: list[int] = []
    monkeypatch.setattr(script.rank, "_exit", left.append)
    thread = threading.Thread(target=script.rank._exits, args=(4,))
    thread.start()
    thread.join()
    parents: list[Any] = []
    monkeypatch.setattr(process, "die_with_parent", parents.append)
    script.rank._forked()
    assert parents == [os.getpid()]
    monkeypatch.setattr(os, "getpid", lambda: 1)
    exits: Any = script.rank._exits
    exits(5)
    assert left == [4, 5]
    assert script.driver.failures == []
