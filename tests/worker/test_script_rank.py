"""The rank of a training script, without a launch."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hvdperf.worker.faults import Fault
from hvdperf.worker.script.rank import ROOT, Order, ScriptRank
from hvdperf.worker.script.tap import _hvdperf_private as private
from hvdperf.worker.script.tap._hvdperf_recorder import Steps
from tests.support.rank_configs import rank_config


def test_on_a_host_without_the_launchs_copy_a_rank_makes_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = tmp_path / "project"
    (top / "src").mkdir(parents=True)
    (top / "src" / "train.py").write_text("")
    (top / ".cache").mkdir()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(temporary))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    record = tmp_path / "record"
    record.mkdir()
    plan = private.plan(top, top, str(temporary), record, tmp_path)
    monkeypatch.setenv(private.VARIABLE, plan)
    # This process would stay restricted.
    monkeypatch.setattr(private, "_restrict", lambda writable: None)
    monkeypatch.setattr(private, "_remove_at_end", lambda path: None)
    for name in (
        "HVDPERF_RECORD",
        "TF_NUM_INTRAOP_THREADS",
        "OMP_NUM_THREADS",
        "TMPDIR",
        "UCX_TLS",
    ):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("TF_NUM_INTEROP_THREADS", "4")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}/own")
    config = rank_config(
        script=[str(top / "src" / "train.py")],
        script_place=str(top),
        script_top=str(top),
        intra_op=2,
        inter_op=1,
    )
    driver: Any = None
    rank = ScriptRank(config, driver, Fault(None, 0))
    rank._set_environment()
    copy = json.loads(os.environ[private.VARIABLE])["at"]
    assert Path(copy).is_relative_to(temporary)
    assert os.getcwd() == os.path.realpath(copy)
    assert rank.path == os.path.join(copy, "src", "train.py")
    assert not (Path(copy) / ".cache").exists()
    assert os.environ["PYTHONPATH"] == "/own"
    asked = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
    assert [os.environ[name] for name in asked] == ["2", "4", "2"], "the user's own stays"


def test_what_a_block_has_only_queued_is_a_part_of_it() -> None:
    order = Order({"op": "block", "steps": 2})
    order.before = 100.0
    for at, waited in ((100.0, 0.0), (102.0, 5.0)):
        steps = Steps("step")
        steps.last = (1, at, at + 1.0, at + 2.0, 0.5, 0.25, 0.0, 0.0, 0.0, 0.0)
        order.count(steps, 32, waited)
    block = order.block()
    assert block["step_seconds"] == [2.0, 7.0]
    assert block["inside_seconds"] == 2 * 0.75 + 5.0
    assert block["input_seconds"] == [0.75, 0.75]
    assert order.left == 0
