"""What the suite says of itself: tonight's A/A, and what it has caught of what was injected."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hvdperf.plan.questions import aa
from hvdperf.records.detections import Entry, Tried
from hvdperf.report.sections import comparisons
from hvdperf.verdict import Band, Verdict, smallest_detectable_effect
from tests.report.checks import assert_sound
from tests.support.reports import cases_of
from tests.support.rounds import WORKLOAD, outcome

FINGERPRINT = {"cores": 2, "cpu_model": "CPU", "tensorflow": "2.18.1", "horovod": "0.28.1"}


def tried(trial: str, verdict: Verdict, called: Verdict) -> Tried:
    return Tried(trial, "vgg_16_s", 2, verdict, called, ">= 0.95", 0.9)


def entry(session: str, *each: Tried, **otherwise: object) -> Entry:
    return Entry(session, {**FINGERPRINT, **otherwise}, {}, each)


CAUGHT = tried("slow10", Verdict.PASS, Verdict.FAIL)
MISSED = tried("slow10", Verdict.FAIL, Verdict.PASS)
OPEN = tried("slow10", Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE)
QUIET = tried("aa", Verdict.PASS, Verdict.PASS)


def test_shares_are_of_all_sessions():
    log = [entry("a", CAUGHT, QUIET), entry("b", CAUGHT), entry("c", MISSED), entry("d", OPEN)]
    section = comparisons.trust([], log, FINGERPRINT)
    assert_sound(section)
    (figure,) = section.figures
    twin, slow = figure.table.rows
    assert (twin["reported"], twin["sessions"], twin["must"]) == (1, 1, "PASS")
    assert (slow["reported"], slow["sessions"], slow["inconclusive"]) == (2, 4, 1)
    assert slow["share"] == pytest.approx(50)
    # Clopper and Pearson, 2 of 4: their figures, from a table of the F distribution.
    assert slow["lower"] == pytest.approx(6.76, abs=0.01)
    assert slow["upper"] == pytest.approx(93.24, abs=0.01)
    assert ": 3 of 5 fault cases were reported with the expected verdict." in figure.says


def test_what_was_measured_otherwise_is_not_counted():
    log = [replace(entry("a", MISSED), settings={"batch": "64"}), entry("b", CAUGHT)]
    (figure,) = comparisons.trust([], log, FINGERPRINT).figures
    assert [row["reported"] for row in figure.table.rows] == [1]
    assert "; 1 not counted, because their conditions differ" in figure.says


def test_counts_of_another_machine_are_not_on_the_page():
    """The suite ships with those of one: they say nothing of the user's."""
    log = [entry("a", CAUGHT), entry("b", MISSED, cores=4)]
    (figure,) = comparisons.trust([], log, FINGERPRINT).figures
    assert [(row["reported"], row["sessions"]) for row in figure.table.rows] == [(1, 1)]
    section = comparisons.trust([], log, {**FINGERPRINT, "cpu_model": "another"})
    assert section.figures == ()
    assert "make trust has measured no session on this machine" in section.missing


def test_what_only_the_cases_differ_in_is_the_same_machine():
    log = [entry("a", CAUGHT, data_sets=["cifar10: 6 files"], rank_cores=["0: 0", "1: 1"])]
    session = {**FINGERPRINT, "data_sets": [], "rank_cores": ["0: 0"]}
    assert comparisons.trust([], log, session).figures != ()


def test_what_came_to_no_verdict_was_not_called():
    section = comparisons.trust([], [entry("a", OPEN)], FINGERPRINT)
    assert_sound(section)
    (row,) = section.figures[0].table.rows
    assert (row["reported"], row["sessions"], row["share"]) == (0, 1, 0)
    not_judged = tried("slow10", Verdict.NOT_JUDGED, Verdict.NOT_JUDGED)
    section = comparisons.trust([], [entry("a", not_judged)], FINGERPRINT)
    assert_sound(section)
    (row,) = section.figures[0].table.rows
    assert (row["sessions"], row["share"], row["lower"]) == (0, None, None)


def test_tonights_noise_is_shown(tmp_path):
    ratios = [0.99, 1.01, 1.0, 0.98, 1.02, 1.0]
    cases = cases_of(tmp_path, outcome(aa(WORKLOAD, 2), ratios, Band(0.9, 1.1)))
    section = comparisons.trust(cases, [], FINGERPRINT)
    assert_sound(section)
    (row,) = section.figures[0].table.rows
    figure = cases[0].figure
    assert figure is not None
    assert row["minimum_detectable_effect"] == 100 * smallest_detectable_effect(figure)


def test_an_a_a_case_that_differs_is_called_so(tmp_path):
    noisy = outcome(aa(WORKLOAD, 2), [0.8] * 6, Band(0.9, 1.1), Verdict.INVALID, "they differ")
    (figure,) = comparisons.trust(cases_of(tmp_path, noisy), [], FINGERPRINT).figures
    assert figure.says.endswith("0.800 [0.800, 0.800] INVALID. Intervals: 90 % confidence.")
    assert "do not differ" not in figure.says


def test_nothing_says_what_would_tell():
    assert "make trust" in comparisons.trust([], [], FINGERPRINT).missing
