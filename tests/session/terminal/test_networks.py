"""The table of networks and world sizes: 80 columns, whatever it holds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from hvdperf.columns import WIDTH
from hvdperf.models.registry import NETWORKS
from hvdperf.plan.questions import (
    against,
    communication,
    fixed_time,
    memory,
    parity,
    startup,
    strong_scaling,
    sweep,
    trials,
    wall_time,
    weak_scaling,
)
from hvdperf.records.outcome import Outcome
from hvdperf.records.throughput import throughputs_of
from hvdperf.report.sections.overview import overview
from hvdperf.session.terminal.networks import table
from hvdperf.stats import Interval
from hvdperf.verdict import Band, Ceiling, Verdict
from tests.support.reports import cases_of
from tests.support.rounds import HOROVOD_2, WORKLOAD, change_reports, outcome, usage

RATIOS = (0.77, 0.78, 0.79, 0.80, 0.81, 0.82)
OTHER = replace(WORKLOAD, model="vgg_16_s")
ASKED = (weak_scaling, strong_scaling, communication, parity)


def measured(world_size: int = 2, verdict: Verdict = Verdict.PASS) -> list[Outcome]:
    return [outcome(ask(WORKLOAD, world_size), RATIOS, verdict=verdict) for ask in ASKED]


def rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """Words, without those of the header."""
    return [text.split() for text in table(outcomes)[1:]]


def test_a_line_tells_all_of_a_network_at_a_world_size():
    weak = outcome(weak_scaling(WORKLOAD, 2), RATIOS)
    strong = outcome(strong_scaling(WORKLOAD, 2), [0.52] * 6)
    equal = outcome(parity(WORKLOAD, 2), [1.04] * 6, Band(0.75, 1.33))
    (row,) = rows([weak, strong, equal])
    # One replica does 1000 a second, and the rounds are those of the first case with full blocks.
    assert row[:3] == ["resnet_50_s", "2", "1590"]
    assert row[3:] == ["0.79", "0.77-0.82", "0.52", "1.04", "1.04-1.04", "PASS"]


def test_throughput_is_the_median_over_the_rounds_of_all_cases():
    few = outcome(communication(WORKLOAD, 2), [0.5] * 2)
    many = outcome(weak_scaling(WORKLOAD, 2), [0.5, 0.6, 0.9])
    assert [row[2] for row in rows([many, few])] == ["1200"]


def test_the_terminal_and_the_page_have_one_throughput(tmp_path):
    """Also in disturbed rounds, and in rounds that hold the launches of other cases."""
    case = outcome(weak_scaling(WORKLOAD, 2), [0.5, 0.6, 0.9, 0.9])
    for launch in case.rounds[1].launches:
        launch.blocks = [replace(block, usage=usage(0.4)) for block in launch.blocks]
    unsound = outcome(parity(WORKLOAD, 2), [0.1] * 8, verdict=Verdict.INVALID)
    figure = overview(cases_of(tmp_path, case, unsound))
    assert figure is not None
    (on_page,) = (row for row in figure.table.rows if row["world_size"] == 2)
    (row,) = rows([case, unsound])
    assert float(row[2]) == pytest.approx(on_page["samples_per_second"])


def test_a_launch_of_another_case_in_the_same_round_does_not_count():
    alone = outcome(parity(WORKLOAD, 1), RATIOS)
    both = outcome(weak_scaling(WORKLOAD, 2), RATIOS)
    rounds = tuple(
        replace(own, launches=[*own.launches, *others.launches])
        for own, others in zip(alone.rounds, both.rounds, strict=True)
    )
    found = throughputs_of([replace(alone, rounds=rounds)])
    assert [world_size for _, world_size in found] == [1]


def test_a_small_throughput_has_a_digit_more():
    slow = outcome(weak_scaling(WORKLOAD, 2), [0.01])
    assert rows([slow])[0][2] == "20.0"


def test_lines_are_in_the_order_of_networks_and_sizes():
    asked = [parity(WORKLOAD, 4), weak_scaling(OTHER, 2), parity(WORKLOAD, 1), parity(OTHER, 1)]
    found = [row[:2] for row in rows([outcome(each, RATIOS) for each in asked])]
    assert found == [
        ["resnet_50_s", "1"],
        ["resnet_50_s", "4"],
        ["vgg_16_s", "1"],
        ["vgg_16_s", "2"],
    ]


@pytest.mark.parametrize("verdict", Verdict)
def test_the_worst_verdict_of_all_cases_is_the_lines(verdict):
    cases = [*measured(), outcome(memory(WORKLOAD, 2), [1.0] * 6, verdict=verdict)]
    expected = Verdict.PASS if verdict is Verdict.NOT_JUDGED else verdict
    for order in (cases, cases[::-1]):
        assert table(order)[1].endswith(f" {expected.value}")


def test_what_was_not_measured_is_a_dash():
    (row,) = rows([outcome(communication(WORKLOAD, 2), RATIOS)])
    assert row[3:] == ["-", "-", "-", "PASS"]
    broken = outcome(weak_scaling(OTHER, 2), (), verdict=Verdict.FAIL)
    assert rows([*measured(), broken])[1] == ["vgg_16_s", "2", "-", "-", "-", "-", "FAIL"]


def test_too_few_rounds_bound_nothing():
    (row,) = rows([outcome(weak_scaling(WORKLOAD, 2), RATIOS[:1])])
    assert row[3:5] == ["0.77", "-"]


@pytest.mark.parametrize(
    "asked",
    [sweep(WORKLOAD, 2)[0], startup(WORKLOAD, 2)[0], wall_time(WORKLOAD, 2)[0]],
    ids=lambda asked: asked.name,
)
def test_without_a_throughput_there_is_no_table(asked):
    assert table([outcome(asked, [1.1] * 6, Ceiling(2.0))]) == []
    assert table([]) == []


def test_a_network_that_is_only_started_has_no_line():
    started = outcome(startup(OTHER, 2)[0], [1.1] * 6, Ceiling(2.0))
    assert [row[0] for row in rows([*measured(), started])] == ["resnet_50_s"]


def test_cases_that_train_with_another_learning_rate_are_the_same_line():
    timed = outcome(fixed_time(WORKLOAD, 2), (), verdict=Verdict.INCONCLUSIVE)
    (row,) = rows([*measured(), timed])
    assert row[-1] == "INCONCLUSIVE"


def test_a_regression_is_no_efficiency():
    held = against(weak_scaling(WORKLOAD, 2))
    injected = next(c for c in trials(WORKLOAD, 2) if c.variant == "slow10")
    assert held is not None
    for comparison in (held, injected):
        (row,) = rows([outcome(comparison, [0.9] * 6)])
        assert row[3:6] == ["-", "-", "-"]


def test_throughput_is_that_of_no_injected_fault():
    injected = next(c for c in trials(WORKLOAD, 2) if c.variant == "slow10")
    # The reference, which is as it should be, does 1000 a second here.
    assert rows([outcome(injected, [0.9] * 6)])[0][2] == "1000"


def test_blocks_without_a_time_are_left_out():
    case = outcome(weak_scaling(WORKLOAD, 2), RATIOS[:2])
    change_reports(case.rounds[0].of(HOROVOD_2), lambda rank, own: replace(own, seconds=math.nan))
    assert rows([case])[0][2] == "1560"


FIGURES = (
    None,
    Interval(0.792, 0.749, 0.804, 0.025, 8),
    Interval(0.9996, 0.99949, 1.0511, 0.025, 8),
    Interval(0.93, 0.0, math.inf, 0.025, 1),
    Interval(12.345, 9.999, 123.456, 0.025, 8),
    Interval(98765.4, 9999.6, 1e12, 0.025, 8),
)


def test_columns_are_aligned_and_no_line_is_wider_than_a_terminal():
    longest = replace(WORKLOAD, model=max(NETWORKS, key=len))
    longer = replace(WORKLOAD, model="a_network_of_a_very_long_name")
    outcomes = []
    for figure, verdict, (number, workload) in itertools.product(
        FIGURES, Verdict, enumerate((WORKLOAD, longest, longer))
    ):
        size = 2 + number + 3 * FIGURES.index(figure) + 20 * list(Verdict).index(verdict)
        for ask in ASKED:
            case = outcome(ask(workload, size), RATIOS[:1], verdict=verdict)
            outcomes.append(replace(case, judgement=replace(case.judgement, figure=figure)))
    header, *lines = table(outcomes)
    assert len(lines) == 3 * len(FIGURES) * len(Verdict)
    assert max(map(len, (header, *lines))) <= WIDTH
    column = header.index("verdict")
    words = {verdict.value for verdict in Verdict}
    assert {text[column:] for text in lines} == words
    assert {text[column - 1] for text in lines} == {" "}
    assert {text[len("a_network_of_a_")] for text in lines} == {" "}
