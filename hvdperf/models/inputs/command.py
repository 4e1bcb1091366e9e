"""The last step of a command of this package."""

from __future__ import annotations

import sys
from collections.abc import Callable

from hvdperf.models.inputs.errors import DataError


def finish(work: Callable[[], str]) -> int:
    """Do the work and print its result. Return the exit status: 0, or 2 after one line on stderr if
    the work failed."""
    try:
        print(work())
    except (DataError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0
