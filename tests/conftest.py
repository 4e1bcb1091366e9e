"""Settings of property tests, the grouping of tests run side by side, and the made-up machine."""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.support.sessions import Stage

# In the background of a script these are ignored, also by all that tests start.
for _signum, _handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(_signum) is signal.SIG_IGN:
        signal.signal(_signum, _handler)

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


# Of the files whose tests start ranks, those that launch groups run one after the other, and so do
# those with several hosts and those with whole sessions: in each, tests look at what theirs leave
# behind on the machine.
LAUNCHES, HOSTS, SESSIONS = "launches", "hosts", "sessions"
# Files whose tests share a fresh clone, since its environment takes more than a minute to build.
CLONE = "clone"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the groups, which take longest, then with files that have a long test, and end
    with the smallest files, so that all workers end at about the same time. Files are dealt out in
    this order."""
    groups = (LAUNCHES, HOSTS, SESSIONS, CLONE)

    def place(item: pytest.Item) -> tuple[int, int]:
        group = _group(item.nodeid.partition("::")[0])
        if group in groups:
            return groups.index(group), 0
        has_long, size = _looks(item.path)
        return len(groups) + (not has_long), -size

    items.sort(key=place)


@cache
def _looks(file: Path) -> tuple[bool, int]:
    """Return whether a file has a test that takes long, and its length."""
    text = file.read_text()
    return "pytest.mark.long" in text, len(text)


# Of imports and of thousands of tests nothing is garbage: to look for it takes a third of the time
# until the first test.
gc.disable()


def pytest_collection_finish() -> None:
    """Keep what has been imported and collected out of the garbage collector's rounds, which Keras
    alone asks for after each test of a network."""
    gc.freeze()
    gc.enable()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share the tests among workers (`-n 4`), a file or a group of files at a time.

    (xdist's own groups have no effect in this release of pytest.)
    """
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid.partition("::")[0])

    config.option.loadscopereorder = False
    return ByFile(config, log)


@cache
def _group(file: str) -> str:
    """Return which tests run on one worker. file: relative to the checkout."""
    path = Path(__file__).parents[1] / file
    text = path.read_text() if path.is_file() else ""
    if "clone: Path" in text:
        return CLONE
    if "pytest.mark.mpirun" not in text:
        return file
    if "/launch/" in file:
        return LAUNCHES
    return HOSTS if "tests.support.hosts" in text or "tests.support.slurm" in text else SESSIONS


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a fresh clone of this checkout, which gets an environment of its own."""
    from tests.support.clones import fresh_clone

    path = fresh_clone(tmp_path_factory.mktemp("clone") / "hvdperf")
    yield path
    # An environment has a gigabyte.
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from tests.support.browser import chromium

    with chromium() as opened:
        yield opened


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Return a stage for sessions on a made-up machine."""
    from tests.support.sessions import MadeUpRunner, Script, Stage

    script = Script(tmp_path)
    runner = "hvdperf.session.scheduler.RoundRunner"
    monkeypatch.setattr(runner, lambda *given, **named: MadeUpRunner(script, *given, **named))
    monkeypatch.setattr("hvdperf.session.scheduler.time", script)
    return Stage(script)
