"""Whether ranks had their cores, by made-up ranks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hvdperf.plan.arms import Term
from hvdperf.script.cores import faults_of, groups_of, paused_steps, stop_of
from hvdperf.script.limits import limit_of
from hvdperf.script.recorded import Cores, Cpu, Pause, Rank
from hvdperf.script.terms import parts_of
from tests.script.test_terms import (
    BETWEEN,
    COMPUTE,
    SAME,
    SOUND,
    changed,
    known,
    made,
    of_steps,
    told,
)

# Of a process whose threads begin to wait 3000 times a second.
USUAL = 3000.0
AT, LONG = 50, 6.0


def with_pause(cpu: float, delayed: float, switches: float) -> list[Rank]:
    """Return ranks of which the last one needs LONG seconds more for its step number AT, with what
    its process did meanwhile."""
    late = [[LONG if number == AT else BETWEEN, *SAME[1:]] for number in range(200)]
    first, second = made([[SAME] * 200, late])
    row = second.series[0].rows[AT]
    pause = Pause(row.before, row.before + LONG, cpu, delayed, switches, USUAL)
    return [first, replace(second, pauses=(pause,))]


def test_a_rank_that_was_stopped_is_told_and_its_step_is_no_slow_step() -> None:
    ranks = with_pause(0.05, 0.01, 150)
    assert paused_steps(ranks) == {AT}
    parts = known(ranks)
    assert parts.stop is not None
    assert (parts.stop.rank, parts.stop.count, parts.stop.is_starved) == (1, 1, False)
    assert parts.stop.seconds == pytest.approx(LONG)
    assert parts.tail is None
    limit = limit_of(parts, [], ranks)
    assert limit.told.startswith("rank 1 did not run")
    assert parts.by_rank[1].terms[Term.BETWEEN] == pytest.approx(BETWEEN)
    assert "SIGSTOP" in told(ranks)
    outside = Pause(10.0, 16.0, 0.0, 0.0, 0.0, USUAL)
    assert stop_of(changed(ranks, pauses=(outside,))) is None
    starved = stop_of(with_pause(0.05, 5.5, 150))
    assert starved is not None
    assert starved.is_starved


@pytest.mark.parametrize(
    ("cpu", "switches"),
    [(LONG, 150), (0.1, 1000 * LONG)],
    ids=["it computes", "it waits for a disk, and Horovod's thread runs"],
)
def test_own_work_that_keeps_the_interpreter_is_no_stop(cpu: float, switches: float) -> None:
    ranks = with_pause(cpu, 0.0, switches)
    assert paused_steps(ranks) == set()
    parts = known(ranks)
    assert parts.stop is None
    assert parts.tail is not None
    assert (parts.tail.rank, parts.tail.term) == (1, Term.BETWEEN)


def using(ranks: list[Rank], cores: tuple[int, ...], busy: float, delayed: float) -> list[Rank]:
    """Return ranks of 0.9 cores each on these ones, of which `busy` are not idle."""
    used = Cores(cores, 10.0, 10 * busy, 9.0, 0, 8.0)
    return of_steps(ranks, cores=used, cpu=Cpu(10.0, 9.0, 10 * delayed))


def test_other_processes_on_the_cores_are_told_if_they_disturb() -> None:
    (group,) = groups_of(using(SOUND, (0, 1, 2), 3.0, 0.3))
    assert group.ranks == [0, 1]
    assert group.others == pytest.approx(0.4)
    assert "40 % of the 3 cores of ranks 0 and 1" in told(using(SOUND, (0, 1, 2), 3.0, 0.3))
    for quiet in (using(SOUND, (0, 1, 2), 2.4, 0.3), using(SOUND, (0, 1, 2), 3.0, 0.01)):
        assert groups_of(quiet)[0].missing == 0
    first, second = SOUND
    apart = groups_of([*using([first], (0,), 0.95, 0.1), *using([second], (1,), 1.0, 0.1)])
    assert [(group.ranks, group.missing) for group in apart] == [([0], 0), ([1], 0)]


def test_more_ranks_than_cores_limit() -> None:
    own = Cores((0,), 10.0, 10.0, 4.9, 0, 8.0)
    ranks = of_steps(SOUND, cores=own, cpu=Cpu(10.0, 9.0, 5.0))
    (group,) = groups_of(ranks)
    assert (group.others, group.missing) == (0.0, 0.5)
    assert "ranks 0 and 1 share the same single core" in told(ranks)


@pytest.mark.parametrize("cores", [2, 64])
def test_a_quota_of_cores_limits(cores: int) -> None:
    used = Cores(tuple(range(cores)), 10.0, 15.0, 7.0, 0, 8.0, withheld=5.0, allowed=1.5)
    ranks = of_steps(SOUND, cores=used, cpu=Cpu(10.0, 7.0, 2.5))
    (group,) = groups_of(ranks)
    assert (group.withheld, group.missing) == (0.25, 0.25)
    limit = limit_of(parts_of(ranks), [], ranks)
    assert "quota of 1.5 cores stopped ranks 0 and 1 for 2.5 of 10.0 s" in limit.told
    assert "quota" in limit.mend
    (rarely,) = groups_of(of_steps(ranks, cores=used._replace(withheld=0.1)))
    assert rarely.withheld == 0


def test_a_quota_comes_before_the_slow_steps_that_it_makes() -> None:
    late = [[*SAME[:2], 0.05 if number % 4 == 0 else COMPUTE] for number in range(200)]
    used = Cores((0, 1), 7.1, 8.3, 4.2, 0, 21.0, withheld=4.8, allowed=1.2)
    ranks = of_steps(made([late, late]), cores=used, cpu=Cpu(7.1, 4.2, 1.9))
    limit = limit_of(parts_of(ranks), [], ranks)
    assert limit.told.index("quota") < limit.told.index("slow steps")
    assert "quota" in limit.mend


def test_memory_that_comes_from_the_disk_is_told() -> None:
    ranks = of_steps(SOUND, cores=Cores((0, 1), 10.0, 15.0, 9.0, 5000, 0.0))
    assert faults_of(ranks) == {0: 500.0, 1: 500.0}
    assert "memory is short" in told(ranks)
