"""Which ranks wait for which, by made-up ranks."""

from __future__ import annotations

from dataclasses import replace

from hvdperf.script.live import stall_of
from hvdperf.script.recorded import Rank
from hvdperf.script.training import training_of
from tests.script.test_terms import SAME, made

LOGGED = ("hvd.allreduce (loss)", 8.0, "train.py:15")
STEP = ("the allreduce of `step`", 8.0, "train.py:20")
SAVING = ("", 8.0, "train.py:30")


def waiting(*waits: tuple[str, float, str] | None) -> list[Rank]:
    """Return ranks that wait; None for one that has ended."""
    ranks = made([[SAME] * 40] * len(waits), hosts=("a",) * len(waits))
    own = zip(ranks, waits, strict=True)
    return [replace(rank, waits=each, is_over=each is None) for rank, each in own]


def test_an_exchange_waits_for_the_ranks_that_do_something_else() -> None:
    ranks = waiting(LOGGED, STEP)
    text = stall_of(ranks)
    assert "hvd.allreduce (loss), which rank 0 calls at train.py:15, waits for rank 1" in text
    assert "`step`, which rank 1 calls at train.py:20, waits for rank 0" in text
    assert text in training_of(ranks, 1).limit.told
    assert "rank 1 and 1 more, which is at train.py:20" in stall_of(waiting(LOGGED, STEP, STEP))
    assert "waits for rank 0, which is at train.py:30" in stall_of(waiting(SAVING, STEP))
    assert "waits for rank 0, which has ended" in stall_of(waiting(None, STEP))


def test_what_is_no_stall_is_not_told() -> None:
    assert stall_of(waiting(STEP, STEP)) == ""
    assert stall_of(waiting(None, None)) == ""
    assert stall_of(waiting(SAVING, SAVING)) == ""
    # One is in the middle of its steps, or a step usually takes as long.
    first, second = waiting(STEP, LOGGED)
    assert stall_of([first, replace(second, waits=None)]) == ""
    assert stall_of([first, replace(second, waits=("", 0.05, ""))]) == ""
    # A checkpoint was waited for before.
    assert second.steps is not None
    slowest = replace(second.steps.slowest[0], row=second.steps.rows[-1]._replace(before=0.0))
    often = replace(second, series=(replace(second.steps, slowest=(slowest,)),))
    assert stall_of([replace(first, waits=SAVING), replace(often, waits=STEP)]) == ""
    # A rank that died before it wrote is missed.
    assert "waits for rank 1" in stall_of([replace(first, size=2)])
