"""A recorded session that is widened to more ranks, judged, written and shown. No time is
asserted."""

import numpy as np
import pytest

from bench.many_ranks import (
    QUESTIONS,
    judged,
    recorded_cases,
    session_cost,
    shared,
    wide,
    wide_rounds,
)
from hvdperf.plan.arms import BlockKind
from hvdperf.verdict import Verdict

RANKS = 4


@pytest.fixture(scope="module")
def cases():
    return recorded_cases(RANKS)


def test_every_question_is_asked_of_so_many_ranks(cases):
    asked = {comparison.question for comparison in cases}
    assert len(asked) == len(QUESTIONS)
    assert {comparison.world_size for comparison in cases} == {RANKS}


def test_rounds_have_the_reports_of_every_rank(cases):
    for comparison, case in cases.items():
        rounds = wide_rounds(case, comparison, 5)
        assert [each.number for each in rounds] == list(range(5))
        for launch in (measured.of(arm) for measured in rounds for arm in comparison.arms):
            ranks = launch.arm.processes
            assert ranks in (1, RANKS)
            for reports in (launch.metadata, launch.evidence, launch.startup_seconds):
                assert len(reports) == ranks
            assert {len(block.ranks) for block in launch.blocks} <= {ranks}
            assert {len(series.ranks) for series in launch.series} <= {ranks}


def test_ranks_differ_in_their_times_and_share_a_split_batch(cases):
    for case in cases.values():
        for launch in case.rounds[0].launches:
            for block, recorded in zip(
                wide(launch, RANKS, 0, np.random.default_rng(1)).blocks, launch.blocks, strict=True
            ):
                if len(block.ranks) == RANKS:
                    assert len({rank.seconds for rank in block.ranks}) == RANKS
                    grown = 1 if block.kind is BlockKind.SPLIT else RANKS / len(recorded.ranks)
                    assert block.samples == grown * recorded.samples


def test_samples_are_shared_out_whole(cases):
    reports = next(
        launch.blocks[0].ranks
        for case in cases.values()
        for launch in case.rounds[0].launches
        if launch.blocks
    )
    found = [report.samples for report in shared([reports[0]] * 3, 10)]
    assert sorted(found) == [3, 3, 4]


def test_the_widened_session_is_sound(cases):
    for comparison, case in cases.items():
        outcome = judged(comparison, wide_rounds(case, comparison, 12), RANKS)
        assert outcome.judgement.verdict is not Verdict.INVALID, outcome.judgement.reason
        assert len(outcome.observations) > 3


def test_the_page_is_written(cases, tmp_path):
    cost = session_cost(RANKS, 3, tmp_path)
    assert cost.cases == len(cases)
    assert cost.document_bytes > 1000
    assert (tmp_path / "page.html").stat().st_size == cost.page_bytes > 1000
