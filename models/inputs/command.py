"""How a sample maker ends on the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable

from models.inputs.errors import DataError


def finish(write: Callable[[], str]) -> int:
    """Write a sample and print what was written; its exit status, 2 with a line if it failed."""
    try:
        print(write())
    except (DataError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0
