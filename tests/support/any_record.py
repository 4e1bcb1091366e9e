"""Any record of a kind, made from its annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from datetime import UTC, date, datetime
from enum import Enum
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec
from hypothesis import strategies as st

# Sequences are short, because documents have sequences within sequences.
LONGEST = 1
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(max_size=5),
    NoneType: st.none(),
    datetime: st.datetimes(timezones=st.just(UTC)).map(lambda time: time.replace(fold=0)),
    date: st.dates(),
    Any: st.none() | st.integers() | st.text(max_size=5),
}


def any_record(kind: Any, limits: msgspec.Meta | None = None) -> st.SearchStrategy[Any]:
    """Return a strategy for values of an annotation that msgspec understands.

    Of a figure that may be missing it draws None, and no infinity, since documents have null for
    both. limits: of a number or a length."""
    origin, arguments = get_origin(kind), get_args(kind)
    least = limits.min_length or 0 if limits else 0
    if origin is NotRequired:
        return any_record(arguments[0])
    if origin is Annotated:
        return any_record(arguments[0], arguments[1])
    if origin in (Union, UnionType):
        return st.one_of(*map(any_record, arguments))
    if origin in (tuple, list, Sequence):
        items = st.lists(any_record(arguments[0]), min_size=least, max_size=max(least, LONGEST))
        return items.map(tuple) if origin is tuple else items
    if origin in (dict, Mapping):
        return st.dictionaries(*map(any_record, arguments), max_size=LONGEST)
    if kind is int:
        least_number = None if limits is None or limits.ge is None else int(limits.ge)
        return st.integers(min_value=least_number)
    if kind is str and limits and limits.pattern:
        return st.from_regex(limits.pattern)
    if kind is float and limits and limits.gt is not None:
        return st.floats(limits.gt, exclude_min=True, allow_infinity=False)
    if kind in PLAIN:
        return PLAIN[kind]
    if issubclass(kind, Enum):
        return st.sampled_from(kind)
    fields = {name: any_record(each) for name, each in _fields(kind).items()}
    return st.fixed_dictionaries(fields) if is_typeddict(kind) else st.builds(kind, **fields)


def _fields(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    if is_dataclass(kind):
        names = kind.__dataclass_fields__
    else:
        # A subclass without fields of its own has those of its base.
        names = getattr(kind, "__struct_fields__", kind.__annotations__)
    return {name: hints[name] for name in names}
