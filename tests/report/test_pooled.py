"""Sessions of several days as one: each is one observation, whatever its rounds say."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

import pytest

from hvdperf.errors import UserError
from hvdperf.plan.questions import parity, weak_scaling
from hvdperf.records.archive import Archive, read_session
from hvdperf.records.outcome import Outcome, each_launch
from hvdperf.report.methods import methods
from hvdperf.report.pooled import between, pooled, section
from hvdperf.report.session import read_sources, session_report
from hvdperf.stats import Interval
from hvdperf.verdict import Floor, Verdict
from tests.report.cases import assert_sound, edit
from tests.support.reports import session_of
from tests.support.rounds import WORKLOAD, outcome

WEAK, PARITY = weak_scaling(WORKLOAD, 2), parity(WORKLOAD, 2)
# Rounds of a quiet session.
RATIOS = (0.898, 0.899, 0.9, 0.901, 0.902, 0.9, 0.9, 0.9)
DAYS = ("20260130T000000Z-1", "20260131T000000Z-2", "20260201T000000Z-3", "20260202T000000Z-4")


def of_day(factor: float) -> Outcome:
    return outcome(WEAK, [factor * ratio for ratio in RATIOS])


def sessions(tmp_path: Path, *days: list[Outcome]) -> list[Archive]:
    return [
        read_session(session_of(tmp_path, *outcomes, name=name))
        for name, outcomes in zip(DAYS, days, strict=False)
    ]


def only_figure(archive: Archive) -> Interval:
    (case,) = archive.cases
    assert case.figure is not None
    return case.figure


def test_days_that_differ_widen_the_interval_beyond_that_of_their_rounds(tmp_path):
    archives = sessions(tmp_path, *([of_day(factor)] for factor in (0.97, 1.0, 1.03, 1.0)))
    figure = only_figure(pooled(archives))
    own = list(map(only_figure, archives))
    logs = [math.log(each.estimate) for each in own]
    # The quantile of Student's t with 3 degrees of freedom, from a printed table.
    half = 3.182 * stdev(logs) / 2
    assert math.log(figure.estimate) == pytest.approx(fmean(logs))
    assert math.log(figure.upper / figure.estimate) == pytest.approx(half, rel=1e-3)
    assert all(each.upper - each.lower < figure.upper - figure.lower for each in own)
    assert between(own) == pytest.approx(stdev(logs), rel=0.05)


def test_days_that_are_alike_have_no_variance_between_them(tmp_path):
    archives = sessions(tmp_path, [of_day(1.0)], [of_day(1.0001)], [of_day(0.9999)])
    assert between(list(map(only_figure, archives))) == 0


@pytest.mark.parametrize(
    ("limit", "verdict"), [(0.8, Verdict.PASS), (0.9, Verdict.INCONCLUSIVE), (0.99, Verdict.FAIL)]
)
def test_the_pooled_interval_decides(tmp_path, limit, verdict):
    day = outcome(WEAK, RATIOS, rule=Floor.at(limit))
    other = outcome(WEAK, [1.01 * ratio for ratio in RATIOS], rule=Floor.at(limit))
    assert pooled(sessions(tmp_path, [day], [other], [day], [other])).cases[0].verdict is verdict


def test_launches_of_all_sessions_are_kept_apart(tmp_path):
    made = pooled(sessions(tmp_path, [of_day(1)], [of_day(1)], [of_day(1)]))
    assert len(list(each_launch(made.cases))) == 3 * 2 * len(RATIOS)


def test_a_case_of_one_session_is_left_out_and_named(tmp_path):
    made = pooled(sessions(tmp_path, [of_day(1), outcome(PARITY, RATIOS)], [of_day(1)]))
    assert [case.name for case in made.cases] == [WEAK.name]
    assert any(PARITY.name in line for line in made.left_out)


def test_a_report_of_several_shows_each(tmp_path):
    first, *others = (session_of(tmp_path, of_day(1), name=name) for name in DAYS[:3])
    sources = read_sources(first, others)
    shown = section(sources.archive)
    assert shown is not None
    assert_sound(shown)
    (row,) = shown.figures[0].table.rows
    assert row["sessions"] == 3
    assert session_report(sources).sections
    assert methods(sources.archive)


def test_cases_of_one_name_that_ask_another_thing_are_not_averaged(tmp_path):
    (first,) = sessions(tmp_path, [of_day(1)])
    batch = outcome(weak_scaling(replace(WORKLOAD, batch=64), 2), RATIOS)
    other = read_session(session_of(tmp_path, batch, name=DAYS[1]))
    with pytest.raises(UserError, match="batch 32 in A, 64 in B"):
        pooled([first, other])
    spread = read_session(session_of(tmp_path, of_day(1), per_node=1, name=DAYS[2]))
    with pytest.raises(UserError, match="rank_cores"):
        pooled([first, spread])


def test_what_differs_but_does_not_matter_is_told_of_all(tmp_path):
    directories = [session_of(tmp_path, of_day(1), name=name) for name in DAYS[:2]]
    edit(directories[1], {"suite": "9.9 (abc)", "hosts": ["n2"]}, only="session.json")
    made = pooled(list(map(read_session, directories))).session
    assert made is not None
    assert "9.9 (abc)" in made.suite
    assert "n2" in made.hosts


def test_another_stack_or_the_same_session_is_refused(tmp_path):
    directories = [session_of(tmp_path, of_day(1), name=name) for name in DAYS[:2]]
    first = read_session(directories[0])
    with pytest.raises(UserError, match="given twice"):
        pooled([first, first])
    edit(directories[1], {"tensorflow": "1.0"}, "fingerprint")
    with pytest.raises(UserError, match="tensorflow"):
        pooled([first, read_session(directories[1])])
    (directories[1] / "session.json").unlink()
    with pytest.raises(UserError, match=r"session\.json"):
        pooled([first, read_session(directories[1])])
