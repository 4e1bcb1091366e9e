"""A case that waits while its session's slots are watched. Only a command line names it."""

import os
import time
from pathlib import Path

# The environment variable with the path of a file that is made once the session is here.
BEGUN = "SLEEPING_CASE_BEGUN"


def test_nothing_for_a_while() -> None:
    if BEGUN in os.environ:
        Path(os.environ[BEGUN]).touch()
    time.sleep(8)
