"""Runs a command, and turns bad input or a refused request into one line on stderr."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

from hvdperf.errors import UserError

REFUSED = 2
# The object that argparse's add_subparsers returns; the packages add their commands to it.
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
# The exit status of a process that SIGPIPE ended: the reader of its output has gone.
PIPE_CLOSED = 141


def complain(text: str) -> None:
    """Print the text to stderr as one line, even if names from a document contain line breaks."""
    print(" ".join(text.split()), file=sys.stderr)


class Parser(argparse.ArgumentParser):
    """Refuses a bad command line in one line, where argparse prints its usage, too. Its commands
    are of this class as well."""

    def error(self, message: str) -> NoReturn:
        complain(f"{self.prog}: {message}; see {self.prog} --help")
        self.exit(REFUSED)


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, with its stop."""
    return f"{text.partition('. ')[0].rstrip('.')}."


def add_command(
    commands: Commands,
    name: str,
    description: str,
    command: Callable[[argparse.Namespace], int] | None = None,
) -> argparse.ArgumentParser:
    """Add a command and return its parser. description: sentences for its own help, of which the
    first one also stands in the list of commands. command: carries it out, and returns the exit
    status; None for one that has commands of its own."""
    add = commands.add_parser(name, help=first_sentence(description), description=description)
    add.set_defaults(command=command)
    return add


def option(
    group: argparse._ActionsContainer,
    name: str,
    text: str,
    default: object = None,
    told: str = "",
    **more: Any,
) -> None:
    """Add an option, or an argument. name: such as `--port N`; without a value such as `--list`; of
    an argument such as `file FILE`. text: sentences for the help, to which the default is added.
    told: the default in words, if they are not those of `default`. more: as add_argument takes
    it."""
    if told or default is not None:
        text += f" Default: {told or default}."
    flag, _, metavar = name.partition(" ")
    if metavar:
        group.add_argument(flag, metavar=metavar, default=default, help=text, **more)
    else:
        group.add_argument(flag, action="store_true", help=text, **more)


def run(
    parser: argparse.ArgumentParser,
    complain: Callable[[str], None] = complain,
    command_line: Sequence[str] | None = None,
) -> int:
    """Parse the command line, by default the process's, and run its `command`.

    Return the exit status: the command's, 2 for a UserError, or PIPE_CLOSED if the reader of the
    output goes away before its end.
    """
    arguments = parser.parse_args(command_line)
    # Documents may contain characters that the terminal's encoding does not have.
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
        return PIPE_CLOSED
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        complain(f"{error.filename or 'the output'} cannot be written: {error.strerror}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return REFUSED
    return status
