"""How properties are tested, and the made-up machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.sessions import Stage

# Under mpirun there are none, and importing this takes a second of each rank's start.
if "OMPI_COMM_WORLD_SIZE" not in os.environ:
    from hypothesis import HealthCheck, settings

    # How long an example takes says nothing where others use the machine, too.
    settings.register_profile(
        "shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("shared machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Side by side (`-n 2 --dist loadgroup`), what starts ranks runs one after the other, and so
    do the tests of a file, which share what it takes time to make."""
    for item in items:
        group = "ranks" if item.get_closest_marker("mpirun") else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Sessions on a made-up machine."""
    from tests.support.sessions import MadeUpRunner, Script, Stage

    script = Script(tmp_path)
    runner = "hvdperf.session.workload_run.RoundRunner"
    monkeypatch.setattr(runner, lambda **given: MadeUpRunner(script, **given))
    monkeypatch.setattr("hvdperf.session.workload_run.time", script)
    monkeypatch.setattr("hvdperf.session.scheduler.time", script)
    return Stage(script)
