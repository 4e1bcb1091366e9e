"""From what ranks say of a training to the figure of a round."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from hvdperf.explain.training_runs import ended_at, explained, growth, has_left_a_pass, samples
from hvdperf.plan.arms import Schedule
from hvdperf.plan.questions import fixed_epochs, fixed_time, memory
from hvdperf.records.rounds import Launch, Round, Run, RunReport
from hvdperf.verdict import Ceiling, Judgement, Verdict, judge
from hvdperf.work.training import problems_of_run
from tests.report.cases import recorded
from tests.support.rounds import HOROVOD_2, WORKLOAD, observation, run_report

EPOCHS = {comparison.variant: comparison for comparison in fixed_epochs(WORKLOAD, 2)}


def one_round(comparison, candidate, reference):
    arms = comparison.candidate.arm, comparison.reference.arm
    launches = [
        Launch(arm, 0, work=Run(reports))
        for arm, reports in zip(arms, (candidate, reference), strict=True)
    ]
    return Round(0, Schedule.ALTERNATE, launches)


def test_convergence_is_the_ratio_of_what_the_validations_ended_with():
    ours, theirs = [run_report(loss=0.9, accuracy=0.6)] * 2, [run_report(loss=1.0, accuracy=0.5)]
    loss, accuracy = EPOCHS["loss-mirrored"], EPOCHS["accuracy-single"]
    assert math.exp(observation(loss, one_round(loss, ours, theirs))) == pytest.approx(0.9)
    assert math.exp(observation(accuracy, one_round(accuracy, ours, theirs))) == pytest.approx(
        1.2, rel=1e-3
    )


def test_where_nothing_is_right_both_sides_get_half_a_sample():
    accuracy = EPOCHS["accuracy-single"]
    none, three = [run_report(accuracy=share, validated=16) for share in (0.0, 3 / 16)]
    assert math.exp(observation(accuracy, one_round(accuracy, [none] * 2, [three]))) == (
        pytest.approx(0.5 / 3.5)
    )
    assert observation(accuracy, one_round(accuracy, [none] * 2, [none])) == 0


def test_networks_that_have_learned_all_there_is_are_alike():
    loss = EPOCHS["loss-mirrored"]
    ours, theirs = (
        [run_report(loss=left, chance_loss=math.log(10))] * 2 for left in (2.1e-5, 9.2e-5)
    )
    assert math.exp(observation(loss, one_round(loss, ours, theirs))) == pytest.approx(1, abs=0.01)


def test_both_sides_must_have_been_validated_on_the_same():
    loss = EPOCHS["loss-mirrored"]
    measured = one_round(loss, [run_report()] * 2, [run_report(validated=999)])
    with pytest.raises(ValueError, match="validated on 1000 and on 999 samples"):
        observation(loss, measured)


def test_plain_tensorflow_takes_the_replicas_batches_one_after_the_other():
    reference = EPOCHS["loss-single"].reference.arm
    assert (reference.world_size, reference.passes) == (1, 2)
    assert reference.workload == EPOCHS["loss-single"].candidate.arm.workload


def test_samples_in_a_fixed_time_are_those_of_all_ranks_for_each_replica():
    asked = fixed_time(WORKLOAD, 2)
    ours = [run_report(samples=900), run_report(samples=900)]
    theirs = [run_report(samples=1000)]
    assert math.exp(observation(asked, one_round(asked, ours, theirs))) == pytest.approx(0.9)
    # The vote came after 2.5 s instead of 2.
    late = [run_report(samples=1250, seconds=2.5)]
    assert math.exp(observation(asked, one_round(asked, ours, late))) == pytest.approx(0.9)
    assert samples(ours) == 1800


def test_memory_is_the_growth_of_the_rank_that_grows_most():
    asked = memory(WORKLOAD, 2)
    ranks = [run_report(steps=1000, growth=0.0), run_report(steps=1000, growth=5e4)]
    measured = Round(0, Schedule.ALTERNATE, [Launch(HOROVOD_2, 0, work=Run(ranks))])
    # 50 MB of 500 MB, and a little less than that of what it has grown to.
    assert math.exp(observation(asked, measured)) == pytest.approx(1.096, abs=0.003)


def test_what_a_process_takes_while_it_settles_is_no_growth():
    settling = [[step, 400e6 + min(step, 300) * 1e6] for step in range(50, 1001, 50)]
    assert growth(settling) == 0.0
    rising = [[step, 400e6 * math.exp(step / 5000)] for step in range(50, 1001, 50)]
    assert growth(rising) == pytest.approx(0.2)


def test_one_reading_that_is_off_does_not_make_a_slope():
    flat = [[step, 500e6] for step in range(50, 1001, 50)]
    flat[-1][1] = 900e6
    assert growth(flat) == 0.0


@pytest.mark.parametrize("memory", [[], [[25, 5e8], [50, 5e8]]])
def test_too_few_readings_tell_no_slope(memory):
    with pytest.raises(ValueError, match="readings of memory are too few"):
        growth(memory)


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ([run_report(steps=100, samples=3200)] * 2, None),
        ([run_report(steps=100), run_report(steps=105)], "at different steps: [100, 105]"),
        ([run_report(samples=3200), run_report(samples=3168)], "6368 samples were consumed"),
        ([run_report(samples=6400)], "1 of 2 ranks reported their run"),
    ],
)
def test_what_ranks_say_of_a_run_is_checked(ranks, said):
    found = problems_of_run(HOROVOD_2, ranks)
    assert (said in found[0]) if said else found == []


def test_a_loss_that_is_not_finite_is_a_problem():
    curve = [[20, 0.5], [40, math.nan], [60, math.nan]]
    ranks = [run_report(), replace(run_report(loss=math.nan), curve=curve)]
    (said,) = problems_of_run(HOROVOD_2, ranks)
    assert "rank 1" in said
    assert "step 40" in said


# Growth that ends ------------------------------------------------------------------------------

MIB = 1024 * 1024
# Readings of runs that were really measured, of which the resident set is settled.
HEALTHY = [
    rank.memory
    for measured in recorded("memory-resnet_50_s-np2")[0].rounds
    for rank in measured.launches[0].run
]
STEPS = HEALTHY[0][-1][0]


def shapes(name: str) -> Callable[[float], float]:
    """Return a growth in MiB by the share of the run that is over."""
    kind, *numbers = name.split()
    size, at = map(float, (*numbers, "1", "1")[:2])
    return {
        "nothing": lambda share: 0.0,
        "leak": lambda share: size * share,
        "pieces": lambda share: size / at * math.floor(share * at),
        "later": lambda share: size * max(0.0, share - at) / (1 - at),
        "cache": lambda share: size * min(1.0, share / at),
        "saturating": lambda share: size * (1 - math.exp(-share / at)),
        "cache_and_leak": lambda share: size * min(1.0, share / 0.5) + at * share,
    }[kind]


def run_with(memory: Sequence[Sequence[float]], name: str) -> RunReport:
    """Return a run whose resident set also grows by a shape."""
    grows = shapes(name)
    rows = [[int(step), int(size + MIB * grows(step / STEPS))] for step, size in memory]
    return replace(run_report(steps=STEPS, samples=32 * STEPS), memory=rows)


def judged(shape: str, other: str = "", own_data: bool = False) -> Judgement:
    """Return the judgement of eight rounds on two ranks. other: the shape of rank 0; "" for the
    same."""
    asked = replace(WORKLOAD, dataset=WORKLOAD.model if own_data else "cifar10")
    rounds = [
        [
            run_with(HEALTHY[(number + rank) % len(HEALTHY)], shape if rank else other or shape)
            for rank in range(2)
        ]
        for number in range(8)
    ]
    values = [max(growth(rank.memory) for rank in ranks) for ranks in rounds]
    return explained(judge(values, Ceiling(1.02)), asked, rounds)


@pytest.mark.parametrize(
    ("verdict", "reason", "shapes"),
    [
        (Verdict.FAIL, "", ["leak 1000", "leak 40", "leak 18"]),
        (Verdict.FAIL, "", ["pieces 200 20", "pieces 200 5", "later 100 0.5"]),
        # A cache that is full.
        (Verdict.PASS, "", ["cache 800 0.2", "cache 800 0.5", "cache 800 0.8"]),
        (Verdict.PASS, "", ["nothing"]),
        # Growth that slows down.
        (Verdict.INCONCLUSIVE, "run longer", ["cache 800 0.9", "saturating 300 0.3"]),
        (Verdict.INCONCLUSIVE, "run longer", ["cache_and_leak 300 25"]),
    ],
)
def test_a_leak_fails_and_a_cache_passes_once_it_is_full(verdict, reason, shapes):
    for judgement in map(judged, shapes):
        assert judgement.verdict is verdict
        assert reason in judgement.reason
        assert bool(judgement.reason) is bool(reason)


def test_growth_after_a_cache_is_full_is_a_leak():
    memory = run_with(HEALTHY[0], "cache_and_leak 1500 120").memory
    end = ended_at(memory)
    assert end == pytest.approx(STEPS / 2, rel=0.15)
    assert math.exp(growth(memory)) > 1.02


def readings(last: int, mib: Callable[[int], float]) -> list[list[int]]:
    """Return a resident set by its MiB after each 25 steps."""
    return [[step, round(MIB * mib(step))] for step in range(25, last + 1, 25)]


@pytest.mark.parametrize(
    ("last", "mib", "end"),
    [
        # A rest of 100 steps that ends with a growth of its own, before the rest at the end.
        (500, lambda step: 500 + min(step, 200) + 300 * (step >= 325), None),
        (525, lambda step: 500 + min(step, 200) + 300 * (step >= 325), 325.0),
        # A rest at the end that is twice as long as that of 100 steps before, and a shorter one.
        (600, lambda step: 500 + min(step, 100) + max(0, min(step, 400) - 200), 400.0),
        (575, lambda step: 500 + min(step, 100) + max(0, min(step, 400) - 200), None),
        # Five readings at the end, and four.
        (600, lambda step: 500 + min(step, 500), 500.0),
        (600, lambda step: 500 + min(step, 525), None),
        # A seventh of the run is too short.
        (2000, lambda step: 500 + min(step, 1675) + 200 * (step >= 1700), 1700.0),
        (2000, lambda step: 500 + min(step, 1675) + 200 * (step >= 1725), None),
        # A tenth of the rate is no more growth.
        (800, lambda step: 500 + min(step, 400) + max(0, step - 400) / 16, 400.0),
        (800, lambda step: 500 + min(step, 400) + max(0, step - 400) / 8, None),
        # A hundredth of the resident set is the least growth.
        (1000, lambda step: 100 + min(1.0, (step - 25) / 375), 400.0),
        (1000, lambda step: 100 + min(0.99, (step - 25) / 375), None),
        # What ends in the first third has ended with it.
        (900, lambda step: 500 + min(step, 100), 300.0),
    ],
)
def test_growth_ends_where_a_long_rest_begins(
    last: int, mib: Callable[[int], float], end: float | None
) -> None:
    assert ended_at(readings(last, mib)) == end


@pytest.mark.parametrize(("second", "may_end"), [(575, True), (600, False)])
def test_growth_in_pieces_slows_down_only_without_a_rest_of_a_seventh(
    second: int, may_end: bool
) -> None:
    """It has half of the second third's rate in the last third, and rests for up to 125 or 150 of
    900 steps."""
    pieces = [(425, 100), (second, 100), (700, 50), (825, 50)]
    memory = readings(
        900, lambda step: 500 + min(step, 300) / 3 + sum(mib for at, mib in pieces if at <= step)
    )
    ranks = [replace(run_report(steps=900), memory=memory)] * 2
    failed = Judgement(Verdict.FAIL, None, Ceiling(1.02), 8)
    found = explained(failed, WORKLOAD, [ranks] * 8)
    assert (found.verdict is Verdict.INCONCLUSIVE) is may_end


@pytest.mark.parametrize(
    ("shape", "other", "verdict"),
    [
        ("leak 800", "", Verdict.INCONCLUSIVE),  # perhaps of a cache that is not full
        ("leak 800", "nothing", Verdict.FAIL),  # a cache would grow on all ranks
        ("leak 800", "leak 500", Verdict.INCONCLUSIVE),
        ("leak 800", "leak 320", Verdict.FAIL),  # and nearly alike
        ("later 100 0.5", "", Verdict.FAIL),  # a cache would grow from the beginning on
    ],
)
def test_own_data_may_be_cached_until_a_pass_is_over(shape, other, verdict):
    assert judged(shape, other, own_data=True).verdict is verdict


@pytest.mark.parametrize(
    ("early", "other", "may_be_cached"),
    [(1.0, 1.0, True), (0.96875, 1.0, False), (2.0, 0.5, True), (2.0, 0.46875, False)],
)
def test_a_cache_grows_at_least_half_as_fast_at_first_and_on_each_rank(
    early: float, other: float, may_be_cached: bool
) -> None:
    """Rank 0 grows by 2 MiB a step from the first third on, and rank 1 by that part of it."""

    def growing(of: float) -> RunReport:
        memory = readings(
            900, lambda step: 500 + of * (early * min(step, 300) + 2 * max(0, step - 300))
        )
        return replace(run_report(steps=900), memory=memory)

    ranks = [growing(1.0), growing(other)]
    failed = Judgement(Verdict.FAIL, None, Ceiling(1.02), 8)
    asked = replace(WORKLOAD, dataset=WORKLOAD.model)
    found = explained(failed, asked, [ranks] * 8)
    assert (found.verdict is Verdict.INCONCLUSIVE) is may_be_cached
    # That one of two rounds is like that is not most of them.
    leaks = [ranks[0], replace(ranks[1], memory=readings(900, lambda step: 500.0))]
    assert explained(failed, asked, [ranks, leaks]).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("samples_of_a_pass", "left"), [(None, False), (32_000, False), (28_000, False), (16_000, True)]
)
def test_a_pass_is_left_when_its_end_would_have_been_seen(samples_of_a_pass, left):
    report = replace(run_report(samples=32_000), samples_of_a_pass=samples_of_a_pass)
    assert has_left_a_pass(report) is left
