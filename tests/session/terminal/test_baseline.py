"""Tonight beside an earlier session: compared where both are of one series, and only there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.plan.arms import AGAINST
from hvdperf.plan.questions import against, fixed_time, parity, weak_scaling
from hvdperf.records.archive import read_session
from hvdperf.records.documents import Asked
from hvdperf.session.terminal import baseline
from hvdperf.verdict import Band, Verdict
from tests.support.rounds import WORKLOAD, outcome
from tests.support.stores import case_of, fingerprint_of, placed, write_session

WEAK, PARITY = weak_scaling(WORKLOAD, 2), parity(WORKLOAD, 2)
OF_THEN = Asked(
    looks=(6,),
    profile={
        "schedule": "alternate",
        "sampling.min_block_seconds": 0.3,
        "sampling.min_block_steps": 10,
        "runs.seconds": 10.0,
    },
)
ASKED = OF_THEN.texts
THEN = (0.91, 0.92, 0.93, 0.94, 0.95, 0.96)


@pytest.fixture
def earlier(tmp_path: Path):
    """A session that measured weak scaling; other: further outcomes."""

    def session(*other):
        cases = map(case_of, (outcome(WEAK, THEN), *other))
        return baseline.baseline_session(
            read_session(write_session(tmp_path, *cases, asked=OF_THEN))
        )

    return session


def scaled(ratio: float):
    return outcome(WEAK, [ratio * value for value in THEN])


@pytest.mark.parametrize(("ratio", "word"), [(0.9, "lower"), (1.0, ""), (1.08, "higher")])
def test_a_case_is_compared_with_itself_of_then(earlier, ratio, word):
    (change,) = baseline.changes(earlier(), [scaled(ratio)], ASKED)
    assert change.ratio.estimate == pytest.approx(ratio, rel=1e-6)
    assert change.ratio.lower < ratio < change.ratio.upper
    assert change.word == word
    assert change.then == pytest.approx(0.935, abs=0.001)
    _, _, said = baseline.lines(Path("results/runs/then"), [], [change])
    assert said.split()[0] == "resnet_50_s"
    assert said.endswith(word or "]")
    assert len(said) <= 80


def test_what_was_asked_otherwise_is_not_compared(earlier):
    archive = earlier(outcome(PARITY, THEN, Band(0.75, 1.33)))
    batch = replace(WORKLOAD, batch=64)
    assert baseline.changes(archive, [outcome(weak_scaling(batch, 2), THEN)], ASKED) == []
    other = against(WEAK)
    assert other is not None
    assert other.reference.arm.stack == AGAINST
    assert baseline.changes(archive, [outcome(other, THEN)], ASKED) == []
    both = baseline.changes(archive, [outcome(WEAK, THEN), outcome(PARITY, THEN)], ASKED)
    assert [change.outcome.comparison for change in both] == [WEAK, PARITY]


def test_what_was_not_measured_is_not_compared(earlier):
    archive = earlier(replace(outcome(PARITY, THEN), judgement=unmeasured()))
    assert baseline.changes(archive, [outcome(PARITY, THEN)], ASKED) == []
    assert "no case has a figure in both sessions" in baseline.lines(archive.directory, [], [])[-1]


def unmeasured():
    return replace(outcome(PARITY, THEN).judgement, verdict=Verdict.NOT_JUDGED)


def test_few_rounds_bound_nothing(earlier):
    (change,) = baseline.changes(earlier(), [outcome(WEAK, THEN[:1])], ASKED)
    assert change.word == ""
    assert "[-, -]" in baseline.lines(Path("then"), [], [change])[2]


def test_another_stack_begins_a_new_series_and_says_why(earlier):
    archive = earlier()
    same = archive.cases[0].fingerprint
    assert baseline.new_series(archive, same, ASKED) == []
    other = same.copy()
    other["keras"] = "3.16.0"
    (changed,) = baseline.new_series(archive, other, ASKED)
    assert changed == "keras: 3.15.1 -> 3.16.0"
    said = baseline.lines(archive.directory, [changed], [])
    assert "a new series begins" in " ".join(said)
    assert said[-1] == "  keras: 3.15.1 -> 3.16.0"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("inject", "slow:rank=1", "inject: (nothing) -> slow:rank=1"),
        ("against", "keras: 3.15.1 -> 2.15.0", "against: (nothing) -> keras: 3.15.1 -> 2.15.0"),
        ("schedule", "fresh", "schedule: alternate -> fresh"),
        ("sampling.min_block_steps", "20", "sampling.min_block_steps: 10 -> 20"),
    ],
)
def test_so_does_what_makes_any_figure_another_one(earlier, name, value, said):
    archive = earlier()
    same = archive.cases[0].fingerprint
    assert baseline.new_series(archive, same, {**ASKED, name: value}) == [said]
    assert baseline.new_series(archive, same, {**ASKED, "sampling.looks": "[8, 12]"}) == []


def test_whole_runs_are_compared_only_if_they_were_as_long(earlier):
    lasting = fixed_time(WORKLOAD, 2)
    archive, now = earlier(outcome(lasting, THEN)), [outcome(WEAK, THEN), outcome(lasting, THEN)]
    assert len(baseline.changes(archive, now, ASKED)) == 2
    assert len(baseline.changes(archive, now, {**ASKED, "runs.deadline_s": "60"})) == 2
    (only,) = baseline.changes(archive, now, {**ASKED, "runs.seconds": "20.0"})
    assert only.outcome.comparison == WEAK


def test_a_session_that_does_not_say_what_it_was_asked_is_of_no_series(earlier):
    archive = earlier()
    (archive.directory / "session.json").unlink()
    archive = read_session(archive.directory)
    changed = baseline.new_series(archive, archive.cases[0].fingerprint, ASKED)
    assert "schedule: (not recorded) -> alternate" in changed


def test_a_fingerprint_is_the_same_after_it_was_stored(earlier):
    stored = earlier().cases[0].fingerprint
    assert stored == fingerprint_of(placed())


def test_a_directory_without_a_case_is_one_line(tmp_path):
    (tmp_path / "session").mkdir()
    (tmp_path / "session" / "weak.json").write_text("{")
    with pytest.raises(UserError, match=r"there is no case in it: .*weak\.json") as caught:
        baseline.baseline_session(read_session(tmp_path / "session"))
    assert "\n" not in str(caught.value)
