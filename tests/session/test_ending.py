import io
import itertools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from _pytest._io import TerminalWriter

from hvdperf.columns import WIDTH
from hvdperf.models.registry import NETWORKS
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.questions import against as regression
from hvdperf.plan.questions import (
    at_gradient_sizes,
    communication,
    fixed_epochs,
    fixed_time,
    gradient_reductions,
    memory,
    overlap,
    parity,
    recipes,
    startup,
    strong_scaling,
    sweep,
    weak_scaling,
)
from hvdperf.records.outcome import Failure
from hvdperf.session.terminal.cases import (
    NOTHING_MEASURED,
    counts,
    ending,
    errors_of_ranks,
    exit_status,
    explanation,
    figure_text,
    line,
    meaning_of_pass,
    painted,
    table,
)
from hvdperf.stats import Interval
from hvdperf.verdict import REGRESSION, Band, Ceiling, Floor, Rule, Verdict
from tests.support.rounds import WORKLOAD, outcome

RATIOS = (0.91, 0.92, 0.93, 0.94, 0.95, 0.96)
LONGEST = replace(WORKLOAD, model=max(NETWORKS, key=len))
WEAK = weak_scaling(WORKLOAD, 2)


def interval(estimate, lower, upper):
    return Interval(estimate, lower, upper, 0.025, 6)


# Exit status -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ([Verdict.PASS], 0),
        ([Verdict.PASS, Verdict.NOT_JUDGED], 0),
        ([Verdict.INCONCLUSIVE, Verdict.PASS], 6),
        ([Verdict.INVALID, Verdict.INCONCLUSIVE, Verdict.PASS], 7),
        ([Verdict.NOT_RUN, Verdict.INCONCLUSIVE, Verdict.PASS], 10),
        ([Verdict.INVALID, Verdict.NOT_RUN, Verdict.PASS], 7),
        ([Verdict.FAIL, Verdict.INVALID, Verdict.INCONCLUSIVE, Verdict.PASS], 1),
        ([], NOTHING_MEASURED),
        ([Verdict.NOT_JUDGED], NOTHING_MEASURED),
    ],
)
def test_the_worst_verdict_decides_the_exit_status(verdicts, status):
    for order in itertools.permutations(verdicts):
        assert exit_status(order) == status


def test_settings_stand_below_the_cases_that_they_touch():
    other = replace(WEAK, candidate=WEAK.reference)
    lines = table(
        [outcome(WEAK, RATIOS), outcome(other, RATIOS)],
        lambda comparison: "with HOROVOD_CYCLE_TIME=100" if comparison is WEAK else "",
    )
    (at,) = (i for i, text in enumerate(lines) if "HOROVOD_CYCLE_TIME" in text)
    assert lines[at - 1] == line(outcome(WEAK, RATIOS))


def test_every_verdict_has_its_own_exit_status():
    statuses = [exit_status([verdict]) for verdict in Verdict]
    assert len(set(statuses)) == len(Verdict)
    assert NOTHING_MEASURED == 5


# Figures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (interval(0.873, 0.861, 0.884), "0.873 [0.861, 0.884]"),
        (interval(1.0289, 0.99949, 1.0511), "1.029 [0.999, 1.051]"),
        (interval(0.93, 0.0, math.inf), "0.930 [-, -]"),
        (None, "-"),
    ],
)
def test_figures_are_shown_with_three_decimals(figure, text):
    assert figure_text(figure).strip() == text


# The table -------------------------------------------------------------------------------------


def nth(ask, i, *asked):
    return ask(*asked)[i]


def test_cases_of_one_question_have_names_of_their_own():
    asked = [*fixed_epochs(WORKLOAD, 2), *recipes(WORKLOAD, 2), memory(WORKLOAD, 2)]
    asked += [*sweep(WORKLOAD, 2), overlap(WORKLOAD, 2)]
    lines = table([outcome(comparison, RATIOS) for comparison in asked])[1:]
    assert [" ".join(text.split("  0.9")[0].split()) for text in lines] == [
        "convergence_loss, np 2",
        "mirrored resnet_50_s",
        "single resnet_50_s",
        "convergence_accuracy, np 2",
        "mirrored resnet_50_s",
        "single resnet_50_s",
        "recipe, np 2",
        "bf16 resnet_50_s",
        "f16 resnet_50_s",
        "rate resnet_50_s",
        "memory, np 2",
        "resnet_50_s",
        "collective_overhead, np 2",
        "allreduce sweep",
        "allgather sweep",
        "broadcast sweep",
        "reducescatter sweep",
        "overlap, np 2",
        "resnet_50_s",
    ]


def all_sorts():
    """Every question and verdict, each with the longest name there is."""
    asks: tuple[Callable[..., Comparison], ...] = (
        *(weak_scaling, strong_scaling, communication, parity, fixed_time, memory),
        *(at_gradient_sizes, overlap),
        *(partial(nth, ask, i) for ask in (gradient_reductions, startup) for i in range(4)),
        *(partial(nth, fixed_epochs, i) for i in range(4)),
        *(partial(nth, recipes, i) for i in range(3)),
    )
    rules: tuple[Rule, ...] = (Floor.at(0.875), Band(0.75, 1.3333))
    for ask, verdict, rule in itertools.product(asks, Verdict, rules):
        reason = "" if verdict is Verdict.PASS else "some reason that takes a while to say " * 3
        short = outcome(ask(LONGEST, 128), RATIOS[:1], rule, verdict, reason)
        long = replace(short.judgement, figure=interval(0.935, 0.912, 0.958), rounds=24)
        yield from (short, replace(short, judgement=long))


def test_no_line_of_the_table_is_wider_than_a_terminal():
    wide = [text for text in table(list(all_sorts())) if len(text) > WIDTH]
    assert wide == []


def test_columns_are_aligned():
    header, *lines = table(list(all_sorts()))
    column = header.index("verdict")
    rows = [text for text in lines if text.startswith(f"  {LONGEST.model} ")]
    assert rows
    assert all(text[column - 1] == " " and text[column] != " " for text in rows)


def test_a_line_below_its_question_tells_model_figure_threshold_and_verdict():
    _, question, text = table([outcome(WEAK, RATIOS)])[:3]
    assert question == "weak_scaling, np 2"
    words = text.split()
    assert words[0] == "resnet_50_s"
    assert "[0.910," in words
    assert ">=" in words
    assert words[-2:] == ["6", "PASS"]


def test_a_case_without_a_figure_still_has_its_line():
    text = line(outcome(WEAK, (), verdict=Verdict.FAIL))
    assert "FAIL" in text
    assert " - " in text


def test_notes_give_the_reason_of_whatever_the_figure_does_not_explain():
    lines = table(
        [
            outcome(WEAK, RATIOS),
            outcome(parity(WORKLOAD, 2), RATIOS, None, Verdict.INVALID, "replicas differ"),
        ]
    )
    notes = [text for text in lines if ": " in text]
    assert notes == ["INVALID parity[resnet_50_s-np2]: replicas differ"]


def test_a_note_that_two_cases_share_is_given_once():
    twice = [outcome(WEAK, RATIOS, None, Verdict.INVALID, "no threshold")] * 2
    assert sum("no threshold" in text for text in table(twice)) == 1


def test_a_long_note_is_wrapped_and_a_line_to_paste_stays_whole():
    pasteable = '"weak_scaling/resnet_50_s/np2/one-node" = 0.97'
    reason = f"no threshold; add to cpu-unknown.toml: {pasteable}"
    lines = table([outcome(WEAK, RATIOS, None, Verdict.INVALID, reason)])
    assert all(len(text) <= WIDTH for text in lines[3:])
    assert any('"weak_scaling/resnet_50_s/np2/one-node"' in text for text in lines)


def test_what_is_not_judged_is_explained_once():
    cases = [
        outcome(ask(WORKLOAD, 2), RATIOS[:1], None, Verdict.NOT_JUDGED, "more replicas than cores")
        for ask in (weak_scaling, parity)
    ]
    notes = [text for text in table(cases) if text.startswith("NOT JUDGED: ")]
    assert notes == ["NOT JUDGED: more replicas than cores; shown only"]


def test_every_reason_not_to_judge_is_given():
    reasons = ("more replicas than cores", "Horovod exchanges what is on GPUs")
    cases = [outcome(WEAK, RATIOS[:1], None, Verdict.NOT_JUDGED, reason) for reason in reasons]
    notes = [text for text in table(cases) if text.startswith("NOT JUDGED: ")]
    assert notes == [f"NOT JUDGED: {reason}; shown only" for reason in reasons]


def test_counts_are_in_the_order_of_severity():
    verdicts = [Verdict.PASS, Verdict.FAIL, Verdict.PASS, Verdict.PASS]
    assert counts([outcome(WEAK, RATIOS, None, v) for v in verdicts]) == "1 FAIL, 3 PASS"
    assert counts([]) == "nothing measured"


def test_a_reason_that_cases_share_is_given_once():
    reason = "no round was completed in time"
    cases = [
        outcome(ask(WORKLOAD, 2), (), None, Verdict.NOT_RUN, reason)
        for ask in (weak_scaling, parity)
    ]
    notes = " ".join(text.strip() for text in table(cases)[5:])
    assert notes == (
        "NOT RUN weak_scaling[resnet_50_s-np2], parity[resnet_50_s-np2]: no round was completed in "
        "time"
    )


# The end -----------------------------------------------------------------------------------------


def seen(comparison, figure, rule, verdict=Verdict.PASS):
    measured = outcome(comparison, RATIOS, rule, verdict)
    return replace(measured, judgement=replace(measured.judgement, figure=figure))


def shares(lines):
    return re.findall(r"(\S+ %) \((\w+)\[", " ".join(" ".join(lines).split()))


def test_how_far_passes_lie_above_their_limits_is_told_from_the_least_to_the_most():
    figure = interval(0.9, 0.85, 0.95)
    passes = [
        seen(weak_scaling(WORKLOAD, 2), figure, Floor.at(0.5)),
        seen(parity(WORKLOAD, 2), figure, Band(0.75, 1.33)),
        seen(communication(WORKLOAD, 2), figure, Floor.at(0.84)),
        seen(startup(WORKLOAD, 2)[0], figure, Ceiling(2.0)),
    ]
    failed = seen(strong_scaling(WORKLOAD, 2), figure, Floor.at(1.0), Verdict.FAIL)
    told = meaning_of_pass([*passes, failed])
    assert shares(told) == [("7.1 %", "communication"), ("80 %", "weak_scaling")]
    assert shares(meaning_of_pass(passes[:1])) == [("80 %", "weak_scaling")]
    assert meaning_of_pass([failed]) == []


def test_what_a_pass_against_another_stack_could_have_missed_is_told():
    pair = regression(weak_scaling(WORKLOAD, 2))
    assert pair is not None
    passed = seen(pair, interval(1.0, 1 / 1.04, 1.01), REGRESSION)
    assert shares(meaning_of_pass([passed])) == [("6.0 %", "weak_scaling")]


@pytest.mark.parametrize(
    ("status", "words", "told"),
    [
        (0, [Verdict.PASS] * 3, "3 PASS"),
        (
            0,
            [Verdict.PASS, Verdict.INCONCLUSIVE],
            "1 PASS, 1 INCONCLUSIVE, which --inconclusive=ok allows",
        ),
        (
            6,
            [*[Verdict.INCONCLUSIVE] * 2, *[Verdict.PASS] * 14, Verdict.NOT_JUDGED],
            "INCONCLUSIVE, 2 of 16 cases could not be decided (see above)",
        ),
        (10, [Verdict.NOT_RUN], "NOT RUN, 1 of 1 cases could not be started (see above)"),
        (
            1,
            [Verdict.FAIL, Verdict.PASS],
            "FAIL, 1 of 2 cases missed their limit or crashed (see above)",
        ),
        (1, [Verdict.PASS], "something other than a case failed (see above)"),
        (2, [Verdict.FAIL], "interrupted; the cases decided so far are kept"),
        (5, [Verdict.NOT_JUDGED], "no case was judged"),
        (8, [Verdict.PASS], "all PASS, but some results were not written (see above)"),
        (3, [], "pytest itself failed"),
    ],
)
def test_the_exit_status_is_told_in_words(status, words, told):
    assert ending(status, words) == f"exit status {status}: {told}"
    many = ending(status, words * 100)
    assert len(many) <= WIDTH


def test_undecided_may_be_allowed_and_nothing_else():
    allowed = [Verdict.INCONCLUSIVE, Verdict.NOT_JUDGED]
    assert exit_status(allowed, inconclusive_is_ok=True) == 0
    assert exit_status([*allowed, Verdict.NOT_RUN], inconclusive_is_ok=True) == 10
    assert exit_status([Verdict.NOT_JUDGED], inconclusive_is_ok=True) == NOTHING_MEASURED


# Colours ---------------------------------------------------------------------------------------


def writer(colours: bool) -> TerminalWriter:
    made = TerminalWriter(io.StringIO())
    made.hasmarkup = colours
    return made


def test_verdicts_have_their_colours_and_nothing_else_has():
    words = " ".join(verdict.value for verdict in Verdict)
    text = painted(f"{words} of FAILED PASSes", writer(True).markup)
    assert text == (
        "\x1b[31m\x1b[1mFAIL\x1b[0m \x1b[33mINVALID\x1b[0m \x1b[33mNOT RUN\x1b[0m "
        "\x1b[33mINCONCLUSIVE\x1b[0m \x1b[32mPASS\x1b[0m NOT JUDGED of FAILED PASSes"
    )


def test_without_colours_every_byte_is_the_same():
    for text in table(list(all_sorts())):
        assert painted(text, writer(False).markup) == text
        coloured = painted(text, writer(True).markup)
        assert re.sub("\x1b\\[[0-9;]*m", "", coloured) == text


def test_the_end_of_the_errors_of_a_failed_launch_is_shown_once():
    failure = Failure("resnet_50_s horovod@2", 1, "block", "it broke", ["[rank 1] last words"])
    found = [
        outcome(each, (), None, Verdict.FAIL, str(failure), failure=failure)
        for each in (WEAK, strong_scaling(WORKLOAD, 2))
    ]
    lines = errors_of_ranks(found)
    assert [line.strip() for line in lines].count("[rank 1] last words") == 1
    assert errors_of_ranks([outcome(WEAK, RATIOS, Floor.at(0.8), Verdict.PASS)]) == []


def test_an_explanation_shows_cause_and_the_end_of_stderr():
    failure = Failure("resnet_50_s horovod@2", 1, "block", "it broke", ["[rank 1] last words"])
    text = explanation(outcome(WEAK, (), None, Verdict.FAIL, str(failure), failure=failure))
    assert text.splitlines() == [
        "FAIL  weak_scaling[resnet_50_s-np2]",
        "  resnet_50_s horovod@2: rank 1 failed in phase 'block': it broke",
        "  the end of its stderr:",
        "    [rank 1] last words",
    ]


@pytest.mark.parametrize(("rule", "confidence"), [(Floor.at(0.9), 95), (Band(0.9, 1.1), 90)])
def test_an_explanation_shows_the_figure_with_its_confidence(rule, confidence):
    text = explanation(outcome(WEAK, RATIOS, rule, Verdict.INCONCLUSIVE))
    assert f"{confidence} % interval, 6 rounds), limit {rule}" in text


@pytest.mark.parametrize(
    ("ratios", "verdict", "limit"),
    [
        ((0.90, 0.91, 0.92, 0.93, 0.94, 0.97), Verdict.FAIL, "not < 0.98"),
        ((0.90, 0.91, 0.92, 0.93, 0.94, 0.99), Verdict.INCONCLUSIVE, ">= 0.95"),
        ((0.96, 0.97, 0.98, 0.99, 1.00, 1.01), Verdict.PASS, ">= 0.95"),
    ],
)
def test_of_two_limits_the_one_that_decided_is_shown(ratios, verdict, limit):
    measured = outcome(WEAK, ratios, REGRESSION, verdict)
    assert f"] {limit:<13}   6 {verdict.value}" in line(measured)
    assert explanation(measured).splitlines()[1].endswith(f"limit {limit}")
