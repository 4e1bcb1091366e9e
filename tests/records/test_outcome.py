"""The throughput of Horovod as it is, a figure a launch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hvdperf.plan.arms import BlockKind
from hvdperf.plan.questions import (
    aa,
    communication,
    fault_cases,
    gradient_reductions,
    recipes,
    weak_scaling,
)
from hvdperf.records.outcome import Measure, each_launch, figures_of_launches, throughputs
from hvdperf.verdict import Verdict
from hvdperf.work.blocks import turns_of
from tests.support.reports import cases_of
from tests.support.rounds import WORKLOAD, outcome, usage
from tests.support.rounds import launch as made_launch

WEAK, COMMUNICATION = weak_scaling(WORKLOAD, 2), communication(WORKLOAD, 2)
RATIOS = (0.91, 0.92, 0.93)


def test_a_launch_that_cases_share_counts_once(tmp_path):
    both = [outcome(asked, RATIOS) for asked in (WEAK, COMMUNICATION)]
    found = throughputs(cases_of(tmp_path, *both))
    assert {size: len(speeds) for (_, size), speeds in found.items()} == {1: 3, 2: 3}


def test_launches_of_other_rounds_with_the_same_numbers_do_not_take_their_place(tmp_path):
    (exchange, *_) = gradient_reductions(WORKLOAD, 2)
    asked = [outcome(WEAK, RATIOS), outcome(exchange, (1.1, 1.2, 1.3, 1.4))]
    found = throughputs(cases_of(tmp_path, *asked))
    # One replica trains 1,000 samples a second, and so does the reference of an exchange.
    assert found[WORKLOAD, 2] == pytest.approx([1820, 1840, 1860, *[1000] * 4])


def test_an_injected_fault_or_an_unsound_case_does_not_count(tmp_path):
    injected = [each for each in fault_cases(WORKLOAD, 2) if each.variant == "slow10"]
    unsound = outcome(aa(WORKLOAD, 2), RATIOS, verdict=Verdict.INVALID)
    found = throughputs(cases_of(tmp_path, outcome(injected[0], RATIOS), unsound))
    assert {size: len(speeds) for (_, size), speeds in found.items()} == {2: 3}


def test_blocks_that_other_programs_disturbed_do_not_count(tmp_path):
    (case,) = cases_of(tmp_path, outcome(WEAK, RATIOS))
    first, *_ = case.rounds
    for launch in first.launches:
        turns_of(launch).blocks = [replace(block, usage=usage(0.4)) for block in launch.blocks]
    assert {size: len(speeds) for (_, size), speeds in throughputs([case]).items()} == {1: 2, 2: 2}


def test_a_start_is_that_of_a_launch_that_does_nothing_else(tmp_path):
    (case,) = cases_of(tmp_path, outcome(WEAK, RATIOS))
    assert figures_of_launches([case], Measure.START) == {}
    launched = made_launch(WEAK.candidate.arm, {})
    launched.work = None
    assert Measure.START.of(launched) == pytest.approx(6.8)
    launched.startup_seconds = [{"import": 1.6, "trace": 2.5}] * 2
    assert Measure.START.of(launched) is None, "it ended with the trace"
    assert Measure.SPEED.of(launched) is Measure.MEMORY.of(launched) is None


def test_memory_is_that_of_the_largest_rank():
    launched = made_launch(WEAK.candidate.arm, {BlockKind.FULL: 1000.0})
    assert Measure.MEMORY.of(launched) is None
    first, second = launched.metadata
    launched.metadata = [replace(first, peak_bytes=4), replace(second, peak_bytes=5)]
    assert (Measure.MEMORY.of(launched), Measure.DEVICE_MEMORY.of(launched)) == (5.0, None)


@pytest.mark.parametrize(
    ("asked", "verdict", "precision", "needs"),
    [
        (WEAK, Verdict.INCONCLUSIVE, 0.0, True),
        (WEAK, Verdict.PASS, 0.0, False),
        # Its interval reaches 1 % to either side.
        (WEAK, Verdict.PASS, 0.005, True),
        (WEAK, Verdict.INCONCLUSIVE, 0.02, False),
        (WEAK, Verdict.INVALID, 0.005, False),
        (aa(WORKLOAD, 2), Verdict.INFO, 0.005, False),
    ],
)
def test_a_case_needs_rounds_until_it_is_decided_or_as_precise_as_asked(
    asked, verdict, precision, needs
):
    assert outcome(asked, RATIOS * 2, verdict=verdict).needs_rounds(precision) is needs


def test_another_precision_does_not_count(tmp_path):
    (bf16,) = (each for each in recipes(WORKLOAD, 2) if each.variant == "bf16")
    (case,) = cases_of(tmp_path, outcome(bf16, RATIOS))
    for _, _, launch in each_launch([case]):
        if launch.arm.workload.precision == WORKLOAD.precision:
            turns_of(launch).blocks = []
    assert throughputs([case]) == {}
