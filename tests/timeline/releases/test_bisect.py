"""The search finds the release that a change came with, in few comparisons, and never guesses."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvdperf.timeline.releases.bisect import Answer, bisect, conclusion

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
