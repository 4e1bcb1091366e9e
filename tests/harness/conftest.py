"""Sessions on a made-up machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.sessions import MadeUpRunner, Script, Stage


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    script = Script(tmp_path)
    runner = "harness.workload_rounds.Runner"
    monkeypatch.setattr(runner, lambda **given: MadeUpRunner(script, **given))
    monkeypatch.setattr("harness.workload_rounds.time", script)
    monkeypatch.setattr("harness.session.time", script)
    return Stage(script)
