"""How a command line ends: bad input, and what was refused, is a line on stderr."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TypeAlias

from hvdperf.errors import UserError

# Columns of a terminal, for what is written to it.
WIDTH = 80
REFUSED = 2
# What argparse's add_subparsers returns, to which the rooms add their commands.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
# As of a process that SIGPIPE has ended: whoever read its output wants no more of it.
READ_NO_FURTHER = 141


def complain(text: str) -> None:
    """One line, whatever a document has in its names."""
    print(" ".join(text.split()), file=sys.stderr)


def run(
    parser: argparse.ArgumentParser,
    complain: Callable[[str], None] = complain,
    command_line: Sequence[str] | None = None,
) -> int:
    """Parse the command line, by default the process's, and run its `command`. The exit status:
    the command's, 2 for a UserError, or 141 where what it prints is not read to its end."""
    arguments = parser.parse_args(command_line)
    # What documents quote may be more than the terminal's encoding knows.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        status: int = arguments.command(arguments)
        sys.stdout.flush()
    except UserError as error:
        complain(str(error))
        return REFUSED
    except BrokenPipeError:
        # Python flushes once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READ_NO_FURTHER
    return status
