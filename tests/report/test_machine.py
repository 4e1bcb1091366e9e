"""The machine on the page: fingerprint, and who else used the cores."""

from __future__ import annotations

from typing import Any

from hvdperf.machine.disturbance import Culprit
from hvdperf.report.sections import machine
from hvdperf.verdict import Verdict
from tests.report.cases import assert_sound, figures_of, known
from tests.support.rounds import disturbance
from tests.support.stores import session_of_cases

NOW: Any = {"tensorflow": "2.18.1", "gpu_model": [], "smt": None, "cores": 2}


def test_every_field_is_told():
    section = machine.section(NOW, session_of_cases(fingerprint=NOW), None)
    assert_sound(section)
    rows = figures_of(section)["fingerprint"].table.rows
    assert {row["field"]: row["value"] for row in rows} == {
        "tensorflow": "2.18.1",
        "gpu_model": "(none)",
        "smt": "(unknown)",
        "cores": "2",
    }


def test_what_changed_is_marked_and_said():
    now = session_of_cases(fingerprint=NOW)
    before = session_of_cases(fingerprint={**NOW, "tensorflow": "2.15.1"})
    figure = figures_of(machine.section(NOW, now, before))["fingerprint"]
    assert "tensorflow: 2.15.1 -> 2.18.1" in figure.says
    changed = {row["field"] for row in figure.table.rows if row["changed"]}
    assert changed == {"tensorflow"}
    # A field that is new is a change.
    before = session_of_cases(fingerprint={"tensorflow": "2.18.1"})
    figure = figures_of(machine.section(NOW, now, before))["fingerprint"]
    new = {row["field"] for row in figure.table.rows if row["changed"]}
    assert new == {"gpu_model", "smt", "cores"}


def test_verdicts_that_changed_are_listed():
    before = session_of_cases(verdicts={"a": Verdict.PASS, "b": Verdict.PASS})
    now = session_of_cases(verdicts={"a": Verdict.PASS, "b": Verdict.FAIL, "c": Verdict.PASS})
    section = machine.section(NOW, now, before)
    assert_sound(section)
    assert figures_of(section)["changed-verdicts"].table.rows == (
        {"case": "b", "before": "PASS", "verdict": "FAIL"},
    )


def test_two_stacks_differ_package_by_package():
    section = machine.section(NOW, session_of_cases(changed=("keras: 2.15.0 -> 3.15.1",)), None)
    assert figures_of(section)["stacks"].table.rows == ({"change": "keras: 2.15.0 -> 3.15.1"},)


QUIET = disturbance(0.01, 10.0)
BUSY = disturbance(0.31, 70.0, Culprit("python", 1234, 9.6, (1,)))


def test_every_round_is_a_row_and_the_culprits_stand_below():
    found = known(machine.disturbance(session_of_cases(disturbances=(QUIET, BUSY))))
    assert_sound(found)
    over_time, culprits = found.figures
    assert [round(float(str(row["minute"])), 2) for row in over_time.table.rows] == [0.17, 1.17]
    assert "16 %" in over_time.says
    assert "1 of 2 rounds" in over_time.says
    assert [(row["name"], row["pid"]) for row in culprits.table.rows] == [("python", 1234)]
    quiet = known(machine.disturbance(session_of_cases(disturbances=(QUIET,))))
    assert [figure.name for figure in quiet.figures] == ["disturbance"]
    assert machine.disturbance(None) is machine.disturbance(session_of_cases()) is None
