"""The way back from a document: what is written of it again is the same document."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hvdperf.results.restore import recall
from hypothesis import given, settings
from hypothesis import strategies as st

from hvdperf.columns import WIDTH
from hvdperf.judge.attribution import Blame
from hvdperf.judge.detection import Detection
from hvdperf.judge.observations import observation
from hvdperf.judge.outcome import Outcome
from hvdperf.judge.scaling_breakdown import account
from hvdperf.launch.group import GroupFailed, NotStarted
from hvdperf.plan.questions import (
    bound,
    communication,
    fixed_epochs,
    memory,
    parity,
    same,
    startup,
    strong_scaling,
    sweep,
    trials,
    wall_time,
    weak_scaling,
)
from hvdperf.results.archive import Case, read_session
from hvdperf.results.documents import case_document, plain
from hvdperf.session.terminal import bandwidths, cases
from hvdperf.verdict import Band, Ceiling, Floor, Verdict, judge
from tests.support.marked import marked_round
from tests.support.rounds import HOROVOD_1, HOROVOD_2, WORKLOAD, outcome, run_report, usage
from tests.support.stores import make_store

RATIOS = (0.91, 0.92, 0.93, 0.94, 0.95, 0.96)
WEAK = weak_scaling(WORKLOAD, 2)


def stored(measured: Outcome) -> Case:
    with TemporaryDirectory() as scratch:
        store = make_store(Path(scratch), slots=4)
        store.write_case(measured)
        (case,) = read_session(store.directory).cases
    return case


def again(measured: Outcome) -> Outcome:
    """Written, read and recalled; which must be the same to whoever writes it again."""
    case = stored(measured)
    recalled = recall(measured.comparison, case)
    written = plain(case_document(recalled))
    assert written == {name: case.document[name] for name in written}
    assert recalled.taken_over
    return recalled


def trained() -> Outcome:
    measured = outcome(memory(WORKLOAD, 2), [1.1] * 6, Ceiling(2.0, unit=""))
    for launched in (x for each in measured.rounds for x in each.launches.values()):
        launched.run = [run_report() for _ in range(2)]
    return measured


def on_trial() -> Outcome:
    (tried,) = (c for c in trials(WORKLOAD, 2) if c.variant == "slow10")
    found = Detection(Verdict.FAIL, Blame("compute", 1, 0.1))
    return outcome(tried, [0.9] * 6, Floor(0.98, 0.95), noticed=found)


def accounted() -> Outcome:
    comparison = wall_time(WORKLOAD, 2)[0]
    rounds = tuple(marked_round(comparison, number, late=[0.0, 0.003]) for number in range(6))
    logs = tuple(observation(comparison, measured) for measured in rounds)
    judgement = judge(logs, Floor.at(0.1))
    return Outcome(comparison, judgement, logs, rounds, account=account(comparison, rounds))


@pytest.mark.parametrize(
    "measured",
    [
        outcome(WEAK, RATIOS),
        outcome(strong_scaling(WORKLOAD, 2), RATIOS, Floor(0.98, 0.95)),
        outcome(communication(WORKLOAD, 2), RATIOS[:1]),
        outcome(parity(WORKLOAD, 2), RATIOS, Band(0.75, 1.33)),
        outcome(startup(WORKLOAD, 2)[0], [1.2] * 6, Ceiling(2.0)),
        outcome(fixed_epochs(WORKLOAD, 2)[0], ()),
        outcome(sweep(WORKLOAD, 3)[1], [4.0] * 2, Ceiling(20.0, unit="")),
        outcome(bound(WORKLOAD, 2), [1.1] * 6, Ceiling(2.0, unit="")),
        outcome(same(WORKLOAD, 2), [1.01] * 6, Band(0.95, 1.05)),
        on_trial(),
        trained(),
        accounted(),
    ],
    ids=lambda measured: measured.comparison.name,
)
def test_whatever_was_asked_is_as_it_was(measured):
    recalled = again(measured)
    assert recalled.judgement == measured.judgement
    assert recalled.observations == measured.observations
    assert recalled.account == measured.account
    assert recalled.noticed == measured.noticed
    assert [each.launches.keys() for each in recalled.rounds] == [
        each.launches.keys() for each in measured.rounds
    ]


def test_what_else_the_cores_did_is_as_it_was():
    measured = outcome(WEAK, RATIOS)
    blocks = measured.rounds[0].launches[HOROVOD_2].blocks
    blocks[0] = replace(blocks[0], usage=usage(0.3))
    (first, *_) = again(measured).rounds[0].launches[HOROVOD_2].blocks
    assert first.usage == usage(0.3)


def test_older_blocks_do_not_say_what_else_the_cores_did():
    case = stored(outcome(WEAK, RATIOS))
    for launch in (each for measured in case.document["rounds"] for each in measured["launches"]):
        for block in launch["blocks"]:
            del block["usage"]
    recalled = recall(WEAK, case)
    assert recalled.rounds[0].launches[HOROVOD_2].blocks[0].usage is None


def test_its_tables_are_the_same_but_for_a_mark():
    asked = outcome(sweep(WORKLOAD, 2)[0], [4.0] * 6, Ceiling(20.0, unit=""))
    recalled = again(asked)
    assert bandwidths.table([recalled]) == bandwidths.table([asked])
    then, now = cases.table([asked]), cases.table([recalled])
    assert now == [then[0], f"{then[1]} *", *then[2:], "*: measured before the session was resumed"]


def test_a_size_is_found_again_where_ranks_exchanged_whole_parts_of_it():
    asked = outcome(sweep(WORKLOAD, 3)[1], [4.0], Ceiling(20.0, unit=""))
    (measured,) = asked.rounds
    for launched in measured.launches.values():
        for rank in (rank for each in launched.series for rank in each.ranks):
            rank.update(bytes=rank["bytes"] // 12 * 12)  # type: ignore[attr-defined]
    assert bandwidths.table([again(asked)]) == bandwidths.table([asked])


def test_the_widest_line_has_room_for_the_mark():
    measured = outcome(parity(WORKLOAD, 2), RATIOS, Band(0.75, 1.33), Verdict.INCONCLUSIVE)
    assert len(cases.line(again(measured))) <= WIDTH


def test_a_failed_launch_is_told_again():
    failure = GroupFailed(HOROVOD_2.name, 1, "block", "it broke", ["last words"])
    recalled = again(outcome(WEAK, RATIOS, verdict=Verdict.FAIL, failure=failure))
    assert str(recalled.failure) == str(failure)
    assert "last words" in cases.explanation(recalled)


def test_what_could_not_be_started_is_told_again():
    failure = NotStarted(HOROVOD_2.name, None, "launch", "the slot of rank 1 is gone", [])
    recalled = again(outcome(WEAK, (), verdict=Verdict.NOT_RUN, failure=failure))
    assert str(recalled.failure) == str(failure)


def test_a_missing_threshold_is_missing_again():
    measured = outcome(WEAK, RATIOS, verdict=Verdict.INVALID, reason="no threshold")
    measured = replace(
        measured,
        threshold_line='"weak" = 0.9',
        judgement=replace(measured.judgement, rule=None),
    )
    assert again(measured).threshold_line == '"weak" = 0.9'


def test_what_was_no_number_is_none_again():
    measured = outcome(WEAK, RATIOS[:1])
    for report in measured.rounds[0].launches[HOROVOD_1].blocks[0].ranks:
        report.update(loss=math.nan, seconds=math.nan)  # type: ignore[attr-defined]
    recalled = again(measured)
    assert math.isnan(recalled.rounds[0].launches[HOROVOD_1].blocks[0].seconds)


def test_a_curve_with_holes_has_them_again():
    measured = trained()
    for report in measured.rounds[0].launches[HOROVOD_2].run:
        report.update(curve=[[50, 1.5, 1e-3], [100, math.nan, math.inf]])  # type: ignore[attr-defined]
    first, last = again(measured).rounds[0].launches[HOROVOD_2].run[0]["curve"]
    assert first == [50, 1.5, 1e-3]
    assert last[0] == 100
    assert all(map(math.isnan, last[1:]))


OBSERVATIONS = st.lists(st.floats() | st.floats(-1, 1), max_size=12)


@settings(deadline=None, max_examples=60)
@given(OBSERVATIONS, st.text(max_size=40))
def test_whatever_was_observed_is_as_it_was(observations, words):
    judgement = replace(judge(observations, Floor.at(0.9)), reason=words)
    rounds = outcome(WEAK, RATIOS[:1]).rounds
    recalled = again(Outcome(WEAK, judgement, tuple(observations), rounds))
    assert recalled.judgement == judgement
    assert json.dumps(plain(recalled.observations)) == json.dumps(plain(observations))
