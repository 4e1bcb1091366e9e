"""The command `pytest` of the environment.

Ranks above 0 of an mpirun lend their slots without importing pytest. Rank 0 leaves its exit status
to hvdperf.launch.outer_mpirun, even if pytest ends before it has loaded a plugin.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.launch.guard import end_with_parent
from hvdperf.launch.outer import leave_status, outer_rank, outer_size
from hvdperf.launch.outer_mpirun import RUNNING
from hvdperf.launch.slots import dismiss_slots, lend_slot
from hvdperf.paths import CHECKOUT

OWN_PLUGINS = ("hvdperf.session.plugin", "hvdperf.report.plugin")


def main() -> int:
    """Return what this process ends with: 0 if the exit status has been left elsewhere."""
    try:
        rank = outer_rank()
    except UserError as error:
        sys.exit(f"ERROR: {error}")
    if rank > 0:
        lend_slot()
    leave_status(f"{RUNNING} {os.getpid()}")
    if outer_size() > 1:
        end_with_parent(signal.SIGTERM)  # the plugin watches its owners only later (owners.py)
    # A slot needs a fraction of the time and memory that importing pytest, or even this, takes.
    from importlib.metadata import entry_points

    (command,) = entry_points(group="console_scripts", name="pytest")
    sys.argv = ["pytest", *(f"-p{name}" for name in _plugins()), *sys.argv[1:]]
    status = int(command.load()())
    if outer_size() > 1:
        dismiss_slots()
    return 0 if leave_status(status) else status


def typed(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return pytest's arguments without those that this command has added."""
    own = {f"-p{name}" for name in _plugins()}
    return tuple(each for each in arguments if each not in own)


def _plugins() -> list[str]:
    """Return the plugins that pytest has to load before it looks for a conftest.py, or at all.

    In a checkout, the suite's own: without it, the value of an option such as --data-dir counts as
    the path of tests, and pytest looks there. pytest-benchmark, if pytest is told to load none.
    """
    found: list[str] = []
    if CHECKOUT is not None and Path.cwd() == CHECKOUT:
        found += OWN_PLUGINS
    if os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        found.append("pytest_benchmark.plugin")
    return found


if __name__ == "__main__":
    sys.exit(main())
