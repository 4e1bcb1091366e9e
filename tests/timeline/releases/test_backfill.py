"""The version matrix has no silent hole, and what is there is not done again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.timeline.releases import backfill
from hvdperf.timeline.releases.backfill import (
    Combination,
    NotBuilt,
    State,
    combinations,
    fill,
    table,
)
from hvdperf.timeline.releases.raw import RawResult, read_history
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
