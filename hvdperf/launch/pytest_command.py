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
from hvdperf.launch.helpers import end_with_parent
from hvdperf.launch.outer import launcher, leave_status, outer_rank, outer_size
from hvdperf.launch.outer_mpirun import RUNNING
from hvdperf.launch.slots import dismiss_slots, lend_slot
from hvdperf.paths import CHECKOUT


def main() -> int:
    """Return what this process ends with: 0 if the exit status has been left elsewhere."""
    try:
        rank = outer_rank()
    except UserError as error:
        sys.exit(f"ERROR: {error}")
    if rank > 0:
        lend_slot()
    leave_status(f"{RUNNING} {os.getpid()}")
    if outer_size() > 1 or launcher() != os.getpid():
        end_with_parent(signal.SIGTERM)  # mpirun may be killed without a word to its ranks
    # A slot needs a fraction of the time and memory that importing pytest, or even this, takes.
    from importlib.metadata import entry_points

    (command,) = entry_points(group="console_scripts", name="pytest")
    sys.argv = ["pytest", *_added(), *sys.argv[1:]]
    status = int(command.load()())
    if outer_size() > 1:
        dismiss_slots(status)
    return 0 if leave_status(status) else status


def typed(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return pytest's arguments without those that this command has added."""
    own = _added()
    return tuple(each for each in arguments if each not in own)


def _added() -> list[str]:
    """Return the options that pytest gets before those that the user has typed.

    In a checkout, its configuration and the suite's plugins: pytest would look for both at what it
    takes for paths of tests, which the value of an option such as --results is until the plugin is
    known. pytest-benchmark, if pytest is to load no plugins.
    """
    found: list[str] = []
    if CHECKOUT is not None and Path.cwd() == CHECKOUT:
        found.append(f"--config-file={CHECKOUT / 'pytest.ini'}")
        parts = ("session.plugin", "report.session", "report.plugin")
        found += [f"-phvdperf.{part}" for part in parts]
    if os.environ.get("PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        found.append("-ppytest_benchmark.plugin")
    return found


if __name__ == "__main__":
    sys.exit(main())
