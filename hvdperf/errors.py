"""Errors of the user's input or of the host, not of the suite."""

from __future__ import annotations


class UserError(Exception):
    """Bad input or a host that is not ready: shown as one line, before anything is launched.

    The message says what is wrong, where, and what to do.
    """
