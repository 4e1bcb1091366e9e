"""TOML files as typed records; errors name the file and the key.

A record is a dataclass whose fields are the keys of a table. Annotations such as
`Annotated[int, Meta(ge=1)]` say which values a key may have. If two keys contradict each other,
__post_init__ raises ValueError with a message that begins with a key: "turns_min: must not be ...".
"""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from msgspec import Meta

from hvdperf.errors import UserError
from hvdperf.json_records import Unreadable, convert
from hvdperf.paths import shown

Kind = TypeVar("Kind")

# The annotation of a string that is not empty.
Text = Annotated[str, Meta(min_length=1)]


class _Wrong(ValueError):
    """A value that a file may not hold; the message says where it is and what is wanted."""


def read_toml(path: Path) -> dict[str, Any]:
    """Return the values of a file.

    Raises UserError if the file cannot be read or is not TOML, for a number that is not finite or
    has more than 64 bits, and for a list that repeats a value.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        _check(values, "")
        return values
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text: {error.reason}"
    except tomllib.TOMLDecodeError as error:
        problem = f"not valid TOML: {error}"
    except _Wrong as error:
        problem = str(error)
    except RecursionError:
        problem = "nested too deeply"
    except ValueError:
        # Python refuses to read integers of thousands of digits.
        problem = "a whole number has too many digits"
    raise file_error(path, problem)


def as_record(path: Path, values: Mapping[str, Any], kind: type[Kind], **given: Any) -> Kind:
    """Return the values of a file as a record of that kind. Raises UserError.

    given: fields that do not come from the file.
    """
    try:
        record: Kind = _converted(values, kind, "", **given)
    except _Wrong as error:
        raise file_error(path, str(error)) from None
    return record


def file_error(path: Path, problem: str) -> UserError:
    """Return the error to raise for a file: one line, whatever the keys and the values hold."""
    line = f"{shown(path)}: {problem}"
    return UserError(
        "".join(
            letter if letter.isprintable() else letter.encode("unicode_escape").decode()
            for letter in line
        )
    )


def _check(value: object, place: str) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _check(inner, _at(place, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            _check(inner, f"{place}[{number}]")
        for text, count in Counter(map(repr, value)).most_common(1):
            if count > 1:
                raise _Wrong(f"{place}: lists {text} {count} times")
    elif isinstance(value, float) and not math.isfinite(value):
        raise _Wrong(f"{place}: must be a finite number, not {value}")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise _Wrong(f"{place}: a whole number of more than 64 bits")


def _converted(value: Any, kind: Any, place: str, **given: Any) -> Any:
    """Return a value as the kind that an annotation names. place: its key, with those of the tables
    around it; "" for the whole file."""
    if is_dataclass(kind) and isinstance(value, dict):
        return _record(value, kind, place, given)
    if get_origin(kind) in (dict, Mapping) and isinstance(value, dict):
        of_keys, of_values = get_args(kind)
        return {
            _converted(key, of_keys, _at(place, key)): _converted(inner, of_values, _at(place, key))
            for key, inner in value.items()
        }
    try:
        return convert(value, kind)
    except Unreadable as error:
        problem = str(error).replace("`object`", "`table`")
        problem = problem.replace("Invalid enum value", "unknown value")
        if known := _choices(kind):
            problem += f"; known are {', '.join(known)}"
        # Within a list the message begins with the number of the item: "[1]: Expected `int`".
        raise _Wrong(place + ("" if problem.startswith("[") else ": ") + problem) from None


def _record(values: Mapping[str, Any], kind: Any, place: str, given: Mapping[str, Any]) -> Any:
    known = {field.name: field for field in fields(kind) if field.name not in given}
    types = get_type_hints(kind, include_extras=True)
    for key in values:
        if key not in known:
            raise _Wrong(f"{_at(place, key)}: unknown key; known here: {', '.join(known)}")
    for key, field in known.items():
        if key not in values and field.default is field.default_factory is MISSING:
            raise _Wrong(f"{_at(place, key)}: this key is missing")
    converted = {key: _converted(values[key], types[key], _at(place, key)) for key in values}
    try:
        return kind(**converted, **given)
    except ValueError as error:
        raise _Wrong(f"{place}.{error}" if place else str(error)) from None


def _choices(kind: Any) -> list[str]:
    """Return the values of an Enum or a Literal, also if the kind is a list of them."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [str(member.value) for member in kind]
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    return [choice for part in get_args(kind) for choice in _choices(part)]


def _at(place: str, key: str) -> str:
    """Return the place of a key in the table at `place`."""
    name = key if re.fullmatch(r"[\w-]+", key) else f'"{key}"'
    return f"{place}.{name}" if place else name
