"""What no tool prints, and anybody may find in its output."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdperf.plan.collectives import Collective
from hvdperf.transport_tools import nccl_tests, osu
from hvdperf.transport_tools.figures import NotUnderstood
from tests.support.damage import FUZZ, edited_blindly

RECORDED = Path(__file__).parent / "recorded"


@pytest.mark.parametrize(
    ("parse", "name", "collective", "world_size"),
    [
        (osu.parse, "osu_bcast_7.3.txt", Collective.BROADCAST, 128),
        (nccl_tests.parse, "nccl_all_gather_2.18.0.txt", Collective.ALLGATHER, 2),
    ],
)
@FUZZ
@given(data=st.data())
def test_whatever_is_printed_is_read_or_not_understood_in_a_line(
    data, parse, name, collective, world_size
):
    try:
        figures = parse(edited_blindly(data, (RECORDED / name).read_text()), collective, world_size)
    except NotUnderstood as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert all(figure.seconds > 0 and figure.size_bytes > 0 for figure in figures)
