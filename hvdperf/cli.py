"""Commands from functions: a function's parameters are the options of its command, its docstring is
the help, and its result is the exit status.

Errors of the user are printed in one line. The first paragraph of a docstring describes the
command. Below it each option has its text, with what stands for its value, also under headings::

    --port N: Serve on this port.

    which nights
        --series NAME: Read this series. The option may be repeated.
        FILE: An argument.

`[FILE ...]` and `FILE ...` stand for any number of arguments, or at least one; `{NAME}` for a
constant of the function's module, whose members are the choices of an option that has it as value.
A parameter has the option's name, behind which `_` and a unit may follow. Defaults are added to the
texts that have none. Options that functions share are the fields of a dataclass, which has their
texts; such a parameter of a function takes the record.
"""

from __future__ import annotations

import argparse
import errno
import inspect
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import date
from functools import partial
from types import NoneType
from typing import Any, NamedTuple, NoReturn, TypeAlias, get_args, get_origin, get_type_hints

from hvdperf.errors import UserError

REFUSED = 2
# The exit status of a process that SIGPIPE ended: the reader of its output has gone.
PIPE_CLOSED = 141
# How the text of an option is read, and what a text is that cannot be read so.
_READERS: Mapping[Any, tuple[Callable[[str], Any], str]] = {
    int: (int, "not a whole number"),
    float: (float, "not a number"),
    date: (date.fromisoformat, "no date such as 2026-01-31"),
}


class Group(NamedTuple):
    """Commands below one name. metavar: stands for one of them in the help."""

    description: str
    metavar: str
    commands: Mapping[str, Command]


Command: TypeAlias = Callable[..., int] | Group


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


class Option(NamedTuple):
    """An option of a function, or an argument. flag: "" of an argument. added: as add_argument of
    argparse takes it."""

    heading: str
    flag: str
    added: dict[str, Any]


def read(flag: str, kind: Any, choices: Collection[str] | None, text: str) -> Any:
    """Return the value of an option. Raises UserError."""
    shown = f"{flag} {text if len(text) <= 40 else f'{text[:40]}...'}".strip()
    if choices is not None and text not in choices:
        raise UserError(f"{shown}: is unknown; known are {', '.join(choices)}")
    reader, other = _READERS.get(kind, (kind, ""))
    try:
        return reader(text)
    except ValueError:
        raise UserError(f"{shown}: is {other}") from None


def options_of(function: Callable[..., object]) -> list[Option]:
    """Return the options of a function, or of a record: under each heading first those of records
    that the function takes."""
    hints, parameters = get_type_hints(function), inspect.signature(function).parameters
    records = [name for name in parameters if is_dataclass(hints[name])]
    arguments = (name for name in parameters if name not in records)
    shared = [each for name in records for each in options_of(hints[name])]
    own = []
    for heading, head, text in _texts(function):
        flag, _, value = head.partition(" ") if re.match(r"--\w", head) else ("", "", head)
        start = flag[2:].replace("-", "_") + "_"
        named = (name for name in parameters if f"{name}_".startswith(start))
        parameter = parameters[next(named if flag else arguments)]
        text = text.format_map(_constants(function))
        added = _added(flag, value, text, hints[parameter.name], parameter)
        if value.startswith("{"):
            del added["metavar"]
            added["choices"] = _constants(function)[value[1:-1]]
            added["type"] = partial(read, flag, str, added["choices"])
        own.append(Option(heading, flag, added))
    headings = dict.fromkeys(each.heading for each in (*own, *shared))
    return [each for one in headings for each in (*shared, *own) if each.heading == one]


def _added(
    flag: str, value: str, text: str, hint: Any, parameter: inspect.Parameter
) -> dict[str, Any]:
    """Return what argparse takes of the option of a parameter. value: as the help shows it."""
    is_required = parameter.default is parameter.empty
    default = None if is_required else parameter.default
    if "Default: " not in text and default not in (None, False, "", ()):
        text += f" Default: {default}."
    added = {"dest": parameter.name, "help": text.replace("%", "%%"), "default": default}
    kind, *_ = (each for each in get_args(hint) or [hint] if each is not NoneType)
    if kind is bool:
        return {**added, "action": "store_true"}
    added["type"] = partial(read, flag, kind, None)
    added["metavar"] = value.strip("[]").removesuffix(" ...")
    if flag and get_origin(hint) is tuple:
        added |= {"action": "append", "default": []}
    elif flag:
        added["required"] = is_required
    elif value.startswith("-- "):
        added |= {"nargs": argparse.REMAINDER, "metavar": value}
    elif parameter.kind is parameter.VAR_POSITIONAL:
        added["nargs"] = "*" if value.startswith("[") else "+"
    return added


def _constants(function: Callable[..., object]) -> Mapping[str, Any]:
    return vars(sys.modules[function.__module__])


def description_of(command: Command) -> str:
    """Return sentences on a command: of a function, the first paragraph of its docstring."""
    if isinstance(command, Group):
        return command.description
    text, _, _ = inspect.cleandoc(command.__doc__ or "").partition("\n\n")
    return " ".join(text.split()).format_map(_constants(command))


def _texts(function: Callable[..., object]) -> Iterator[tuple[str, str, str]]:
    """Yield the heading of each option in a docstring, the option with its value, and its text. A
    record also has those of the records that it extends."""
    documented = function.__mro__[:-1] if isinstance(function, type) else (function,)
    heading, entries = "", list[tuple[str, list[str]]]()
    for each in reversed(documented):
        _, _, body = inspect.cleandoc(each.__doc__ or "").partition("\n\n")
        for line in filter(None, body.splitlines()):
            words = line.lstrip()
            indent = len(line) - len(words)
            if not indent:
                heading = "" if ": " in line else line
            if words == heading:
                continue
            if indent == 4 * bool(heading):
                entries.append((heading, []))
            entries[-1][1].append(words)
    for heading, lines in entries:
        head, _, text = " ".join(lines).partition(": ")
        yield heading, head, text


def called(function: Callable[..., Any], given: object) -> Any:
    """Call a function, or make a record, with the values of its options. given: has them as
    attributes, as a parser returns them."""
    more, named = (), {}
    hints = get_type_hints(function)
    for name, parameter in inspect.signature(function).parameters.items():
        is_record = is_dataclass(hints[name])
        value = called(hints[name], given) if is_record else getattr(given, name)
        if parameter.kind is parameter.VAR_POSITIONAL:
            more = value
        else:
            named[name] = tuple(value) if isinstance(value, list) else value
    return function(*more, **named)


def add_options(parser: argparse.ArgumentParser, function: Callable[..., object]) -> None:
    """Add the options of a function to a parser, which calls it by `command`."""
    groups: dict[str, argparse._ActionsContainer] = {"": parser}
    for heading, flag, added in options_of(function):
        if heading not in groups:
            groups[heading] = parser.add_argument_group(heading)
        groups[heading].add_argument(*[flag] * bool(flag), **added)
    parser.set_defaults(command=partial(called, function))


def takes_words(function: Callable[..., object]) -> bool:
    """Return whether a command hands words on to another program."""
    every, hints = inspect.signature(function).parameters.values(), get_type_hints(function)
    return any(each.kind is each.VAR_POSITIONAL and hints[each.name] is str for each in every)


def add_commands(parser: argparse.ArgumentParser, of: Group, **more: Any) -> None:
    """Add commands to a parser, each a function or a group. more: as add_subparsers takes it."""
    added = parser.add_subparsers(required=True, metavar=of.metavar, **more)
    for name, command in of.commands.items():
        text = description_of(command)
        add = added.add_parser(name, help=first_sentence(text), description=text)
        if isinstance(command, Group):
            add_commands(add, command)
        else:
            add_options(add, command)


def run(
    parser: argparse.ArgumentParser,
    complain: Callable[[str], None] = complain,
    command_line: Sequence[str] | None = None,
) -> int:
    """Parse the command line, by default the process's, and run its `command`.

    Return the exit status: the command's, 2 for a UserError, or PIPE_CLOSED if the reader of the
    output goes away before its end.
    """
    # Documents may contain characters that the terminal's encoding does not have.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        arguments, unknown = parser.parse_known_args(command_line)
        if unknown:
            message = f"unrecognized arguments: {' '.join(unknown)}"
            if takes_words(arguments.command.args[0]):
                message += "; the command of another program comes after --"
            parser.error(message)
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
