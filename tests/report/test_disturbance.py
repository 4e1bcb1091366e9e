"""Who else used the cores, on the page."""

from __future__ import annotations

from hvdperf.machine.disturbance import Culprit
from hvdperf.report.sections import machine
from tests.report.checks import assert_sound
from tests.support.rounds import disturbance
from tests.support.stores import session_of_cases

QUIET = disturbance(0.01, 10.0)
BUSY = disturbance(0.31, 70.0, Culprit("python", 1234, 9.6, (1,)))


def test_where_nothing_was_recorded_there_is_nothing():
    assert machine.disturbance(None) is None
    assert machine.disturbance(session_of_cases()) is None


def test_every_round_is_a_row_and_the_culprits_stand_below():
    found = machine.disturbance(session_of_cases(disturbances=(QUIET, BUSY)))
    assert found is not None
    assert_sound(found)
    over_time, culprits = found.figures
    assert [round(float(str(row["minute"])), 2) for row in over_time.table.rows] == [0.17, 1.17]
    assert "16 %" in over_time.says
    assert "1 of 2 rounds" in over_time.says
    assert [(row["name"], row["pid"]) for row in culprits.table.rows] == [("python", 1234)]


def test_a_quiet_session_names_nobody():
    found = machine.disturbance(session_of_cases(disturbances=(QUIET,)))
    assert found is not None
    assert [figure.name for figure in found.figures] == ["disturbance"]
