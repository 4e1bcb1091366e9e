"""Records as JSON and back: dataclasses whose annotations are the schema of their documents.

JSON has neither NaN nor infinities. Records write them as null and restore them when they are read.
"""

from __future__ import annotations

import math
from dataclasses import fields
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

import msgspec

Kind = TypeVar("Kind")

# Annotations of whole numbers from 0 on and from 1 on, and of a time with its zone.
Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]

# The annotation of a figure that may be NaN. A document has null in its place.
if TYPE_CHECKING:
    Number = float
else:
    Number = float | None


class Unreadable(ValueError):
    """A text that is no document of the kind that was asked for; the message says why."""


class Figures:
    """Base of dataclasses with fields of type `Number`, `Sequence[Number]` or rows of these. A null
    that was read becomes `NULL`."""

    NULL: ClassVar[float] = math.nan

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name in _numbers(kind):
            object.__setattr__(self, name, _restored(getattr(self, name), self.NULL))


@cache
def _numbers(kind: Any) -> tuple[str, ...]:
    """Return the names of a dataclass's fields that hold a `Number`, or several."""
    return tuple(field.name for field in fields(kind) if "Number" in str(field.type))


def _restored(value: Any, null: float) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_restored(item, null) for item in value)
    return null if value is None else value


def encode(record: object) -> bytes:
    """Return a record as indented JSON that ends with a newline."""
    return msgspec.json.format(_encoded(record), indent=1) + b"\n"


def plain(record: object) -> Any:
    """Return a record as the dictionaries and lists that its document has."""
    return msgspec.json.decode(_encoded(record))


def _encoded(record: object) -> bytes:
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:
        return msgspec.json.encode(_without_surrogates(msgspec.to_builtins(record)))


def _without_surrogates(value: Any) -> Any:
    """Return plain dictionaries and lists with lone surrogates as escapes, such as `\\udcff`.
    Python puts one into a file's name for each byte that is not UTF-8; JSON cannot hold them."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(value[key]) for key in value}
    if isinstance(value, list | tuple):
        return [_without_surrogates(item) for item in value]
    return value


def decode(text: bytes, kind: type[Kind]) -> Kind:
    """Return the record of that kind that the JSON text holds. If a key occurs twice, its last
    value counts. Raises Unreadable."""
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError:
        raise Unreadable("nested too deeply") from None
    except msgspec.ValidationError as error:
        raise Unreadable(_placed(error)) from None
    except ValueError as error:
        raise Unreadable(f"not valid JSON: {error}") from None


def convert(value: object, kind: type[Kind]) -> Kind:
    """Return the record of that kind that plain dictionaries and lists hold. Raises Unreadable."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise Unreadable(_placed(error)) from None


def schema(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a kind of record, in which the docstrings are descriptions."""
    made = msgspec.json.schema(kind)
    for definition in made["$defs"].values():
        if "description" in definition:
            definition["description"] = " ".join(definition["description"].split())
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def _placed(error: msgspec.ValidationError) -> str:
    """Return the error's message with the place first: `rounds[0].number: expected ...`."""
    message, at, place = str(error).rpartition(" - at `$")
    where = place.rstrip("`").removeprefix(".") if at else ""
    return f"{where}: {message}" if where else message or place
