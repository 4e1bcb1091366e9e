"""Damaged files, as they may be found: with any JSON in one place, or edited blindly."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from hvdperf.json_records import Unreadable, decode, encode

FUZZ = settings(deadline=None, max_examples=60)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)

PIECES = st.text(max_size=5) | st.sampled_from(
    ["", "nan", "inf", "-1", "1e999", "0", "#", "\n", "9" * 400, "9" * 5000, "\x00"]
)


def spots(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to every value of a document."""
    children = node.items() if isinstance(node, dict) else enumerate(node)
    for key, child in children:
        yield (*path, key)
        if isinstance(child, dict | list):
            yield from spots(child, (*path, key))


def with_something_strange(data: st.DataObject, document: Any) -> Any:
    """Return a copy of the document with any JSON in one of its places."""
    changed = copy.deepcopy(document)
    *parents, field = data.draw(st.sampled_from(list(spots(changed))))
    node = changed
    for key in parents:
        node = node[key]
    node[field] = data.draw(JSON)
    return changed


def edited_blindly(data: st.DataObject, text: str) -> str:
    """Return the text with up to three pieces cut out or replaced by others."""
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 40)))
        text = text[:start] + data.draw(PIECES) + text[end:]
    return text


def damaged_json(data: st.DataObject, text: str) -> str:
    """Return the text of a document, with any JSON in one of its places, or edited blindly."""
    if data.draw(st.booleans()):
        return json.dumps(with_something_strange(data, json.loads(text)))
    return edited_blindly(data, text)


def assert_read_or_refused(text: str, kind: type[object]) -> None:
    """Assert that a record is read from the text and encoded as it was read, or that the text is
    refused in one line. Encodings are compared, since a default is a tuple, and a list is read."""
    try:
        read = decode(text.encode(errors="surrogatepass"), kind)
    except Unreadable as error:
        assert "\n" not in str(error)
    else:
        assert encode(decode(encode(read), kind)) == encode(read)
