"""Names of figures from whatever a network is called."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256

from report.content import Figure

# Of one part of a name, so that it stays a file's.
_LONGEST = 40


def slug(*parts: object) -> str:
    """Of a-z, 0-9, "_" and "-": such as ledger-vgg_16_s-np2. What has to be changed for that, or
    cut, ends with a hash of what it was, so that two that differ stay two."""
    return "-".join(_part(str(part)) for part in parts)


def _part(text: str) -> str:
    legal = re.sub(r"[^a-z0-9_]+", "_", text.lower()).strip("_")[:_LONGEST]
    if legal == text and text:
        return text
    return f"{legal}_{sha256(text.encode(errors='replace')).hexdigest()[:8]}".lstrip("_")


def unique(figures: Iterable[Figure]) -> tuple[Figure, ...]:
    """The same, where a name comes again with a number behind it."""
    seen: Counter[str] = Counter()
    names: set[str] = set()
    found = []
    for figure in figures:
        name = figure.name
        while name in names:
            seen[figure.name] += 1
            name = f"{figure.name}-{seen[figure.name] + 1}"
        names.add(name)
        found.append(figure if name == figure.name else replace(figure, name=name))
    return tuple(found)
