"""The machine on the page: fingerprint, and who else used the cores."""

from __future__ import annotations

from typing import Any

from hvdperf.machine.disturbance import Culprit
from hvdperf.report.sections import machine
from tests.report.cases import assert_sound, figures_of
from tests.support.rounds import disturbance

NOW: Any = {"tensorflow": "2.18.1", "gpu_model": [], "smt": None, "cores": 2}


def test_every_field_is_told():
    section = machine.section(NOW, ())
    assert_sound(section)
    rows = figures_of(section)["fingerprint"].table.rows
    assert {row["field"]: row["value"] for row in rows} == {
        "tensorflow": "2.18.1",
        "gpu_model": "(none)",
        "smt": "(unknown)",
        "cores": "2",
    }


QUIET = disturbance(0.01, 10.0)
BUSY = disturbance(0.31, 70.0, Culprit("python", 1234, 9.6, (1,)))


def test_every_round_is_a_row_and_the_culprits_are_named():
    found = machine.section(NOW, (QUIET, BUSY))
    assert_sound(found)
    _, over_time = found.figures
    assert [round(float(str(row["minute"])), 2) for row in over_time.table.rows] == [0.17, 1.17]
    assert "16 %" in over_time.says
    assert "1 of 2 rounds" in over_time.says
    assert "python (pid 1234) " in over_time.says
