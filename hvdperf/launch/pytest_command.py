"""The command `pytest` of the environment.

Ranks above 0 of an mpirun lend their slots without importing pytest. Rank 0 leaves its exit status
to hvdperf.launch.outer_mpirun, even if pytest ends before it has loaded a plugin.
"""

from __future__ import annotations

import sys

from hvdperf.launch.outer import leave_status, outer_rank, outer_size
from hvdperf.launch.outer_mpirun import RUNNING
from hvdperf.launch.slots import dismiss_slots, lend_slot


def main() -> int:
    """Return what this process ends with: 0 if the exit status has been left elsewhere."""
    if outer_rank() > 0:
        lend_slot()
    leave_status(RUNNING)
    # A slot needs a fraction of the time and memory that importing pytest, or even this, takes.
    from importlib.metadata import entry_points

    (command,) = entry_points(group="console_scripts", name="pytest")
    sys.argv[0] = "pytest"
    status = int(command.load()())
    if outer_size() > 1:
        dismiss_slots()
    return 0 if leave_status(status) else status


if __name__ == "__main__":
    sys.exit(main())
