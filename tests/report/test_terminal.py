"""The report in 80 columns: what a session shows at its end, and what shows it again."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hvdperf.columns import WIDTH
from hvdperf.models.registry import NETWORKS
from hvdperf.plan.questions import (
    aa,
    communication,
    fixed_epochs,
    gradient_reductions,
    parity,
    startup,
    strong_scaling,
    sweep,
    weak_scaling,
)
from hvdperf.records.archive import Archive, read_session
from hvdperf.records.outcome import Failure, Outcome
from hvdperf.report.content import Report
from hvdperf.report.session import brief_report, read_sessions, session_report
from hvdperf.report.text import MOST_LINES, lines_of, terminal
from hvdperf.stats import Interval
from hvdperf.verdict import Band, Ceiling, Floor, Rule, Verdict
from tests.report.cases import recorded
from tests.report.sample import a_report, hostile
from tests.support.reports import session_of
from tests.support.rounds import WORKLOAD, outcome
from tests.support.stores import case_of, session_of_cases

RATIOS = (0.91, 0.92, 0.93, 0.94, 0.95, 0.96)
WEAK, PARITY = weak_scaling(WORKLOAD, 2), parity(WORKLOAD, 2)
COMMUNICATION = communication(WORKLOAD, 2)
SWEEP = [outcome(asked, [2.0] * 2, Ceiling(20.0, unit="")) for asked in sweep(WORKLOAD, 2)]


def live(*outcomes: Outcome) -> Archive:
    """Return a session that nothing of has been written."""
    cases = sorted((case_of(each, 128, 128) for each in outcomes), key=lambda case: case.name)
    return Archive(Path("results/runs/now"), session_of_cases(*cases), tuple(cases), ())


def shown(*outcomes: Outcome) -> list[str]:
    return lines_of(brief_report(live(*outcomes)))


def notes(lines: Sequence[str], word: Verdict) -> list[str]:
    """Return the lines that begin with a verdict, each as a whole."""
    told = "\n".join(lines).replace("\n    ", " ").splitlines()
    return [line for line in told if line.startswith(f"{word.value}")]


# One code for both -----------------------------------------------------------------------------


def test_a_session_is_shown_later_as_at_its_end(tmp_path):
    outcomes = [case.outcome for case in recorded()]
    outcomes += [outcome(COMMUNICATION, (), None, Verdict.FAIL, "a rank died")]
    directory = session_of(tmp_path, *outcomes, slots=128, per_node=128)
    later = terminal(session_report(read_sessions(directory))).splitlines()
    assert later[0].startswith(f"hvdperf: profile smoke, session {directory.name}: 1 FAIL, ")
    assert later[2:] == shown(*outcomes)
    assert later[2:] == lines_of(brief_report(read_session(directory)))


def test_figures_are_those_of_the_page(tmp_path):
    report = brief_report(live(outcome(WEAK, RATIOS), outcome(PARITY, [1.04] * 6, Band(0.7, 1.3))))
    lines = lines_of(report)
    assert report.overview is not None
    of_networks = {tuple(line.split()[:2]): line.split() for line in lines}
    for row in report.overview.table.rows:
        words = of_networks[str(row["model"]), str(row["world_size"])]
        assert words[2] == f"{row['samples_per_second']:.0f}"
    two = of_networks["resnet_50_s", "2"]
    assert (two[3], two[6]) == ("93", "1.04")


@pytest.mark.parametrize(("ratio", "told"), [(0.01, "20.0"), (0.06, "120"), (0.5, "1000")])
def test_small_throughputs_have_a_digit_more(ratio, told):
    of_networks = [line.split() for line in shown(outcome(WEAK, [ratio])) if "[" not in line]
    assert ["resnet_50_s", "2", told] in [words[:3] for words in of_networks]


# The table of cases ----------------------------------------------------------------------------


def test_cases_stand_below_their_topic_and_world_size():
    asked = [*fixed_epochs(WORKLOAD, 2), communication(WORKLOAD, 16), COMMUNICATION]
    lines = shown(*(outcome(each, RATIOS) for each in asked), *SWEEP)
    begin = next(i for i, line in enumerate(lines) if line.startswith("case "))
    assert [re.split(r" +\d\.", line)[0].strip() for line in lines[begin + 1 :][:14]] == [
        "collective overhead, 2 ranks",
        *(f"{name} sweep" for name in ("allgather", "allreduce", "broadcast", "reducescatter")),
        "communication, 2 ranks",
        "resnet_50_s",
        "communication, 16 ranks",
        "resnet_50_s",
        "convergence, 2 ranks",
        *(
            f"{metric}-{other} resnet_50_s"
            for metric in ("accuracy", "loss")
            for other in ("mirrored", "single")
        ),
    ]


def test_no_line_is_wider_than_a_terminal_and_verdicts_are_aligned():
    longest = replace(WORKLOAD, model=max(NETWORKS, key=len))
    asked = [ask(longest, 128) for ask in (weak_scaling, strong_scaling, communication, parity)]
    asked += [*gradient_reductions(longest, 128)[:2], *startup(longest, 128)[:1]]
    figures = (None, Interval(0.93, 0.0, 99.0, 0.025, 1), Interval(0.9, 0.85, 0.95, 0.025, 24))
    rules: tuple[Rule, ...] = (Floor.at(0.875), Band(0.75, 1.3333), Band(0.75, 1.3333))
    for figure, rule in zip(figures, rules, strict=True):
        cases = [
            outcome(each, RATIOS[:1], rule, verdict, "some reason " * 9)
            for each, verdict in zip(asked, itertools.cycle(Verdict), strict=False)
        ]
        cases = [replace(c, judgement=replace(c.judgement, figure=figure)) for c in cases]
        lines = shown(*cases)
        assert max(map(len, lines)) <= WIDTH
        begin = next(i for i, line in enumerate(lines) if line.startswith("case "))
        column = lines[begin].index("verdict")
        rows = [
            line for line in lines[begin + 1 :] if line.startswith("  ") and "[" not in line[:9]
        ]
        told = {row[column:] for row in rows if longest.model in row and row[3:4] != " "}
        assert told == {case.judgement.verdict.value for case in cases}


# Below it --------------------------------------------------------------------------------------


def test_each_reason_is_told_once_with_the_cases_that_share_it():
    pasteable = '"weak_scaling/resnet_50_s/np2/one-node" = 0.97'
    reason = f"no threshold; add to cpu-unknown.toml: {pasteable}"
    cases = [outcome(ask, RATIOS, None, Verdict.INVALID, reason) for ask in (WEAK, PARITY)]
    lines = shown(*cases, outcome(COMMUNICATION, RATIOS))
    (told,) = notes(lines, Verdict.INVALID)
    assert PARITY.name in told
    assert WEAK.name in told
    assert any('"weak_scaling/resnet_50_s/np2/one-node"' in line for line in lines)
    assert notes(lines, Verdict.PASS) == []


def test_what_is_not_judged_is_explained_once_for_all_cases():
    reasons = ("more replicas than cores", "Horovod exchanges what is on GPUs")
    cases = [
        outcome(asked, RATIOS[:1], None, Verdict.INFO, reason)
        for reason, asked in zip(reasons, (WEAK, PARITY), strict=True)
    ]
    cases += [outcome(aa(WORKLOAD, 2), RATIOS[:1], None, Verdict.INFO, reasons[0])]
    told = notes(shown(*cases), Verdict.INFO)
    assert sorted(told) == sorted(f"INFO: {reason}" for reason in reasons)


def test_the_end_of_the_errors_of_a_failed_launch_is_shown_once():
    printed = [f"[rank 1] {number}" for number in range(MOST_LINES + 1)]
    failure = Failure("resnet_50_s horovod@2", 1, "block", "it broke", printed)
    lines = shown(
        *(
            outcome(each, (), None, Verdict.FAIL, str(failure), failure=failure)
            for each in (WEAK, strong_scaling(WORKLOAD, 2))
        )
    )
    told = [line.strip() for line in lines if "[rank 1]" in line]
    assert told == printed[1:]


def test_a_sweep_has_a_row_a_size_of_every_operation():
    lines = shown(*SWEEP)
    begin = next(i for i, line in enumerate(lines) if line.startswith("allgather on 2 ranks"))
    rows = [line.split() for line in lines[begin:] if line.startswith("16 MB")]
    # 16 MiB in 10 ms bare, twice that through Horovod; the factors at 2 ranks are 1/2, 1.
    assert rows[:2] == [
        ["16", "MB", "0.419", "0.839", "2.000"],
        ["16", "MB", "0.839", "1.678", "2.000"],
    ]


def test_a_session_without_anything_is_shown():
    lines = shown(outcome(WEAK, (), verdict=Verdict.NOT_RUN))
    assert any(line.startswith("case ") for line in lines)


@pytest.mark.parametrize("report", [a_report(), hostile()], ids=("usual", "hostile"))
def test_any_report_is_lines_of_printable_text(report: Report):
    text = terminal(report)
    assert all(character.isprintable() for line in text.splitlines() for character in line)
