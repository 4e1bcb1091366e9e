"""Settings of property tests, the grouping of tests run side by side, and the made-up machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.sessions import Stage

# A session that a test starts is no worker of xdist's.
for _name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
    del os.environ[_name]

# There are no property tests under mpirun, and this import takes a second of each rank's start.
if "OMPI_COMM_WORLD_SIZE" not in os.environ:
    from hypothesis import HealthCheck, settings

    # The time of an example says nothing on a machine that others use, too.
    settings.register_profile(
        "shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("shared machine")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Group the tests for runs side by side (`-n 2 --dist loadgroup`).

    Tests that start ranks run one after the other on one worker: they share the cores, and some
    look at what is left behind on the machine. So do the tests of a file, which share whatever
    takes time to make.
    """
    for item in items:
        group = "ranks" if _starts_ranks(item) else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))


def _starts_ranks(item: pytest.Item) -> bool:
    """Return whether the test starts ranks, or looks at what launches leave behind."""
    of_launches = item.path.parent.name == "launch" or item.path.name == "test_sessions.py"
    return of_launches or item.get_closest_marker("mpirun") is not None


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Return a stage for sessions on a made-up machine."""
    from tests.support.sessions import MadeUpRunner, Script, Stage

    script = Script(tmp_path)
    runner = "hvdperf.session.workload_run.RoundRunner"
    monkeypatch.setattr(runner, lambda **given: MadeUpRunner(script, **given))
    monkeypatch.setattr("hvdperf.session.workload_run.time", script)
    monkeypatch.setattr("hvdperf.session.scheduler.time", script)
    return Stage(script)
