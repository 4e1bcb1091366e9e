"""Where the time of a step goes, what limits a training and which checks fail, by made-up ranks."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import log
from typing import Any

import pytest

from hvdperf.plan.arms import Term
from hvdperf.script.checks import Limit, problems
from hvdperf.script.launch import Command, Figure, Run
from hvdperf.script.limits import faults_of, groups_of, limit_of
from hvdperf.script.recorded import Cores, Cpu, Launch, Pause, Rank, Row, Slow, Steps
from hvdperf.script.terms import TERMS, Parts, parts_of, paused_steps, stop_of
from hvdperf.script.training import lines, training_of
from hvdperf.worker.script.tap._hvdperf_recorder import BIN, FIRST, OF_LOOP

# Seconds of a step by what a rank does.
BETWEEN, INPUT, COMPUTE, EXCHANGE, UPDATE = 0.001, 0.002, 0.010, 0.003, 0.001
SAME = [BETWEEN, INPUT, COMPUTE]


def made(
    own: list[list[list[float]]], hosts: tuple[str, ...] = ("a", "a"), ahead: float = 0.0
) -> list[Rank]:
    """Return ranks that did these steps. own: [rank][step], each the seconds between calls, of
    input and of computing. ahead: seconds that the last rank's clock is ahead."""
    count, size = len(own[0]), len(own)
    rows: list[list[Row]] = [[] for _ in own]
    at = [100.0] * size
    for number in range(count):
        begins = [at[r] + own[r][number][0] + own[r][number][1] for r in range(size)]
        readies = [begins[r] + own[r][number][2] for r in range(size)]
        done = max(readies) + EXCHANGE
        for r in range(size):
            by = ahead if r == size - 1 else 0.0
            times = (at[r] + by, begins[r] + by, done + UPDATE + by)
            stamps = (readies[r] + by, done + by)
            rows[r].append(Row(number, *times, own[r][number][1], 0.0, *stamps))
            at[r] = done + UPDATE
    return [rank(r, size, tuple(rows[r]), hosts[r % len(hosts)]) for r in range(size)]


def rank(number: int, size: int, rows: tuple[Row, ...], host: str = "a") -> Rank:
    after = [row for row in rows if row.number > FIRST]
    bins: dict[int, int] = {}
    for row in after:
        place = round(log(row.period) / BIN)
        bins[place] = bins.get(place, 0) + 1
    slowest = sorted(after, key=lambda row: -row.period)[:32]
    steps = Steps(
        name="step",
        count=len(rows),
        traces=1,
        exchanges=True,
        updates=True,
        others=False,
        begun=rows[0].begin,
        ended=rows[-1].end,
        rows=rows,
        slowest=tuple(Slow(False, row) for row in slowest),
        bins=tuple(sorted(bins.items())),
        summed=len(after),
        sums=sum(row.period for row in after),
        samples=32 * len(rows),
        cpu=Cpu(1.0, 0.9, 0.01),
    )
    return Rank(
        format=1,
        rank=number,
        size=size,
        host=host,
        pid=100 + number,
        arguments=("train.py",),
        marks={"process": 90.0, "python": 90.1},
        events=(("import tensorflow", 91.0, 95.0),),
        missing=(),
        series=(steps,),
        exchanged={"step": (3, 1000, 0)},
        others={},
        updated=3,
        local=0,
        unexchanged=(),
        batches=(1.0 + number, 2.0),
        peak_memory=10**9,
        written_at=rows[-1].end,
        is_over=True,
        weights=(("w", 7, 1.0, 2.0),),
    )


# Ranks that have nothing to be told of.
SOUND = made([[SAME] * 60] * 2)


def changed(ranks: list[Rank], **fields: object) -> list[Rank]:
    return [replace(each, **fields) for each in ranks]  # type: ignore[arg-type]


def of_steps(ranks: list[Rank], **fields: object) -> list[Rank]:
    return [
        replace(each, series=(replace(each.series[0], **fields),))  # type: ignore[arg-type]
        for each in ranks
    ]


def known(ranks: Sequence[Rank]) -> Parts:
    """Return where the time goes, which is known."""
    found = parts_of(ranks)
    assert found is not None
    return found


def told(ranks: list[Rank]) -> str:
    return " ".join(" ".join(lines(training_of(ranks, 1))).split())


def test_terms_are_what_each_rank_did_and_add_up_to_the_step_whatever_the_clocks_of_hosts() -> None:
    own = [[SAME] * 60, [[BETWEEN, INPUT, 0.015]] * 60]
    parts, apart = known(made(own)), known(made(own, ("a", "b"), ahead=3.0))
    fast, slow = parts.by_rank
    expected = {
        Term.BETWEEN: BETWEEN,
        Term.INPUT: INPUT,
        Term.COMPUTE: COMPUTE,
        Term.STRAGGLER: 0.005,
        Term.EXCHANGE: EXCHANGE,
        Term.APPLY: UPDATE,
    }
    assert fast.terms == pytest.approx(expected)
    assert slow.terms[Term.STRAGGLER] == pytest.approx(0, abs=1e-9)
    assert abs(fast.residual) < 1e-9
    assert parts.slower is not None
    assert (parts.slower.rank, parts.slower.last) == (1, 1.0)
    for one, other in zip(parts.by_rank, apart.by_rank, strict=True):
        assert one.terms == pytest.approx(dict(other.terms), abs=1e-6)


@pytest.mark.parametrize(
    ("slow", "term"),
    [
        ((BETWEEN, INPUT, 0.012), Term.COMPUTE),
        ((BETWEEN, 0.004, COMPUTE), Term.INPUT),
        ((0.004, INPUT, COMPUTE), Term.BETWEEN),
    ],
    ids=lambda each: each.name if isinstance(each, Term) else "",
)
def test_a_slower_rank_is_named_with_its_term(slow: tuple[float, ...], term: Term) -> None:
    draw = random.Random(1)
    own = [
        [[x * draw.lognormvariate(0, 0.1) for x in each] for each in [values] * 200]
        for values in (SAME, slow, SAME)
    ]
    parts = known(made(own, ("a", "a", "a")))
    assert parts.slower is not None
    assert (parts.slower.rank, parts.slower.term) == (1, term)


def test_ranks_that_are_alike_name_none() -> None:
    for seed in range(40):
        draw = random.Random(seed)
        own = [
            [[x * draw.lognormvariate(0, 0.3) for x in each] for each in [SAME] * 200]
            for _ in range(2)
        ]
        parts = known(made(own))
        assert parts.slower is None


def test_what_limits_is_the_term_that_takes_most() -> None:
    assert "ranks wait for input for 70 %" in told(made([[[BETWEEN, 0.035, COMPUTE]] * 60] * 2))
    assert "computation: 59 %" in told(SOUND)
    ranks = made([[SAME] * 60, [[BETWEEN, INPUT, 0.030]] * 60])
    parts = known(ranks)
    waited = 1000 * parts.by_rank[0].terms[Term.STRAGGLER]
    assert "rank 1 takes 2.43 times as long per step as rank 0" in told(ranks)
    assert f"waits {waited:.2f} of {1000 * parts.period:.2f} ms" in told(ranks)


def test_slow_steps_are_blamed_on_the_rank_that_did_something_else_alone() -> None:
    saving = [[0.5 if number % 50 == 49 else BETWEEN, *SAME[1:]] for number in range(200)]
    paused = [[6.0, *SAME[1:]] if number == 100 else own for number, own in enumerate(saving)]
    usual = [SAME] * 200
    for own, rank, count, is_told in (
        ([usual, saving], 1, 4, False),
        ([saving] * 2, None, 4, False),
        # A pause is told from the slow steps.
        ([usual, paused], 1, 5, True),
    ):
        ranks = made(own)
        tail = known(ranks).tail
        assert tail is not None
        assert (tail.rank, tail.term, tail.count) == (rank, Term.BETWEEN, count)
        assert (2 * tail.longest > tail.share) is is_told
        text = told(ranks)
        assert "saving" in text
        assert ("by the longest alone" in text) is is_told


def test_a_pause_is_a_slow_step_and_changes_no_term() -> None:
    paused = [[6.0 if number == 100 else BETWEEN, *SAME[1:]] for number in range(200)]
    ranks = made([paused, paused])
    parts = known(ranks)
    assert parts.by_rank[0].terms[Term.BETWEEN] == pytest.approx(BETWEEN)
    assert parts.tail is not None
    assert parts.tail.count == 1
    assert sum(map(parts.share, TERMS)) + parts.tail.share == pytest.approx(1, abs=0.01)
    assert "1 slow steps" not in told(ranks)


def test_a_command_that_failed_after_few_steps_is_not_to_be_run_for_longer() -> None:
    ranks = made([[SAME] * 3] * 2)
    assert "status 139" in training_of(ranks, 1, Launch((), 139)).limit.told
    assert "status" not in training_of(ranks, 1, Launch((), 0)).limit.told


def test_too_few_steps_are_told_as_such() -> None:
    idle = [replace(each, series=(), exchanged={}) for each in SOUND]
    assert problems(idle) == []
    assert "no training step was seen" in told(idle)
    assert "steps:" not in told(idle)
    assert "too few steps" in told(made([[SAME] * 3] * 2))


def with_rows(ranks: list[Rank], change: Callable[[Row], Row]) -> list[Rank]:
    """Return ranks with other rows of their steps."""
    return [of_steps([each], rows=tuple(map(change, each.series[0].rows)))[0] for each in ranks]


def unstamped(ranks: list[Rank]) -> list[Rank]:
    return with_rows(ranks, lambda row: row._replace(ready=0.0, done=0.0))


def test_steps_without_stamps_are_not_taken_apart() -> None:
    plain = unstamped(SOUND)
    parts = known(plain)
    assert set(parts.by_rank[0].terms) == {Term.BETWEEN, Term.INPUT, Term.INSIDE}
    assert "the allreduce was not seen" in told(plain)
    # Input of one rank is that rank's nevertheless.
    slow = [[BETWEEN, 0.030, COMPUTE]] * 60
    for own, is_named in (([[SAME] * 60, slow], True), ([slow, slow], False)):
        ranks = unstamped(made(own))
        assert ("rank 1" in limit_of(parts_of(ranks), [], ranks).told) is is_named


def behind(between: float, queued: float, done: float, period: float) -> list[Rank]:
    """Return a rank whose GPU works while the script goes on, such as for a while after every tenth
    step, when the script reads the loss. All in ms."""
    rows, at = [], 100.0
    for number in range(200):
        waits = 10 * (period - between - queued) if number % 10 == 9 else 0.0
        begin = at + between / 1000
        end = begin + (queued + waits) / 1000
        rows.append(Row(number, at, begin, end, 0.0, 0.0, 0.0, 0.0))
        at = end
    alone = ((queued / 1000, done / 1000),) * 9
    return of_steps([rank(0, 1, tuple(rows))], alone=alone)


def test_what_a_script_does_while_its_gpu_works_costs_nothing() -> None:
    ranks = behind(between=6, queued=1, done=11.8, period=12)
    parts = known(ranks)
    assert parts.tail is None
    (only,) = parts.by_rank
    assert only.period == pytest.approx(0.012, rel=0.01)
    assert only.terms == pytest.approx(
        {Term.BETWEEN: 0.006, Term.INPUT: 0.0, Term.COMPUTE: 0.006}, rel=0.02
    )
    limit = training_of(ranks, 1).limit
    assert "GPU is busy 98 %" in limit.told
    assert "script" not in limit.told
    assert limit.faster is None


def test_a_gpu_without_work_waits_for_the_script_or_for_its_calls() -> None:
    limit = training_of(behind(between=12, queued=1, done=8, period=20), 1).limit
    assert limit.told.startswith("the script itself takes 60 %")
    assert limit.faster == pytest.approx((1.0, 2.5), rel=0.02)
    disturbed = using(behind(between=12, queued=1, done=8, period=20), (0,), 1.5, 0.9)
    assert "other processes" in training_of(disturbed, 1).limit.told
    limit = training_of(behind(between=0.1, queued=9, done=9.1, period=9.1), 1).limit
    assert "the GPU may wait" in limit.told
    assert limit.faster is None
    assert Run(Command(()), behind(6, 1, 11.8, 12)).seconds(Figure.LOW) == pytest.approx(
        0.012, rel=0.01
    )
    unknown = of_steps(behind(between=12, queued=1, done=8, period=20), alone=())
    assert training_of(unknown, 1).limit.told.startswith("too few steps")


def test_an_exchange_after_several_passes_is_no_slow_step() -> None:
    """Every fourth step exchanges, and takes three times as long."""
    ranks = made([[[BETWEEN, INPUT, 0.05 if n % 4 == 3 else 0.01] for n in range(200)]] * 2)
    own = with_rows(
        ranks, lambda row: row if row.number % 4 == 3 else row._replace(ready=0.0, done=0.0)
    )
    parts = known(own)
    assert parts.rarely
    assert parts.tail is None
    assert Term.INSIDE not in parts.by_rank[0].terms
    assert "some of the steps only" in told(own)


def test_functions_that_take_turns_are_the_same_one_on_all_ranks() -> None:
    (first,) = made([[SAME] * 60])
    (own,) = first.series
    critic = replace(own, name="critic", count=180, ended=own.ended - 0.01)
    once = replace(own, name="once", ended=own.begun + 0.2 * (own.ended - own.begun), count=999)
    found = replace(first, series=(own, critic, once)).steps
    assert found is not None
    assert found.name == "critic"


def test_few_steps_that_are_traced_again_outweigh_many_slow_ones() -> None:
    own = [
        [BETWEEN, INPUT, 0.9 if number % 40 == 39 else 0.05 if number % 10 == 5 else COMPUTE]
        for number in range(200)
    ]
    ranks = made([own] * 2)
    ranks = [
        of_steps(
            [each],
            slowest=tuple(
                replace(slow, retraced=slow.row.period > 0.5) for slow in each.series[0].slowest
            ),
        )[0]
        for each in ranks
    ]
    parts = known(ranks)
    assert parts.tail is not None
    assert (parts.tail.retraced, parts.tail.count) == (True, 25)


def test_every_term_can_be_the_limit() -> None:
    by_field: tuple[tuple[dict[str, Any], str], ...] = (
        ({"applied": 0.1}, "the optimizer update"),
        ({"collected": 0.1}, "garbage collector"),
        ({"elsewhere": 0.1}, "functions other than the training step"),
        ({"elsewhere": 0.1, "exchanged": 0.1}, "collectives other than the gradient allreduce"),
    )

    def longer(field: dict[str, Any]) -> list[Rank]:
        longer = of_steps(SOUND, bins=((round(log(0.117) / BIN), 56),))
        return with_rows(longer, lambda row: row._replace(before=row.before - 0.1, **field))

    for field, told_as in by_field:
        training = training_of(longer(field), 1)
        assert training.parts is not None
        assert sum(map(training.parts.share, TERMS)) == pytest.approx(1, abs=1e-3)
        assert told_as in training.limit.told
        assert training.limit.faster is not None
        assert training.limit.faster[0] == 1
        assert "up to" in training.limit.gain


def test_a_loop_without_a_function_is_told_to_use_one() -> None:
    limit = training_of(of_steps(made([[[0.0, INPUT, COMPUTE]] * 60] * 2), name=OF_LOOP), 1).limit
    assert "tf.function" in limit.mend
    assert "computation" in limit.told


def test_a_gain_that_is_known_has_two_ends() -> None:
    assert "at least 1.20x, at most 1.50x" in Limit("", faster=(1.2, 1.5)).gain
    assert Limit("", faster=(1.0, 1.0)).gain == Limit("").gain == ""


def paced(seconds: float, waits: bool = True) -> list[list[float]]:
    """Return steps that compute for 14 to 20 ms, after input that comes so many seconds after the
    batch before it, or unlike that is at hand soon."""
    draw = random.Random(1)
    computing = [draw.uniform(0.014, 0.020) for _ in range(200)]
    return [
        [0.0, seconds - last if waits else draw.uniform(0.004, 0.010), own]
        for own, last in zip(computing, [COMPUTE, *computing[:-1]], strict=True)
    ]


def test_a_producer_that_sets_the_pace_hides_everything_else() -> None:
    for waits in (True, False):
        training = training_of(made([paced(0.024, waits)]), 1)
        assert training.parts is not None
        assert training.parts.is_starved is waits
        assert training.limit.told.startswith("ranks wait for input") is waits
    slow = made([[SAME] * 200, paced(0.044)])
    assert training_of(slow, 1).limit.told.startswith("rank 1 takes")


def test_settings_that_slow_the_exchange_are_the_first_to_try() -> None:
    settings = {"HOROVOD_CYCLE_TIME": "50", "TF_USE_LEGACY_KERAS": "1", "OMP_NUM_THREADS": "1"}
    usual = changed(made([[[BETWEEN, INPUT, 0.004]] * 60] * 2), settings=settings)
    training = training_of(usual, 1)
    assert training.limit.mend.startswith("unset HOROVOD_CYCLE_TIME=50,")
    assert "HOROVOD_CYCLE_TIME=50" in told(usual)


def test_what_disturbs_comes_after_the_scripts_own_fault_unless_it_is_far_worse() -> None:
    for between, is_first in ((0.012, True), (0.004, False)):
        ranks = of_steps(
            made([[[between, INPUT, COMPUTE]] * 60] * 2),
            cores=Cores((0, 1), 10.0, 20.0, 3.0, 0, 9.0),
            cpu=Cpu(10.0, 9.0, 6.0),
        )
        first, second, *_ = re.split(r"\. |; and ", training_of(ranks, 1).limit.told)
        assert ("script itself" in first) is is_first
        assert ("other processes" in first) is not is_first
        assert "script itself" in first + second


# Cores ------------------------------------------------------------------------------------------

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
    together = stop_of(changed(ranks, pauses=ranks[1].pauses))
    assert together is not None
    assert together.rank is None, "the whole job was stopped"
    alone = stop_of(ranks[1:])
    assert alone is not None
    assert alone.rank == 1


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
    assert "40 % of the 3 cores of ranks 0-1" in told(using(SOUND, (0, 1, 2), 3.0, 0.3))
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
    assert "ranks 0-1 share the same single core" in told(ranks)


@pytest.mark.parametrize("cores", [2, 64])
def test_a_quota_of_cores_limits(cores: int) -> None:
    used = Cores(tuple(range(cores)), 10.0, 15.0, 7.0, 0, 8.0, withheld=5.0, allowed=1.5)
    ranks = of_steps(SOUND, cores=used, cpu=Cpu(10.0, 7.0, 2.5))
    (group,) = groups_of(ranks)
    assert (group.withheld, group.missing) == (0.25, 0.25)
    limit = limit_of(parts_of(ranks), [], ranks)
    assert "quota of 1.5 cores stopped ranks 0-1 for 2.5 of 10.0 s" in limit.told
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
