"""What holds for every section, whatever it is about."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from report.content import Section


def assert_sound(section: Section) -> None:
    """Names are legal and unique, rows whole and numbers finite, and plots are of their columns."""
    names = [figure.name for figure in section.figures]
    assert len(names) == len(set(names))
    for figure in section.figures:
        assert re.fullmatch(r"[a-z0-9_-]+", figure.name)
        assert figure.title
        assert figure.says
        keys = [column.key for column in figure.table.columns]
        assert len(keys) == len(set(keys))
        for row in figure.table.rows:
            assert list(row) == keys
            assert all(math.isfinite(v) for v in row.values() if isinstance(v, int | float))
        if figure.plot is not None:
            assert set(fields(figure.plot)) <= {*keys, *made(figure.plot)}


def fields(part: Any) -> Iterator[str]:
    """Every field that a plot names."""
    if isinstance(part, dict):
        if isinstance(part.get("field"), str):
            yield part["field"]
        for each in part.values():
            yield from fields(each)
    elif isinstance(part, list | tuple):
        for each in part:
            yield from fields(each)


def made(part: Any) -> Iterator[str]:
    """Every field that a transform of it makes."""
    if isinstance(part, dict):
        made_as = part.get("as")
        yield from [made_as] if isinstance(made_as, str) else made_as or []
        for each in part.values():
            yield from made(each)
    elif isinstance(part, list | tuple):
        for each in part:
            yield from made(each)
