"""Named on the command line only: a session that waits while its slots are watched."""

import time


def test_nothing_for_a_while() -> None:
    time.sleep(8)
