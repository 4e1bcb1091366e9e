"""The refusal of a data set."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hvdperf.models.inputs import DataError


def refusal(call: Callable[[], object]) -> str:
    """Return the message of the DataError that the call raises: one line that says what to do."""
    with pytest.raises(DataError) as raised:
        call()
    message = str(raised.value)
    assert "\n" not in message
    assert "; " in message
    return message
