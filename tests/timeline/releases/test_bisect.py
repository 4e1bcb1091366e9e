"""Bisection over releases, and the comparisons that it rests on."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdperf.errors import UserError
from hvdperf.plan.comparisons import Comparison
from hvdperf.plan.questions import against, parity, weak_scaling
from hvdperf.records.archive import Archive, read_session
from hvdperf.records.outcome import Failure, Outcome
from hvdperf.timeline.releases import bisect as side_by_side
from hvdperf.timeline.releases import raw
from hvdperf.timeline.releases.backfill import NotBuilt
from hvdperf.timeline.releases.bisect import (
    Answer,
    Asked,
    bisect,
    bisect_command,
    conclusion,
    result_of,
)
from hvdperf.timeline.releases.raw import Axis
from hvdperf.verdict import Floor, Verdict, judge
from tests.support.rounds import WORKLOAD, outcome
from tests.support.stores import case_of, write_session

NONE = (Answer.UNDECIDED, Answer.NOT_BUILT)
CHANGES = st.sampled_from([Answer.SLOWER, Answer.FASTER])


class Judge:
    """Answers about releases r0, r1, ... of which one brings a change, and counts the questions."""

    def __init__(self, step: int, change: Answer, without: dict[int, Answer] | None = None) -> None:
        self.step, self.change, self.without = step, change, without or {}
        self.asked: list[tuple[str, str]] = []

    def __call__(self, older: str, newer: str) -> Answer:
        self.asked.append((older, newer))
        place = int(newer[1:])
        if place in self.without:
            return self.without[place]
        return self.change if place >= self.step else Answer.SAME


def names(count: int) -> list[str]:
    return [f"r{place}" for place in range(count)]


@given(st.data())
def test_one_step_is_found_by_halving(data):
    count = data.draw(st.integers(2, 200))
    step = data.draw(st.integers(1, count - 1))
    change = data.draw(CHANGES)
    judge = Judge(step, change)
    found = bisect(names(count), judge)
    assert (found.answer, found.unchanged, found.changed) == (change, f"r{step - 1}", f"r{step}")
    assert found.unknown == {}
    assert len(judge.asked) <= math.ceil(math.log2(count)) + 1
    assert {older for older, _ in judge.asked} == {"r0"}, "no error adds up"


@given(st.data())
def test_what_gives_no_answer_is_stepped_round_and_named(data):
    count = data.draw(st.integers(2, 40))
    step = data.draw(st.integers(1, count - 1))
    without = data.draw(
        st.dictionaries(st.integers(1, count - 1), st.sampled_from(NONE)).map(
            lambda drawn: {place: why for place, why in drawn.items() if place < count - 1}
        )
    )
    judge = Judge(step, Answer.SLOWER, without)
    found = bisect(names(count), judge)
    low, high = int(found.unchanged[1:]), int(found.changed[1:])
    assert low < step <= high
    # Whatever lies between has been asked about: no release is left out, and none is guessed.
    assert found.unknown == {f"r{place}": without[place] for place in range(low + 1, high)}
    assert len(judge.asked) == len(set(judge.asked)) <= count - 1


@pytest.mark.parametrize("answer", [Answer.SAME, *NONE])
def test_where_the_ends_do_not_differ_nothing_is_searched(answer: Answer) -> None:
    asked = []

    def compare(older: str, newer: str) -> Answer:
        asked.append((older, newer))
        return answer

    found = bisect(names(9), compare)
    assert asked == [("r0", "r8")]
    assert found.answer is answer
    assert any(word in conclusion(found) for word in ("no change", "cannot be built"))


def test_the_conclusion_says_what_is_not_known():
    without = {2: Answer.NOT_BUILT, 3: Answer.UNDECIDED}
    said = conclusion(bisect(names(6), Judge(3, Answer.SLOWER, without)))
    assert said.startswith("slower since r4 or a release between r1 and r4; which one is unknown")
    assert "r2 is not built, r3 is undecided" in said


RULE = Floor(0.98, 0.95)
# Of the rounds of a session, in a standard deviation of 0.8 %.
NOISE = (-0.012, -0.008, -0.004, 0.0, 0.002, 0.004, 0.008, 0.012)
ASKED = Asked(Axis.TENSORFLOW, "0.28.1", "resnet_50_s", 2)


def compared(comparison: Comparison) -> Comparison:
    made = against(comparison)
    assert made is not None
    return made


WEAK = compared(weak_scaling(WORKLOAD, 2))


def measured(ratio: float, comparison: Comparison = WEAK, times_noise: float = 1.0) -> Outcome:
    """As the suite judges it."""
    logs = [math.log(ratio) + times_noise * noise for noise in NOISE]
    made: Outcome = outcome(comparison, list(map(math.exp, logs)))
    return replace(made, judgement=judge(logs, RULE))


def session(directory: Path, *outcomes: Outcome) -> Archive:
    cases = [case_of(each, slots=4, slots_per_node=4) for each in outcomes]
    archive = read_session(write_session(directory, *cases))
    assert len(archive.cases) == len(outcomes)
    return archive


@pytest.mark.parametrize(
    ("ratio", "times_noise", "answer"),
    [
        (0.80, 1, Answer.SLOWER),
        (0.96, 1, Answer.SLOWER),
        (0.995, 1, Answer.SAME),
        (1.00, 1, Answer.SAME),
        (1.005, 1, Answer.SAME),
        # Surely slower, or faster, by less than a verdict is about: a part of a change, maybe.
        (0.985, 1, Answer.UNDECIDED),
        (1.015, 1, Answer.UNDECIDED),
        (1.06, 1, Answer.FASTER),
        (1.20, 1, Answer.FASTER),
        (1.00, 8, Answer.UNDECIDED),
        (0.96, 5, Answer.UNDECIDED),
        # Surely no regression, and maybe 5 % faster: not the same.
        (1.04, 3, Answer.UNDECIDED),
    ],
)
def test_a_verdict_is_an_answer_in_both_directions(tmp_path, ratio, times_noise, answer):
    found = result_of(session(tmp_path, measured(ratio, times_noise=times_noise)), ASKED)
    assert found[0] is answer
    assert found[1] is not None
    assert found[1].estimate == pytest.approx(ratio, rel=1e-3)


def test_the_case_is_found_among_others(tmp_path):
    vgg = replace(WORKLOAD, model="vgg_16_s")
    archive = session(
        tmp_path,
        measured(0.5, compared(parity(WORKLOAD, 2))),
        measured(0.6, compared(weak_scaling(WORKLOAD, 4))),
        measured(0.7, compared(weak_scaling(vgg, 2))),
        measured(1.0),
    )
    assert result_of(archive, ASKED)[0] is Answer.SAME
    assert result_of(archive, replace(ASKED, world_size=4))[0] is Answer.SLOWER


@pytest.mark.parametrize(
    ("verdict", "has_failed"),
    [(Verdict.INVALID, False), (Verdict.INFO, False), (Verdict.FAIL, True)],
)
def test_what_was_not_measured_soundly_is_undecided_and_says_why(tmp_path, verdict, has_failed):
    made = measured(0.9)
    failure = Failure(WEAK.candidate.arm.name, 1, "first step", "it broke", [])
    judgement = replace(made.judgement, verdict=verdict, reason="other weights")
    made = replace(made, judgement=judgement, failure=failure if has_failed else None)
    found = result_of(session(tmp_path, made), ASKED)
    assert (found[0], found[2]) == (Answer.UNDECIDED, "other weights")


def test_a_session_without_the_case_is_one_line(tmp_path):
    # Weak scaling as such holds no stack against another.
    archive = session(tmp_path, outcome(weak_scaling(WORKLOAD, 2), [0.8] * 6))
    with pytest.raises(
        UserError, match="no case compares resnet_50_s at 2 replicas with"
    ) as caught:
        result_of(archive, ASKED)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("ends", "changed", "said"),
    [
        (("2.15.1", "3.0.0"), {}, "--to 3.0.0: known releases of tensorflow are 2.12.0"),
        (("0.28.1", "2.18.1"), {}, "--from 0.28.1: known releases of tensorflow"),
        (("2.18.1", "2.15.1"), {}, "the older release comes first"),
        (("2.15.1", "2.15.1"), {}, "the older release comes first"),
        (("2.15.1", "2.18.1"), {"at": "2.15.1"}, "--at 2.15.1: known releases of horovod"),
        (("2.15.1", "2.18.1"), {"model": "vgg_17"}, "vgg_17"),
        (("2.15.1", "2.18.1"), {"world_size": 0}, "--np 0: this machine has"),
        (("2.15.1", "2.18.1"), {"world_size": 999}, "--np 999: this machine has"),
        (("2.15.1", "2.18.1"), {"budget_minutes": -1.0}, "--budget -1"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_built(ends, changed, said, monkeypatch):
    monkeypatch.setattr(side_by_side, "build", lambda *_: pytest.fail("something was built"))
    with pytest.raises(UserError) as caught:
        bisect_command(ends[0], ends[1], replace(ASKED, **changed))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


SPEEDS = {"2.15.1": 1.0, "2.16.2": 1.0, "2.17.0": 0.9, "2.17.1": 0.9, "2.18.1": 0.9}


@pytest.fixture
def stand_ins(tmp_path, monkeypatch):
    """Stacks that are built at once, and have the speeds of SPEEDS; the others cannot be built."""

    def build(horovod: str, tensorflow: str) -> Path:
        assert horovod == "0.28.1"
        if tensorflow not in SPEEDS:
            raise NotBuilt(f"no wheel of {tensorflow}")
        return Path(tensorflow)

    def measure(asked: Asked, candidate: Path, reference: Path, place: Path):
        ratio = SPEEDS[candidate.name] / SPEEDS[reference.name]
        return result_of(session(place / "runs", measured(ratio)), asked)

    monkeypatch.setattr(raw, "GENERATED", tmp_path)
    monkeypatch.setattr(side_by_side, "build", build)
    monkeypatch.setattr(side_by_side, "measure", measure)


@pytest.mark.usefixtures("stand_ins")
def test_every_step_is_told_and_its_session_kept(tmp_path, capsys):
    assert bisect_command("2.15.1", "2.18.1", ASKED) == 0
    said = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in said if "/" not in line)
    assert said[-1] == "2.17.0 is the release that is slower; 2.16.2, the one before, is not"
    (step,) = (line for line in said if line.startswith("2.15.1 -> 2.18.1: "))
    assert step.startswith("2.15.1 -> 2.18.1: 0.900 [0.89")
    assert step.endswith(" slower")
    (kept,) = (tmp_path / "bisect").iterdir()
    for directory in kept.iterdir():
        (one,) = (directory / "runs").iterdir()
        assert len(read_session(one).cases) == 1


@pytest.mark.usefixtures("stand_ins")
def test_what_cannot_be_built_is_told_with_its_reason(capsys):
    assert bisect_command("2.12.0", "2.15.1", ASKED) == 1
    said = capsys.readouterr().out.splitlines()
    assert "2.12.0 -> 2.15.1: not built (no wheel of 2.12.0)" in said
    assert said[-1] == "2.15.1 cannot be compared with 2.12.0: one of them cannot be built"


@pytest.mark.long
@pytest.mark.mpirun
def test_a_session_of_two_stacks_is_run_and_read(tmp_path):
    """A stack against itself, for no longer than it takes to begin: too few rounds to decide."""
    own = Path(sys.executable)
    asked = replace(ASKED, model="alexnet_s", world_size=1, budget_minutes=0.1)
    found = side_by_side.measure(asked, own, own, tmp_path)
    assert found[0] is Answer.UNDECIDED
    assert found[1] is not None
    assert 0.5 < found[1].estimate < 2
    (kept,) = (tmp_path / "runs").iterdir()
    assert [case.name for case in read_session(kept).cases] == ["weak_scaling[alexnet_s-np1]"]
