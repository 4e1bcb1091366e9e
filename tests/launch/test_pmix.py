"""How a rank asks for rank 0's text. Whole sessions under mpirun ask the real library."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hvdperf.errors import UserError
from hvdperf.launch.outer import pmix


class Library:
    """A PMIx that answers with these statuses, one a request, and has the text with the last."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.value = pmix._Value(pmix._STRING, b"the text")

    def PMIx_Get(self, *arguments: Any) -> int:  # noqa: N802
        found = arguments[-1]._obj
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if status == 0:
            found.contents = self.value
        return status


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that looks up the text in a PMIx with these answers."""
    monkeypatch.setattr(pmix, "_POLL_S", 0.001)
    monkeypatch.setattr(pmix, "FOUND_S", 0.05)

    def look_up(*statuses: int) -> str:
        @contextmanager
        def initialized() -> Iterator[tuple[Library, pmix._Process]]:
            yield Library(*statuses), pmix._Process()

        monkeypatch.setattr(pmix, "_initialized", initialized)
        return pmix.look_up()

    return look_up


def test_a_rank_takes_the_text_that_is_there(asked: Any) -> None:
    assert asked(0) == "the text"


def test_a_rank_that_asks_too_early_asks_again(asked: Any) -> None:
    """Open MPI tells some of 200 ranks that there is no text, before rank 0 has given it."""
    assert asked(-46, -46, -46, 0) == "the text"


def test_a_rank_whose_rank_0_gives_no_text_leaves(asked: Any) -> None:
    assert asked(-46) == ""


def test_another_error_names_the_function(asked: Any) -> None:
    with pytest.raises(UserError, match="PMIx_Get failed with status -25"):
        asked(-25)


def test_the_values_have_the_size_of_the_library() -> None:
    assert ctypes.sizeof(pmix._Value) == 72
