"""A document is the encoding of its record: it holds everything, and only what is of its case."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from bench.trust import Entry
from docs.generate import DOCUMENTS
from hvdperf.json_records import Unreadable, decode, encode, plain, schema
from hvdperf.machine.disturbance import Culprit
from hvdperf.plan.questions import communication, memory, parity, sweep, wall_time, weak_scaling
from hvdperf.records.documents import (
    Case,
    Limit,
    own_round,
    properties,
    row_of,
    session_name,
    with_culprits_kept,
)
from hvdperf.records.outcome import Failure, Outcome
from hvdperf.records.rounds import StampedRun
from hvdperf.verdict import REGRESSION, Band, Ceiling, Floor, Verdict
from hvdperf.work.blocks import turns_of
from hvdperf.work.training import stamped
from tests.support.any_record import any_record
from tests.support.rounds import (
    HOROVOD_1,
    HOROVOD_2,
    WORKLOAD,
    disturbance,
    one_round,
    outcome,
    rank_report,
    run_report,
    usage,
)
from tests.support.stores import case_of
from tests.support.with_timestamps import round_with_timestamps

WEAK = weak_scaling(WORKLOAD, 2)
RATIOS = (0.91, 0.92, 0.93, 0.94, 0.95, 0.96)


def again(measured: Outcome) -> Case:
    """Return the case as it is read from its document."""
    return decode(encode(case_of(measured)), Case)


# There and back --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*DOCUMENTS.values(), Entry])
def test_any_record_is_read_as_it_was_written(kind):
    valid = jsonschema.Draft202012Validator(schema(kind))

    @settings(deadline=None, max_examples=30, suppress_health_check=[*HealthCheck])
    @given(any_record(kind))
    def check(record: Any) -> None:
        # The text of a record shows NaN, too, which equals nothing.
        assert repr(decode(encode(record), kind)) == repr(record)
        valid.validate(plain(record))

    check()


def test_a_bound_that_is_infinite_is_null_and_infinite_again():
    case = case_of(outcome(WEAK, RATIOS[:1]))
    assert plain(case)["outcome"]["judgement"]["figure"]["upper"] is None
    figure = decode(encode(case), Case).figure
    assert figure is not None
    assert (figure.lower, figure.upper) == (0.0, math.inf)


def test_what_a_rank_measured_as_no_number_is_none_again():
    broken = replace(rank_report(1.0, 320), seconds=math.nan, loss=math.inf)
    run = replace(run_report(), curve=[[50, 1.5], [100, math.inf]])
    measured = outcome(WEAK, RATIOS[:1])
    launched = measured.rounds[0].of(HOROVOD_2)
    own = replace(launched.blocks[0], ranks=[broken, rank_report(1.0, 320)])
    launched.work = StampedRun([run], blocks=[own])
    read = again(measured).rounds[0].of(HOROVOD_2)
    assert math.isnan(read.blocks[0].ranks[0].seconds)
    assert math.isnan(read.blocks[0].ranks[0].loss)
    assert read.blocks[0].ranks[1] == rank_report(1.0, 320)
    assert repr(read.run[0].curve) == repr([[50.0, 1.5], [100.0, math.nan]])


def without_threshold() -> Outcome:
    measured = outcome(WEAK, RATIOS, verdict=Verdict.INVALID, reason="no threshold")
    return replace(measured, threshold_line='"weak_scaling" = 0.9')


def of_a_failed_launch() -> Outcome:
    failure = Failure(HOROVOD_2.name, 1, "block", "it broke", ["last words"])
    return outcome(WEAK, RATIOS, verdict=Verdict.FAIL, failure=failure)


@pytest.mark.parametrize(
    ("measured", "sound"),
    [
        (outcome(WEAK, RATIOS), True),
        (outcome(WEAK, RATIOS, verdict=Verdict.FAIL), True),
        (outcome(WEAK, RATIOS, verdict=Verdict.INCONCLUSIVE), True),
        (without_threshold(), True),
        (outcome(WEAK, RATIOS, verdict=Verdict.INVALID, reason="a NaN"), False),
        (outcome(WEAK, RATIOS, verdict=Verdict.INFO, reason="they share a core"), False),
        (of_a_failed_launch(), False),
        (outcome(WEAK, (), verdict=Verdict.INCONCLUSIVE), False),
    ],
)
def test_a_figure_is_sound_if_it_was_measured(measured, sound):
    assert again(measured).is_sound is sound


# Damaged documents -----------------------------------------------------------------------------


def full() -> str:
    """Return a document with something in every part of a case."""
    measured = outcome(WEAK, RATIOS[:1])
    marked = round_with_timestamps(wall_time(WORKLOAD, 2)[1], 0).launches[0]
    launched = measured.rounds[0].of(HOROVOD_2)
    turns = turns_of(launched)
    turns.series = list(one_round(sweep(WORKLOAD, 2)[0], 4.0).launches[0].series[:1])
    turns.blocks = [replace(launched.blocks[0], usage=usage(0.1))]
    stamped(marked).run = marked.run[:1]
    measured.rounds[0].of(HOROVOD_1).work = marked.work
    return encode(case_of(replace(measured, failure=of_a_failed_launch().failure))).decode()


FULL = full()
LAUNCHES = "outcome.rounds.0.launches"


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("outcome.judgement.verdict", "FINE", "judgement.verdict: Invalid enum value 'FINE'"),
        ("outcome.judgement.rule.kind", "ceiling", "judgement.rule: Object missing"),
        ("outcome.comparison.candidate.arm.world_size", 0, "arm.world_size: Expected `int` >= 1"),
        (f"{LAUNCHES}.0.work.blocks.0.ranks", [], "blocks[0].ranks: Expected `array`"),
        (f"{LAUNCHES}.1.work.run.0.timestamps.0", [1.0], "run[0].timestamps[0]: Expected `array`"),
        ("written_at", "yesterday", "written_at: Invalid RFC3339"),
        ("written_at", "2026-01-31T12:00:00", "written_at: Expected `datetime` with a timezone"),
    ],
)
def test_a_value_that_means_nothing_is_refused_with_its_place(path, value, told):
    document = json.loads(FULL)
    *parents, field = [int(part) if part.isdigit() else part for part in path.split(".")]
    node = document
    for key in parents:
        node = node[key]
    node[field] = value
    with pytest.raises(Unreadable) as caught:
        decode(json.dumps(document).encode(), Case)
    assert told in str(caught.value)


# What belongs to a case ------------------------------------------------------------------------


def test_launches_of_other_cases_are_left_out():
    measured = one_round(WEAK, 0.9)
    measured.launches += one_round(parity(WORKLOAD, 2), 0.9).launches[1:]
    for comparison in (WEAK, communication(WORKLOAD, 2)):
        own = own_round(comparison, measured).launches
        assert [launched.arm for launched in own] == list(comparison.arms)
        assert all(launched is measured.of(launched.arm) for launched in own), "shared, not copied"


def test_a_session_keeps_the_programs_that_disturbed_it_most():
    culprits = [Culprit("cc1", pid, 4.0) for pid in range(9)]
    rounds = [disturbance(0.0, 5.0), disturbance(0.4, 30.0, *culprits)]
    assert [len(each.culprits) for each in with_culprits_kept(rounds)] == [0, 5]


def test_session_names_sort_by_time():
    assert re.fullmatch(r"\d{8}T\d{6}Z-.+", session_name())


@pytest.mark.parametrize(
    ("rule", "limit"),
    [
        (Floor.at(0.9), Limit(0.9, None)),
        (REGRESSION, Limit(0.98, None)),
        (Band(0.75, 1.33), Limit(0.75, 1.33)),
        (Ceiling(1.02, unit=""), Limit(None, 1.02)),
    ],
)
def test_a_row_tells_what_the_figure_is_held_to(rule, limit):
    measured = outcome(WEAK, RATIOS, rule, Verdict.FAIL)
    row, figure = row_of(measured), measured.judgement.figure
    assert row.limit == limit
    assert figure is not None
    assert (row.lower, row.figure, row.upper) == (figure.lower, figure.estimate, figure.upper)


def test_a_case_without_a_figure_has_a_row_too():
    row = row_of(outcome(WEAK, (), verdict=Verdict.NOT_RUN, reason="too late"))
    assert (row.figure, row.lower, row.upper, row.rounds) == (None, None, None, 0)
    assert (row.verdict, row.reason) == (Verdict.NOT_RUN, "too late")


@pytest.mark.parametrize("ratios", [RATIOS, RATIOS[:2], ()])
@pytest.mark.parametrize("ask", [weak_scaling, parity, memory])
def test_a_case_that_is_read_back_has_the_same_row(ask, ratios):
    measured = outcome(ask(WORKLOAD, 2), ratios, verdict=Verdict.INCONCLUSIVE, reason="why")
    read = decode(encode(case_of(measured)), Case)
    assert (read.reason, row_of(read.outcome)) == ("why", row_of(measured))


def test_a_row_has_the_observations_that_are_numbers() -> None:
    measured = replace(outcome(WEAK, RATIOS), observations=(0.125, math.nan, -0.25, -math.inf))
    assert row_of(measured).observations == (0.125, -0.25)


def test_properties_are_those_that_are_known():
    assert dict(properties(outcome(WEAK, RATIOS, Floor.at(0.9)))).keys() == {
        *("verdict", "figure", "lower", "upper", "limit")
    }
    unbounded = dict(properties(outcome(WEAK, RATIOS[:1], Floor.at(0.9), Verdict.INCONCLUSIVE)))
    known = {"verdict": "INCONCLUSIVE", "figure": pytest.approx(0.91), "limit": ">= 0.9"}
    assert unbounded == known
