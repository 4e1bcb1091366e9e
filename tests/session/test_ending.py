"""What a session's verdicts mean for pytest: exit status, colours, and why a case failed."""

import io
import itertools
import re

import pytest
from _pytest._io import TerminalWriter

from hvdperf.columns import WIDTH
from hvdperf.plan.questions import weak_scaling
from hvdperf.records.outcome import Failure
from hvdperf.session.ending import NOTHING_MEASURED, ending, exit_status, explanation
from hvdperf.session.plugin import painted
from hvdperf.verdict import Band, Floor, Verdict
from tests.support.rounds import WORKLOAD, outcome

RATIOS = (0.91, 0.92, 0.93, 0.94, 0.95, 0.96)
WEAK = weak_scaling(WORKLOAD, 2)


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


def test_every_verdict_has_its_own_exit_status():
    statuses = [exit_status([verdict]) for verdict in Verdict]
    assert len(set(statuses)) == len(Verdict)
    assert NOTHING_MEASURED == 5


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
    text = " ".join(verdict.value for verdict in Verdict)
    assert painted(text, writer(False).markup) == text
    assert re.sub("\x1b\\[[0-9;]*m", "", painted(text, writer(True).markup)) == text


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
