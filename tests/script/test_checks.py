"""Which checks of a training fail, and which ranks wait for which, by made-up ranks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from hvdperf.script.checks import problems, remarks, stall_of
from hvdperf.script.recorded import Rank, last_job
from hvdperf.script.training import training_of
from tests.script.test_terms import SAME, SOUND, changed, made, of_steps, told

SILENT = of_steps(changed(SOUND, exchanged={}), exchanges=False)


def reading(*batches: Sequence[float], epoch: int = 0) -> list[Rank]:
    """Return sound ranks that read these batches. epoch: the length of the data set of each."""
    ranks = made([[SAME] * len(each) for each in batches], hosts=("a",) * len(batches))
    own = zip(ranks, batches, strict=True)
    return [replace(rank, batches=tuple(each), epoch=epoch) for rank, each in own]


def shuffled(samples: range, epochs: int, seed: int) -> list[float]:
    """Return the first sample of each batch of 32."""
    draw = random.Random(seed)
    return [each for _ in range(epochs) for each in draw.sample(samples, len(samples))[::32]]


def whats(ranks: list[Rank]) -> list[str]:
    return [each.told for each in problems(ranks)]


def test_two_of_three_ranks_that_read_the_same_batches_are_named() -> None:
    own, others = list(range(64)), list(range(100, 164))
    assert whats(reading(own, others, own)) == [
        "ranks 0 and 2 read the same batches in the same order"
    ]
    # Those of two optimizers in turn are seen twice.
    assert whats(reading(sorted(own * 2), sorted(own * 2)))
    # From some step on they may differ.
    assert whats(reading(own, own[:40] + others[:24]))
    # The same batches at other steps are no fault.
    assert whats(reading(own, own[1:] + own[:1])) == []
    # Few batches that are read again and again.
    assert whats(reading(list(range(10)) * 6, list(range(10)) * 6))


def test_data_of_few_values_are_not_the_same() -> None:
    draw = random.Random(1)
    for values in ([0], [0, 1], [0, 0, 0, 0, 0, 0, 0, 1, 2, 3]):
        for count in 5 * (0, 1, 2, 8, 20, 60, 500):
            ranks = [[float(draw.choice(values)) for _ in range(count + 6)] for _ in range(2)]
            assert whats(reading(*ranks)) == []


def test_ranks_that_read_the_whole_data_set_are_told_what_that_costs() -> None:
    same, first, second = range(4096), range(2048), range(2048, 4096)
    whole = reading(shuffled(same, 3, 1), shuffled(same, 3, 2), epoch=128)
    assert whats(whole) == []
    (remark,) = remarks(whole)
    assert "128 batches per rank, and 64 would do" in remark
    assert list(remarks(reading(shuffled(first, 6, 1), shuffled(second, 6, 2), epoch=64))) == []
    partly = reading(shuffled(range(3072), 6, 1), shuffled(range(2048, 5120), 6, 2), epoch=96)
    assert list(remarks(partly)) == []
    (remark,) = remarks(reading(shuffled(same, 3, 1), shuffled(same, 3, 2)))
    assert "some of the same samples" in remark


def of_own_weights(ranks: Sequence[Rank], **fields: object) -> list[Rank]:
    """Return ranks with a variable each that is like no other rank's."""
    unlike = [replace(each, weights=(("w", each.rank, 1.0 + each.rank, 2.0),)) for each in ranks]
    return changed(unlike, **fields)


def test_a_sound_training_fails_no_check() -> None:
    (single,) = made([[SAME] * 60])
    first, second = SOUND
    for ranks in (
        SOUND,
        [replace(single, exchanged={}, batches=(1.0, 2.0))],
        # Local variables, and weights that differ by rounding.
        of_own_weights(SOUND, local=1),
        [first, replace(second, weights=(("w", 8, 1.0 + 1e-8, 2.0),))],
        # A script that failed in its first step has no weights to compare.
        of_own_weights(of_steps(SOUND, count=0, summed=0, rows=(), bins=(), samples=0)),
    ):
        assert whats(ranks) == []


def test_each_check_fails_for_its_own_reason() -> None:
    for ranks, what in (
        (SILENT, "no gradient is allreduced"),
        (changed(SOUND, unexchanged=("w2",)), "w2"),
        (of_own_weights(SOUND), "different weights"),
        (changed(SOUND, batches=tuple(map(float, range(12)))), "same batches"),
        (of_steps(SOUND, traces=59), "is retraced"),
    ):
        (problem,) = problems(ranks)
        assert what in problem.told
        assert problem.mend
        assert problem.told in told(ranks)


def test_a_script_that_calls_allreduce_itself_is_judged_by_its_weights() -> None:
    own = changed(SILENT, others={"allreduce between steps": 180})
    assert whats(own) == []
    (what,) = whats(of_own_weights(own))
    assert "different weights" in what
    (what,) = whats(changed(SILENT, others={"allreduce between steps": 2}))
    assert "no gradient is allreduced" in what


def test_ranks_of_process_sets_have_weights_and_data_of_their_own() -> None:
    batches = tuple(float(each) for each in range(60))
    for ranks in (of_own_weights(SOUND), changed(SOUND, batches=batches)):
        alone = [replace(each, process_sets=((each.rank,),)) for each in ranks]
        assert whats(alone) == []
        assert len(whats(changed(ranks, process_sets=((0, 1),)))) == 1


def test_of_several_jobs_the_last_is_told() -> None:
    """A job after one of another size keeps its ranks: its rank 1 is no part of the job before,
    which had none or whose rank 1 wrote nothing."""
    (single,) = made([[SAME] * 60])
    second = [
        replace(each, marks={"process": 200.0 - each.rank, "python": 201.0}, written_at=300.0)
        for each in SOUND
    ]
    for first in (SOUND, [single], [replace(single, size=2)]):
        assert last_job([*first, *second]) == (second, 2)
    assert last_job([]) == ([], 0)


def alone(rank: int, connected: int, launched: int = 2) -> Rank:
    """Return a process of a launcher that trains without the others."""
    (found,) = made([[SAME] * 60])
    silent = replace(found.series[0], exchanges=False)
    own = (rank, launched)
    return replace(found, series=(silent,), exchanged={}, launched=own, connected=connected)


@pytest.mark.parametrize(("connected", "why"), [(0, "hvd.init"), (1, "hvd.size() is 1")])
def test_ranks_of_a_launcher_that_horovod_does_not_connect_train_alone(
    connected: int, why: str
) -> None:
    job, jobs = last_job([alone(rank, connected) for rank in range(2)])
    assert ([each.rank for each in job], job[0].size, jobs) == ([0, 1], 2, 1)
    (problem,) = problems(job)
    assert why in problem.told


def test_a_process_that_a_rank_starts_may_train_by_itself() -> None:
    child = replace(alone(0, 0), marks={"process": 95.0, "python": 95.1}, written_at=900.0)
    assert last_job([*SOUND, child]) == (SOUND, 1)
    assert last_job([alone(0, 0)]) == ([], 0)
    (job, _) = last_job([alone(0, 1)])
    assert whats(job) == []


# Stalls -----------------------------------------------------------------------------------------

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
