"""The last step of a sample maker on the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable

from models.inputs.errors import DataError


def finish(write: Callable[[], str]) -> int:
    """Write a sample and print what was written. Return the exit status: 0, or 2 after one line on
    stderr if the writing failed."""
    try:
        print(write())
    except (DataError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0
