"""Named on the command line only: a session that waits while its slots are watched."""

import os
import time
from pathlib import Path

# Of a file that is there once the session has come so far.
BEGUN = "SLEEPING_CASE_BEGUN"


def test_nothing_for_a_while() -> None:
    if BEGUN in os.environ:
        Path(os.environ[BEGUN]).touch()
    time.sleep(8)
