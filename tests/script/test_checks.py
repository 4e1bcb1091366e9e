"""Which checks of a training fail, and which remarks there are, by made-up ranks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from hvdperf.script.checks import problems, remarks
from hvdperf.script.recorded import Rank, last_job
from hvdperf.worker.script.tap._hvdperf_recorder import OF_SESSION
from tests.script.test_terms import SAME, made, steps


def reading(*batches: Sequence[float], epoch: int = 0) -> list[Rank]:
    """Return sound ranks that read these batches. epoch: the length of the data set of each."""
    ranks = made([steps(len(each), *SAME) for each in batches], hosts=("a",) * len(batches))
    own = zip(ranks, batches, strict=True)
    return [replace(rank, batches=tuple(each), epoch=epoch) for rank, each in own]


def shuffled(samples: range, epochs: int, seed: int) -> list[float]:
    """Return the first sample of each batch of 32."""
    draw = random.Random(seed)
    return [each for _ in range(epochs) for each in draw.sample(samples, len(samples))[::32]]


def whats(ranks: list[Rank]) -> list[str]:
    return [each.what for each in problems(ranks)]


def test_two_of_three_ranks_that_read_the_same_batches_are_named() -> None:
    own, others = list(range(64)), list(range(100, 164))
    assert whats(reading(own, others, own)) == [
        "ranks 0 and 2 read the same batches in the same order"
    ]
    # Those of two optimizers in turn are seen twice.
    assert whats(reading(sorted(own * 2), sorted(own * 2)))
    # From some step on they may differ.
    assert whats(reading(own, own[:40] + others[:24]))
    # Few batches that are read again and again.
    assert whats(reading(list(range(10)) * 6, list(range(10)) * 6))


@pytest.mark.parametrize("seed", range(20))
def test_data_of_few_values_are_not_the_same(seed: int) -> None:
    draw = random.Random(seed)
    for values in ([0], [0, 1], [0, 0, 0, 0, 0, 0, 0, 1, 2, 3]):
        for count in (0, 1, 2, 8, 20, 60, 500):
            ranks = [[float(draw.choice(values)) for _ in range(count + 6)] for _ in range(2)]
            assert whats(reading(*ranks)) == []


def test_the_same_batches_at_other_steps_fail_no_check() -> None:
    own = list(range(64))
    assert whats(reading(own, own[1:] + own[:1])) == []


def test_ranks_that_read_the_whole_data_set_are_told_what_that_costs() -> None:
    same, first, second = range(4096), range(2048), range(2048, 4096)
    whole = reading(shuffled(same, 3, 1), shuffled(same, 3, 2), epoch=128)
    assert whats(whole) == []
    (remark,) = remarks(whole)
    assert "128 batches per rank, and 64 would do" in remark
    assert list(remarks(reading(shuffled(first, 6, 1), shuffled(second, 6, 2), epoch=64))) == []
    partly = reading(shuffled(range(3072), 6, 1), shuffled(range(2048, 5120), 6, 2), epoch=96)
    (remark,) = remarks(partly)
    share = int(remark.split(" %")[0].split()[-1])
    assert 20 < share < 50
    (remark,) = remarks(reading(shuffled(same, 3, 1), shuffled(same, 3, 2)))
    assert "some of the same samples" in remark


def alone(rank: int, connected: int, launched: int = 2) -> Rank:
    """Return a process of a launcher that trains without the others."""
    (found,) = made([steps(60, *SAME)])
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
    assert why in problem.what


def test_a_process_that_a_rank_starts_may_train_by_itself() -> None:
    ranks = made([steps(60, *SAME)] * 2)
    child = replace(alone(0, 0), marks={"process": 95.0, "python": 95.1}, written_at=900.0)
    assert last_job([*ranks, child]) == (ranks, 1)
    assert last_job([alone(0, 0)]) == ([], 0)
    (job, _) = last_job([alone(0, 1)])
    assert whats(job) == []


def test_what_the_graph_of_a_session_could_exchange_counts_only_if_it_is_run() -> None:
    ranks = [
        replace(
            each,
            series=(replace(each.series[0], name=OF_SESSION, exchanges=False),),
            exchanged={OF_SESSION: (2, 1000, 0)},
        )
        for each in made([steps(60, *SAME)] * 2)
    ]
    (problem,) = problems(ranks)
    assert "no gradient is allreduced" in problem.what
