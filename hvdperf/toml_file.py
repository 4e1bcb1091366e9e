"""TOML files that people write: typed values, and errors that name the file, line and key."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Collection, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from hvdperf.errors import UserError

Choice = TypeVar("Choice", bound=Enum)

_HEADER = re.compile(r"\s*\[{1,2}([^\[\]]+)\]{1,2}\s*(#.*)?")
_PART = r"""(?:"[^"]*"|'[^']*'|[\w-]+)"""
_ASSIGNMENT = re.compile(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=")


class Table:
    """One table of a TOML file. Every reader raises UserError for a value that is wrong."""

    def __init__(self, path: Path, text: str, keys: tuple[str, ...], values: dict[str, Any]):
        self._path = path
        self._text = text
        self._keys = keys
        self._values = values

    def __contains__(self, key: str) -> bool:
        return key in self._values

    @property
    def names(self) -> tuple[str, ...]:
        """The keys, in the order of the file."""
        return tuple(self._values)

    def error(self, problem: str, key: str | None = None) -> UserError:
        """Return the error to raise for a key of this table, or for the table itself."""
        keys = self._keys if key is None else (*self._keys, key)
        where = f"{shown(self._path)}:{line_of(self._text, keys)}"
        name = ".".join(part if re.fullmatch(r"[\w-]+", part) else f'"{part}"' for part in keys)
        return UserError(
            _one_line(f"{where}: {name}: {problem}" if name else f"{where}: {problem}")
        )

    def only(self, known: Collection[str]) -> None:
        """Raise UserError for a key that is not known."""
        for key in self._values:
            if key not in known:
                raise self.error(f"unknown key; known here: {', '.join(known)}", key)

    def table(self, key: str) -> Table:
        """Return a table within this one, or an empty table if it is missing."""
        value = self._values.get(key, {})
        if not isinstance(value, dict):
            raise self._wrong(key, f"a table, [{key}]")
        return Table(self._path, self._text, (*self._keys, key), value)

    def string(self, key: str) -> str:
        """Return a string that is not empty."""
        value = self._value(key)
        if not isinstance(value, str) or not value:
            raise self._wrong(key, "a string that is not empty")
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        """Return a list of different strings, at least one."""
        values = self._list(key, "strings", str)
        if not values:
            raise self._wrong(key, "a list of one string at least")
        return values

    def boolean(self, key: str) -> bool:
        value = self._value(key)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def integer(self, key: str) -> int:
        """Return a whole number from 1."""
        value = self._value(key)
        if not _is_whole(value):
            raise self._wrong(key, "a whole number from 1")
        return int(value)

    def integers(self, key: str) -> tuple[int, ...]:
        """Return a list of different whole numbers from 1, ascending; it may be empty."""
        values = self._list(key, "whole numbers", int)
        if not all(map(_is_whole, values)) or list(values) != sorted(values):
            raise self._wrong(key, "a list of whole numbers from 1, ascending")
        return values

    def positive(self, key: str) -> float:
        """Return a number above 0."""
        value = self._value(key)
        if not is_number(value) or value <= 0:
            raise self._wrong(key, "a number above 0")
        return float(value)

    def choice(self, key: str, kind: type[Choice]) -> Choice:
        """Return the member of an Enum with the value of the key."""
        value = self._value(key)
        names = [str(member.value) for member in kind]
        if value not in names:
            raise self._wrong(key, "one of " + ", ".join(f'"{name}"' for name in names))
        return kind(value)

    def value(self, key: str) -> Any:
        """Return the value as it is, for values of more than one type."""
        return self._value(key)

    def _value(self, key: str) -> Any:
        if key not in self._values:
            raise self.error(f"the key {key} is missing")
        return self._values[key]

    def _list(self, key: str, what: str, kind: type) -> tuple[Any, ...]:
        values = self._value(key)
        if (
            not isinstance(values, list)
            or not all(isinstance(value, kind) for value in values)
            or len(set(values)) < len(values)
        ):
            raise self._wrong(key, f"a list of different {what}")
        return tuple(values)

    def _wrong(self, key: str, wanted: str) -> UserError:
        return self.error(f"must be {wanted}, not {_as_toml(self._values[key])}", key)


def read_toml(path: Path) -> Table:
    """Return the top table of a file. Raises UserError if it cannot be read or is not TOML."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{shown(path)}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{shown(path)}: is not UTF-8 text: {error.reason}") from None
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        told = re.search(r"at line (\d+)", str(error))
        line = told[1] if told else len(text.splitlines())
        problem = _one_line(f"not valid TOML: {error}")
        raise UserError(f"{shown(path)}:{line}: {problem}") from None
    except RecursionError:
        raise UserError(f"{shown(path)}: nested more deeply than any file of ours") from None
    except ValueError:
        # Python refuses to read integers of thousands of digits.
        raise UserError(f"{shown(path)}: a whole number has too many digits") from None
    table = Table(path, text, (), values)
    for keys in _too_large(values, ()):
        at = Table(path, text, keys[:-1], {})
        raise at.error("a whole number of more than 64 bits", keys[-1])
    return table


def _too_large(value: object, keys: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the keys of integers of more than 64 bits, which TOML does not allow."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _too_large(inner, (*keys, key))
    elif isinstance(value, list):
        for inner in value:
            yield from _too_large(inner, keys)
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        yield keys


def _one_line(text: str) -> str:
    """Escape line breaks and all else that does not print, since keys and values may hold such."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def shown(path: Path) -> str:
    """Return the path as a person in the current directory would write it."""
    absolute, here = path.absolute(), Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(path)


def line_of(text: str, keys: Sequence[str]) -> int:
    """Return the line, from 1, on which a key or a table begins, or else the table above it.

    tomllib does not report lines. The text must be valid TOML. The lines of a multi-line string
    are also read as TOML, which costs no more than a wrong line number.
    """
    best, best_depth = 1, 0
    for number, path in _assignments(text):
        depth = _common(path, keys)
        if depth > best_depth:
            best, best_depth = number, depth
    return best


def _assignments(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the number of every line that names a table or a key, with the full path of names."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.fullmatch(line):
            table = _split(header[1])
            yield number, table
        elif assignment := _ASSIGNMENT.match(line):
            yield number, (*table, *_split(assignment[1]))


def _split(dotted: str) -> tuple[str, ...]:
    """Return the parts of a dotted key, read by tomllib itself: a."b.c" gives ("a", "b.c")."""
    try:
        value: Any = tomllib.loads(f"{dotted} = 0")
    except tomllib.TOMLDecodeError:
        return ()
    parts = []
    while isinstance(value, dict):
        part, value = next(iter(value.items()))
        parts.append(part)
    return tuple(parts)


def _common(path: Sequence[str], keys: Sequence[str]) -> int:
    """Return the number of leading parts that two paths have in common."""
    pairs = zip(path, keys, strict=False)
    return next((depth for depth, (a, b) in enumerate(pairs) if a != b), min(len(path), len(keys)))


def is_number(value: object) -> bool:
    """Return whether a value is a finite number; TOML's true, inf and nan are not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _as_toml(value: object) -> str:
    """Return a value as the file may have written it, cut to a readable length."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        text = f'"{value}"'
    elif isinstance(value, list):
        parts = ("[...]" if isinstance(part, list) else _as_toml(part) for part in value)
        text = f"[{', '.join(parts)}]"
    else:
        text = "a table" if isinstance(value, dict) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
