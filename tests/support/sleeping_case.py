"""A case that waits while its session's slots are watched. Only a command line names it."""

import os
import time
from pathlib import Path

from hvdperf.launch import slots

# The environment variables with the path of a file that is made once the session is here, and with
# the path of a file for which the case waits.
BEGUN, OVER = "SLEEPING_CASE_BEGUN", "SLEEPING_CASE_OVER"
LEAVE_S = 3.0


def test_nothing_for_a_while() -> None:
    slots.LEAVE_S = LEAVE_S
    Path(os.environ[BEGUN]).touch()
    deadline = time.monotonic() + 60
    while not Path(os.environ[OVER]).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
