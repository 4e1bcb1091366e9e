"""Two sessions side by side: what changed where both were asked alike, and why the rest is not
compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdperf.errors import UserError
from hvdperf.interim import early_shift
from hvdperf.plan.questions import aa, against, fixed_time, parity, weak_scaling
from hvdperf.records.archive import read_session
from hvdperf.records.documents import Asked
from hvdperf.records.outcome import Failure, Outcome
from hvdperf.report.compare import Kind, comparison, of_logarithms
from hvdperf.report.content import Figure, Report, Section
from hvdperf.verdict import ALPHA, Band, Noise, Verdict
from tests.report.cases import assert_sound, edit, known
from tests.support.reports import session_of
from tests.support.rounds import HOROVOD_2, WORKLOAD, outcome

WEAK, PARITY, SAME = weak_scaling(WORKLOAD, 2), parity(WORKLOAD, 2), aa(WORKLOAD, 2)
RATIOS = (0.91, 0.92, 0.93, 0.94, 0.95, 0.96)
A, B = "20260130T000000Z-1", "20260131T000000Z-2"


def scaled(ratio: float, **other: Any) -> Outcome:
    return outcome(WEAK, [ratio * value for value in RATIOS], **other)


def compared(tmp_path: Path, ours: list[Outcome], theirs: list[Outcome]) -> Report:
    """Of two sessions with these cases, and sound as a report."""
    directories = session_of(tmp_path, *ours, name=A), session_of(tmp_path, *theirs, name=B)
    return read(*directories)


def read(a: Path, b: Path) -> Report:
    made = comparison(*(read_session(directory) for directory in (a, b)))
    assert_sound(Section("all", "", "", tuple(made.figures)))
    return made


def row(made: Report) -> dict[str, Any]:
    (only,) = made.board.table.rows
    return dict(only)


def throughputs(made: Report) -> Figure:
    return known(made.overview)


# One case --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ratio", "word"), [(0.9, "lower"), (1.08, "higher")])
def test_a_figure_that_surely_changed_is_named(tmp_path, ratio, word):
    made = compared(tmp_path, [scaled(1)], [scaled(ratio)])
    told = row(made)
    assert told["ratio"] == pytest.approx(ratio)
    assert told["lower"] < ratio < told["upper"]
    assert told["word"] == word
    assert (told["verdict_a"], told["verdict"]) == ("PASS", "PASS")
    assert told["figure_b"] == pytest.approx(ratio * told["figure_a"])
    assert told["lower_a"] < told["figure_a"] < told["upper_a"]
    assert f"1 {word}" in made.board.says
    assert f"{WEAK.name}: B / A = {ratio:.3f} [" in made.board.says


def test_a_figure_that_did_not_says_within_what(tmp_path):
    told = row(compared(tmp_path, [scaled(1)], [scaled(1.001)]))
    apart = max(told["upper"] - 1, 1 - told["lower"])
    assert told["word"] == f"same within {100 * apart:.1f} %"
    assert told["lower"] < 1 < told["upper"]


@given(
    st.lists(st.floats(-3, 3), min_size=1, max_size=8),
    st.lists(st.floats(-3, 3), min_size=1, max_size=8),
)
def test_sides_may_be_exchanged(a, b):
    there, back = of_logarithms(a, b), of_logarithms(b, a)
    opposite = {Kind.HIGHER: Kind.LOWER, Kind.LOWER: Kind.HIGHER}
    assert back.kind is opposite.get(there.kind, there.kind)
    assert there.ratio is not None
    assert back.ratio is not None
    assert there.ratio.estimate * back.ratio.estimate == pytest.approx(1)


def test_no_finite_round_is_no_ratio():
    assert of_logarithms([None], [0.1]).kind is Kind.NOT_COMPARABLE
    assert of_logarithms([0.0], [-math.inf]).ratio is None
    assert of_logarithms([-700.0], [700.0]).ratio is None


# What is not compared --------------------------------------------------------------------------


def test_cases_of_one_session_are_shown(tmp_path):
    made = compared(
        tmp_path, [scaled(1), outcome(SAME, RATIOS)], [scaled(1), outcome(PARITY, RATIOS)]
    )
    rows = {each["case"]: each for each in made.board.table.rows}
    assert rows[PARITY.name]["word"] == "only in B"
    assert (rows[SAME.name]["word"], rows[SAME.name]["verdict"]) == ("only in A", None)
    assert "1 only in A, 1 only in B" in made.board.says


def test_what_was_asked_otherwise_says_how(tmp_path):
    other = outcome(weak_scaling(replace(WORKLOAD, batch=64), 2), RATIOS)
    told = row(compared(tmp_path, [scaled(1)], [other]))
    assert told["ratio"] is None
    assert "settings differ: workload batch 32 in A, 64 in B" in told["word"]


LENGTHS: dict[str, Any] = {
    "schedule": "alternate",
    "sampling.min_block_seconds": 0.3,
    "sampling.min_block_steps": 10,
    "runs.seconds": 10.0,
    "runs.endurance_steps": 1500,
}


def asked(changed: Mapping[str, Any] = LENGTHS, inject: str = "") -> Asked:
    return Asked(profile={**LENGTHS, **changed}, inject=inject)


BLOCKS, TIMED, OTHERS = {WEAK.name}, {fixed_time(WORKLOAD, 2).name}, set[str]()


@pytest.mark.parametrize(
    ("changed", "unlike", "how"),
    [
        ({"schedule": "fresh"}, BLOCKS, "schedule alternate in A, fresh in B"),
        ({"sampling.min_block_seconds": 1}, BLOCKS, "sampling.min_block_seconds 0.3 in A, 1 in B"),
        ({"sampling.min_block_steps": 20}, BLOCKS, "sampling.min_block_steps 10 in A, 20 in B"),
        ({"runs.seconds": 20.0}, TIMED, "runs.seconds 10.0 in A, 20.0 in B"),
        ({"sampling.turns_max": 9, "runs.endurance_steps": 300}, OTHERS, ""),
    ],
)
def test_blocks_and_runs_of_another_length_or_schedule_are_not_compared(
    tmp_path, changed, unlike, how
):
    cases = [scaled(1), outcome(fixed_time(WORKLOAD, 2), RATIOS)]
    made = read(
        session_of(tmp_path, *cases, name=A, asked=asked()),
        session_of(tmp_path, *cases, name=B, asked=asked(changed)),
    )
    words = {True: f"not comparable (settings differ: {how})", False: "same"}
    for each in made.board.table.rows:
        assert str(each["word"]).startswith(words[each["case"] in unlike])
    for each in throughputs(made).table.rows:
        assert str(each["word"]).startswith(words[unlike == BLOCKS])


def test_a_figure_against_another_stack_is_another_figure(tmp_path):
    other = known(against(WEAK))
    told = row(compared(tmp_path, [scaled(1)], [outcome(other, RATIOS)]))
    assert "full blocks in A, horovod@2+against, full blocks in B" in told["word"]


FAILED = Failure(HOROVOD_2.name, 1, "block", "it broke", ["Traceback"])


@pytest.mark.parametrize(
    ("other", "word"),
    [
        ({"verdict": Verdict.INVALID, "reason": "a NaN"}, "B: INVALID"),
        ({"verdict": Verdict.INFO, "reason": "they share a core"}, "B: INFO"),
        ({"verdict": Verdict.FAIL, "failure": FAILED}, "B: a launch failed"),
    ],
)
def test_what_is_not_sound_is_not_compared(tmp_path, other, word):
    made = compared(tmp_path, [scaled(1)], [scaled(1, **other)])
    assert row(made)["word"] == f"not comparable ({word})"
    assert row(made)["ratio"] is None


def test_what_both_lack_is_said_once(tmp_path):
    none = outcome(WEAK, (), verdict=Verdict.INFO, reason="they share a core")
    made = compared(tmp_path, [none], [none])
    assert row(made)["word"] == "not comparable (both: no figure)"
    assert made.overview is None


def test_a_session_without_a_case_is_refused_in_a_line(tmp_path):
    session = session_of(tmp_path, scaled(1), name=A)
    empty = session_of(tmp_path, name=B)
    (empty / "weak.json").write_text("{")
    for pair in ((session, empty), (empty, session)):
        with pytest.raises(UserError, match=r"there is no case in it: .*weak\.json") as caught:
            read(*pair)
        assert "\n" not in str(caught.value)


# The whole -------------------------------------------------------------------------------------


def test_nothing_is_judged_and_counts_are_those_of_b(tmp_path):
    made = compared(
        tmp_path,
        [scaled(1), outcome(PARITY, RATIOS, Band(0.75, 1.33))],
        [scaled(1, verdict=Verdict.FAIL)],
    )
    assert made.verdict is Verdict.INFO
    assert made.counts == {Verdict.FAIL: 1}
    assert made.title == f"{A} (A) and {B} (B)"
    assert made.facts["A"].startswith(f"{A}: profile smoke, ")
    assert made.facts["A"].endswith(": 2 PASS")
    assert made.facts["B"].endswith(": 1 FAIL")
    assert made.warnings == ()


def test_what_differs_of_the_fingerprints_comes_first(tmp_path):
    a = session_of(tmp_path, scaled(1), name=A, asked=asked())
    b = session_of(tmp_path, scaled(1), name=B, asked=asked(inject="slow10"))
    edit(b, {"keras": "3.16.0", "cores": 8}, "fingerprint")
    made = read(a, b)
    assert "different series" in made.warnings[0]
    assert made.warnings[1:] == (
        "cores: 2 -> 8",
        "keras: 3.15.1 -> 3.16.0",
        "B has an injected fault: slow10",
    )
    assert row(made)["word"].startswith("same within")


def test_what_is_odd_about_a_session_is_said(tmp_path):
    a = session_of(tmp_path, scaled(1), name=A)
    b = session_of(tmp_path, scaled(1), name=B, exit_status=None)
    (a / "broken.json").write_text("{")
    made = read(a, b)
    assert any("B: " in line and "the session still runs" in line for line in made.warnings)
    assert ["broken.json" in line for line in made.left_out] == [True]
    assert read(a, a).warnings == ("A and B are the same session",)


def test_throughputs_are_medians_of_all_replicas(tmp_path):
    made = compared(tmp_path, [scaled(1)], [scaled(1.1)])
    rows = {each["world_size"]: each for each in throughputs(made).table.rows}
    # The reference trains 1000 samples a second on one replica.
    assert rows[1]["speed_a"] == rows[1]["speed_b"] == pytest.approx(1000)
    assert rows[1]["word"] == "same within 0.0 %"
    assert rows[2]["speed_a"] == pytest.approx(2 * 935)
    assert rows[2]["speed_b"] == pytest.approx(1.1 * 2 * 935)
    assert rows[2]["ratio"] == pytest.approx(1.1)
    assert rows[2]["word"] == "higher"
    assert (rows[2]["rounds_a"], rows[2]["rounds_b"]) == (6, 6)


def test_throughputs_of_one_session_are_shown(tmp_path):
    four = weak_scaling(WORKLOAD, 4)
    a = session_of(tmp_path, scaled(1), name=A)
    made = read(a, session_of(tmp_path, outcome(four, RATIOS), slots=4, per_node=4, name=B))
    one, two, four_ranks = throughputs(made).table.rows
    assert (two["speed_b"], two["word"]) == (None, "only in A")
    assert (four_ranks["speed_a"], four_ranks["word"]) == (None, "only in B")
    assert one["ratio"] == pytest.approx(1)


# Few rounds ------------------------------------------------------------------------------------


def test_two_healthy_sessions_of_three_rounds_have_an_answer(tmp_path):
    """With the noise of launches that these sessions knew of, 2 %."""
    three = outcome(WEAK, (0.93, 0.94, 0.95))
    known = replace(three, judgement=replace(three.judgement, early=Noise(0.02)))
    told = row(compared(tmp_path, [known], [known]))
    assert told["word"].startswith("same within ")
    assert told["lower"] < 1 < told["upper"] < 1.06
    lower = outcome(WEAK, (0.73, 0.74, 0.75))
    lower = replace(lower, judgement=replace(lower.judgement, early=Noise(0.02)))
    assert row(compared(tmp_path / "other", [known], [lower]))["word"] == "lower"
    wider = row(compared(tmp_path / "unknown", [three], [three]))
    assert 1.08 < wider["upper"] < 1.12, "launches of an unknown machine may differ by 5 %"


def test_what_no_bounds_can_answer_names_the_command_that_measures_enough(tmp_path):
    few = outcome(WEAK, RATIOS[:2])
    made = compared(tmp_path, [few], [few])
    told = row(made)
    assert (told["ratio"], told["word"]) == (pytest.approx(1), "too few rounds")
    assert told["lower"] is told["upper"] is told["lower_b"] is told["upper_b"] is None
    said = " ".join(made.warnings)
    assert f"1 case without an interval: each session needs 4 rounds, such as {WEAK.name};" in said
    assert "pytest perf/ --resume SESSION --budget 10" in said
    assert "2 throughputs without an interval" in said
    assert "pytest perf/ --profile history measures eight" in said


def test_bounds_of_few_rounds_contain_no_change_in_19_of_20_sessions():
    """At the noise of quiet sessions, with the least noise that a record can tell."""
    generator = np.random.default_rng(1)
    found = 0
    for _ in range(400):
        sides = 0.015 * generator.standard_normal((2, 3, 1))
        sides = sides + 0.038 * generator.standard_normal((2, 3, 4))
        ours, theirs = ((side.tolist(), Noise(0.02)) for side in sides)
        ratio = known(early_shift(ours, theirs, ALPHA))
        found += ratio.lower <= 1 <= ratio.upper
    assert found >= 0.95 * 400
