"""Records as JSON and back: dataclasses whose annotations are the schema of their documents.

JSON has neither NaN nor infinities. Records write them as null and restore them when they are read.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import msgspec

Kind = TypeVar("Kind")

# The annotation of a figure that may be NaN. A document has null in its place.
if TYPE_CHECKING:
    Number = float
else:
    Number = float | None


class Unreadable(ValueError):
    """A text that is no document of the kind that was asked for; the message says why."""


class Figures:
    """Base of dataclasses with fields of type `Number`, `Sequence[Number]` or rows of these. It
    replaces a null that was read by `NULL`."""

    NULL: ClassVar[float] = math.nan

    def __post_init__(self) -> None:
        for field in fields(self):  # type: ignore[arg-type]
            if "Number" in str(field.type):
                value = _restored(getattr(self, field.name), self.NULL)
                object.__setattr__(self, field.name, value)


def _restored(value: Any, null: float) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_restored(item, null) for item in value)
    return null if value is None else value


def encode(record: object) -> bytes:
    """Return a record as indented JSON that ends with a newline."""
    return msgspec.json.format(_encoded(record), indent=1) + b"\n"


def _encoded(record: object) -> bytes:
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:
        # A name of a file that is not UTF-8, for example.
        return msgspec.json.encode(_escaped(msgspec.to_builtins(record)))


def _escaped(value: Any) -> Any:
    """Return the value with escapes for what UTF-8 cannot encode."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list | tuple):
        return [_escaped(item) for item in value]
    if isinstance(value, dict):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    return value


def plain(record: object) -> Any:
    """Return a record as the dictionaries and lists that its document has."""
    return msgspec.json.decode(_encoded(record))


def decode(text: bytes, kind: type[Kind]) -> Kind:
    """Return the record of that kind that the JSON text holds. Raises Unreadable."""
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError:
        raise Unreadable("nested more deeply than any document") from None
    except msgspec.ValidationError as error:
        raise Unreadable(_placed(error)) from None
    except (ValueError, OverflowError) as error:
        raise Unreadable(f"not valid JSON: {error}") from None


def convert(value: object, kind: type[Kind]) -> Kind:
    """Return the record of that kind that plain dictionaries and lists hold. Raises Unreadable."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise Unreadable(_placed(error)) from None


def schema(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a kind of record."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **msgspec.json.schema(kind),
    }


def _placed(error: msgspec.ValidationError) -> str:
    """Return the error's message with the place first: `rounds[0].number: expected ...`."""
    message, _, place = str(error).partition(" - at `$")
    where = place.rstrip("`").removeprefix(".")
    return f"{where}: {message}" if where else message
