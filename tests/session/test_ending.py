"""The end of a session: exit statuses, explanations, and the commands to type next."""

from __future__ import annotations

import io
import itertools
import shlex
from collections.abc import Sequence
from dataclasses import replace

import pytest
from _pytest._io import TerminalWriter

from hvdperf.columns import WIDTH
from hvdperf.launch.launchers import own_settings
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.questions import communication, launches, parity, weak_scaling
from hvdperf.records.outcome import Failure, Outcome
from hvdperf.session import ending
from hvdperf.session.plugin import painted
from hvdperf.stats import Interval
from hvdperf.verdict import REGRESSION, Band, Ceiling, Floor, Judgement, Rule, Verdict
from tests.support.rounds import WORKLOAD, outcome

RATIOS = (0.91, 0.92, 0.93, 0.94, 0.95, 0.96)
WEAK = weak_scaling(WORKLOAD, 2)


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ([Verdict.PASS], 0),
        ([Verdict.PASS, Verdict.INFO], 0),
        ([Verdict.INVALID, Verdict.INCONCLUSIVE, Verdict.PASS], 7),
        ([Verdict.NOT_RUN, Verdict.INCONCLUSIVE, Verdict.PASS], 10),
        ([Verdict.INVALID, Verdict.NOT_RUN, Verdict.PASS], 7),
        ([Verdict.FAIL, Verdict.INVALID, Verdict.INCONCLUSIVE, Verdict.PASS], 1),
        ([], ending.NOTHING_MEASURED),
        ([Verdict.INFO], ending.NOTHING_MEASURED),
    ],
)
def test_the_worst_verdict_decides_the_exit_status(verdicts, status):
    for order in itertools.permutations(verdicts):
        assert ending.exit_status(order) == status


def test_a_launch_by_default_that_costs_speed_comes_with_settings():
    (default, polling, *_) = launches(WORKLOAD, 2)
    settings = own_settings(cores=2)
    slower = Judgement(Verdict.PASS, Interval(0.5, 0.4, 0.6, 0.05, 8), Floor.at(0.2), 8)
    equal = replace(slower, figure=Interval(0.99, 0.95, 1.02, 0.05, 8))
    told = " ".join(
        ending.launch_advice([Outcome(default, slower), Outcome(polling, slower)], settings)
    )
    assert all(f"{name}={value}" in told for name, value in settings.items())
    assert ending.launch_advice([Outcome(default, equal), Outcome(polling, slower)], settings) == []


@pytest.mark.parametrize(
    ("status", "words", "told"),
    [
        (0, [Verdict.PASS] * 3, "3 PASS"),
        (6, [*[Verdict.INCONCLUSIVE] * 2, *[Verdict.PASS] * 14, Verdict.INFO], "2 of 16"),
        (10, [Verdict.NOT_RUN], "NOT RUN, 1 of 1"),
        (1, [Verdict.FAIL, Verdict.PASS], "FAIL, 1 of 2"),
        (1, [Verdict.PASS], "something other than a case failed"),
        (2, [Verdict.FAIL], "interrupted"),
        (5, [Verdict.INFO], "no case was judged"),
        (8, [Verdict.PASS], "not written"),
        (3, [], "pytest itself failed"),
    ],
)
def test_the_exit_status_is_told_in_words(status, words, told):
    said = ending.ending(status, words)
    assert said.startswith(f"exit status {status}: ")
    assert told in said
    assert len(ending.ending(status, words * 100)) <= WIDTH


# Colours ---------------------------------------------------------------------------------------


def test_verdicts_have_their_colours_and_nothing_else_has():
    writer = TerminalWriter(io.StringIO())
    writer.hasmarkup = True
    words = " ".join(verdict.value for verdict in Verdict)
    text = painted(f"{words} of FAILED PASSes", writer.markup)
    assert text == (
        "\x1b[31m\x1b[1mFAIL\x1b[0m \x1b[33mINVALID\x1b[0m \x1b[33mNOT RUN\x1b[0m "
        "\x1b[33mINCONCLUSIVE\x1b[0m \x1b[32mPASS\x1b[0m INFO of FAILED PASSes"
    )


def test_an_explanation_shows_cause_and_the_end_of_stderr():
    failure = Failure("resnet_50_s horovod@2", 1, "block", "it broke", ["[rank 1] last words"])
    text = ending.explanation(outcome(WEAK, (), None, Verdict.FAIL, str(failure), failure=failure))
    assert text.splitlines() == [
        "FAIL  weak_scaling[resnet_50_s-np2]",
        "  resnet_50_s horovod@2: rank 1 failed in phase 'block': it broke",
        "  the end of its stderr:",
        "    [rank 1] last words",
    ]


@pytest.mark.parametrize(("rule", "confidence"), [(Floor.at(0.9), 95), (Band(0.9, 1.1), 90)])
def test_an_explanation_shows_the_figure_with_its_confidence(rule, confidence):
    text = ending.explanation(outcome(WEAK, RATIOS, rule, Verdict.INCONCLUSIVE))
    assert f"{confidence} % interval, 6 rounds), limit {rule}" in text


@pytest.mark.parametrize(
    ("verdict", "limit"), [(Verdict.FAIL, "not < 0.98"), (Verdict.INCONCLUSIVE, ">= 0.95")]
)
def test_an_explanation_shows_the_limit_that_decided(verdict, limit):
    ratios = (0.90, 0.91, 0.92, 0.93, 0.94, 0.97 if verdict is Verdict.FAIL else 0.99)
    text = ending.explanation(outcome(WEAK, ratios, REGRESSION, verdict))
    assert text.splitlines()[1].endswith(f"limit {limit}")


LOOKS = (8, 12)


def judged(estimate: float, half: float, rule: Rule, rounds: int = 8) -> Judgement:
    """Undecided; half: of the interval, as a factor."""
    figure = Interval(estimate, estimate / half, estimate * half, 0.025, rounds)
    return Judgement(Verdict.INCONCLUSIVE, figure, rule, rounds)


def undecided(estimate: float, half: float, asked: Comparison = WEAK, rounds: int = 8) -> Outcome:
    measured = outcome(asked, [estimate] * rounds, Floor.at(0.55), Verdict.INCONCLUSIVE)
    return replace(measured, judgement=judged(estimate, half, Floor.at(0.55), rounds))


def told(outcomes: Sequence[Outcome], seconds: float = 240.0, precision: float = 0.0) -> list[str]:
    return ending.next_steps(
        outcomes,
        LOOKS,
        seconds,
        resumed=lambda minutes: [f"resume {minutes}"],
        alone=lambda comparison: [f"alone {comparison.name}"],
        precision=precision,
    )


def test_a_session_that_is_not_precise_enough_says_how_to_go_on_and_what_to_repeat():
    passed = Judgement(Verdict.PASS, Interval(1.0, 0.96, 1.04, 0.05, 8), Floor.at(0.5), 8)
    failed = replace(passed, verdict=Verdict.FAIL)
    rounds = outcome(WEAK, RATIOS).rounds
    found = told([Outcome(WEAK, passed, rounds=rounds)], precision=0.02)
    assert found[-1].startswith("resume ")
    assert found[-1] != "resume None"
    other = communication(WORKLOAD, 2)
    both = told([Outcome(WEAK, passed), Outcome(other, failed)], precision=0.02)
    assert f"alone {other.name}" in both
    assert told([Outcome(WEAK, passed)], precision=0.05) == []


# How many rounds ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimate", "rule"),
    [
        (1.1, Floor.at(1.0)),
        (1 / 1.1, Band(1.0, 2.0)),
        (1.1, Ceiling(1.0)),
        (1 / 1.1, Ceiling(1.0)),
    ],
)
def test_an_interval_twice_as_long_as_may_be_takes_four_times_the_rounds(estimate, rule):
    assert ending.rounds_needed(judged(estimate, 1.1**2, rule)) == pytest.approx(32)


@pytest.mark.parametrize(
    ("rounds", "half", "to_go"),
    [(2, 1.01, 6), (8, 1.01, 4), (8, 1.21, 40), (12, 1.01, 12), (24, 1.01, 24)],
)
def test_rounds_are_told_up_to_a_look(rounds, half, to_go):
    assert ending.rounds_to_go(judged(1.1, half, Floor.at(1.0), rounds), LOOKS) == to_go


# In words ----------------------------------------------------------------------------------------


def test_all_that_is_undecided_has_one_command():
    cases = [undecided(0.6, 1.1), undecided(0.6, 1.1, communication(WORKLOAD, 2))]
    # Four rounds more, of which eight have taken four minutes.
    assert told(cases) == [
        "To decide 2 INCONCLUSIVE (up to 4 more rounds, about 2 min):",
        "resume 2",
    ]


def test_what_did_not_run_is_decided_with_it():
    never = outcome(parity(WORKLOAD, 2), (), None, Verdict.NOT_RUN, "no round was completed")
    (text, _) = told([undecided(0.6, 1.1), never])
    assert text.startswith("To decide 1 NOT RUN and 1 INCONCLUSIVE (up to 8 more rounds, about ")
    assert told([never]) == ["To decide 1 NOT RUN (up to 8 more rounds):", "resume None"]


def test_what_is_on_its_limit_has_no_command():
    said = " ".join(line.strip() for line in told([undecided(0.5501, 1.1)]))
    assert "weak_scaling[resnet_50_s-np2]. Change the limit or the workload" in said
    assert "resume" not in said


def test_the_first_of_what_failed_is_measured_again_alone():
    cases = [
        outcome(ask(WORKLOAD, 2), (0.5,) * 8, None, Verdict.FAIL) for ask in (parity, weak_scaling)
    ]
    assert told(cases) == [
        "To repeat a case that is FAIL, alone (the first of 2):",
        "alone parity[resnet_50_s-np2]",
    ]


def test_what_more_rounds_would_not_change_has_no_command():
    passed = outcome(WEAK, (0.9,) * 8)
    shown = outcome(WEAK, (0.9,) * 8, None, Verdict.INFO, "more replicas than cores")
    lacks = outcome(WEAK, (0.9,) * 8, None, Verdict.INVALID, "no threshold", threshold_line="a = 1")
    case = outcome(WEAK, (0.9,) * 8, None, Verdict.INCONCLUSIVE)
    short = replace(case, judgement=replace(case.judgement, needs_longer_runs=True))
    assert told([passed, shown, lacks, short]) == []


# Commands ----------------------------------------------------------------------------------------

LINE = ending.CommandLine(
    ["perf/", "--profile", "smoke", "-k", "parity or weak", "--budget=3", "-x", "--resume", "old"],
    ["perf/"],
    ["mpirun", "-np", "4"],
)


def words(command: Sequence[str]) -> list[str]:
    """As a shell reads them."""
    return shlex.split("\n".join(command).replace("\\\n", " "))


def test_a_command_line_can_be_pasted():
    assert shlex.split(str(LINE)) == [*LINE.before, "pytest", *LINE.arguments]
    assert "-k 'parity or weak'" in str(LINE)


def test_a_session_goes_on_with_the_options_of_before():
    assert words(LINE.resumed("results/runs/it", 4)) == [
        *("mpirun", "-np", "4", "pytest", "perf/", "--profile", "smoke"),
        *("-k", "parity or weak", "-x", "--resume", "results/runs/it", "--budget", "4"),
    ]


def test_one_case_is_named_and_has_the_options_too():
    assert words(LINE.alone("perf/test_parity.py::test_parity[a-np2]")) == [
        *("mpirun", "-np", "4", "pytest", "perf/test_parity.py::test_parity[a-np2]"),
        *("--profile", "smoke", "--budget=3", "-x"),
    ]


def test_a_long_command_goes_over_several_lines():
    many = ending.CommandLine([f"--models=network_{number}" for number in range(20)])
    command = many.resumed("results/runs/it", 4)
    assert all(len(line) <= WIDTH for line in command)
    assert all(line.endswith(" \\") for line in command[:-1])
    assert words(command)[1:21] == list(many.arguments)
