"""Errors of the user's input or of the host, not of the suite, and the words of messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class UserError(Exception):
    """Bad input or a host that is not ready: shown as one line, before anything is launched.

    The message says what is wrong, where, and what to do.
    """


@contextmanager
def refusing(what: str, kind: type[Exception], then: str = "") -> Iterator[None]:
    """Raise a UserError instead of errors of this kind, which says what is wrong, the error (of an
    OSError only its reason), and what to do then."""
    try:
        yield
    except kind as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{what}{reason}{then}") from None


def first_of(names: Sequence[str], most: int = 3) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + f" and {more} more" * (more > 0)
