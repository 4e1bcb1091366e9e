"""Real trainings to an end: when they stop, what they are validated on, and what is noticed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from hvdperf.explain import training_runs
from hvdperf.plan.arms import Arm, Workload
from hvdperf.plan.questions import Fault
from hvdperf.records.rounds import Run, RunReport, Validation
from hvdperf.work.evidence import weights_differ
from hvdperf.work.training import Epochs, problems_of_run
from tests.support.groups import (
    ADAM,
    DEADLINE_S,
    LSTM,
    WORKLOAD,
    Start,
    horovod,
    launched,
    mirrored,
    multiworker,
    single,
    update_difference,
)

pytestmark = pytest.mark.mpirun

Losses = Callable[[Arm], tuple[float, float]]
Weights = Callable[..., dict[str, np.ndarray]]
VALIDATED = 40  # records of the test files


def adaptive(workload: Workload = ADAM) -> Workload:
    return replace(workload, learning_rate="adaptive")


def validation_of(ranks: Sequence[RunReport]) -> Validation:
    assert ranks[0].validation is not None
    return ranks[0].validation


@pytest.fixture(scope="module")
def losses(start_for_all: Start) -> Losses:
    """Return a function that has an arm train on the global batches that all strategies share, and
    returns the loss of its validation and the mean of its losses. Each arm trains only once."""

    @cache
    def losses_of(arm: Arm) -> tuple[float, float]:
        group = start_for_all("mpirun", arm, common_order=True)
        ranks = group.reports(RunReport, "run", DEADLINE_S, steps=8 * arm.passes, validate=True)
        group.close()
        curve = [loss for rank in ranks for _, loss in rank.curve]
        return validation_of(ranks).loss, float(np.mean(curve))

    return losses_of


@pytest.mark.parametrize(
    "arm",
    [horovod(2, adaptive()), mirrored(2, adaptive()), single(adaptive())],
    ids=lambda arm: arm.label,
)
def test_a_run_of_so_many_steps_ends_with_a_validation_of_everything(
    start: Start, arm: Arm
) -> None:
    group = start("mpirun", arm)
    ranks = group.reports(RunReport, "run", DEADLINE_S, steps=60, validate=True)
    assert Epochs.problems(launched(arm, group, Run(ranks))) == []
    assert [rank.steps for rank in ranks] == [60] * arm.processes
    validation = validation_of(ranks)
    assert validation.samples == VALIDATED
    assert {rank.validation for rank in ranks} == {validation}, "every rank knows all of it"
    # Chance is 0.1 and ln 10 = 2.3.
    assert validation.accuracy > 0.2
    assert [step for step, _ in ranks[0].memory] == [25, 50]
    for rank in ranks:
        steps, losses = zip(*rank.curve, strict=True)
        assert list(steps) == list(range(1, 61))
        assert losses[-1] == pytest.approx(rank.loss)
        # It begins at about ln 10, whatever the strategy makes of it, and learns.
        assert 1.0 < losses[0] < 5.0
        assert np.mean(losses[-10:]) < np.mean(losses[:10])
    assert all(5e7 < size < 5e9 for _, size in ranks[0].memory)


@pytest.mark.parametrize(
    ("model", "other"),
    [
        # Its batches are normalised replica by replica, and the statistics averaged at the end.
        pytest.param("resnet_50_s", mirrored(2), marks=pytest.mark.long),
        # They move twice an update there, half as far.
        pytest.param("resnet_50_s", single(), marks=pytest.mark.long),
        # It has neither batch normalisation nor dropout, so that the order of batches is all.
        ("vgg_16_s", single()),
    ],
)
def test_strategies_that_train_on_the_same_batches_end_alike(
    losses: Losses, model: str, other: Arm
) -> None:
    workload = replace(ADAM, model=model, input_size=32)
    other = replace(other, workload=workload, passes=2 // other.world_size)
    ended, trained_at = zip(losses(horovod(2, workload)), losses(other), strict=True)
    assert ended[0] == pytest.approx(ended[1], rel=1e-3)
    assert trained_at[0] == pytest.approx(trained_at[1], rel=1e-3), "of the same samples"


def test_words_are_validated_too_and_ranks_vote_when_time_is_up(start: Start) -> None:
    arm = horovod(2, adaptive(LSTM))
    group = start("agents", arm, fault=Fault("slow", rank=1, factor=1.5))
    ranks = group.reports(RunReport, "run", DEADLINE_S, steps=100, validate=True)
    # Who knows nothing is at ln 2,000 = 7.6.
    assert 0 < validation_of(ranks).loss < 7.5
    assert 0 < validation_of(ranks).accuracy < 1
    ranks = group.reports(RunReport, "run", DEADLINE_S, seconds=1.0, validate=False)
    assert problems_of_run(arm, ranks) == []
    assert ranks[0].steps == ranks[1].steps > 0
    assert all(rank.seconds >= 1.0 for rank in ranks)
    assert ranks[0].validation is None
    for rank in ranks:
        assert 0 < len(rank.curve) < 200
        assert rank.curve[-1][0] == rank.steps


def test_workers_of_tensorflow_agree_on_their_learning_rate(start: Start) -> None:
    arm = multiworker(2, adaptive())
    group = start("mpirun", arm)
    ranks = group.reports(RunReport, "run", DEADLINE_S, steps=30, validate=False)
    # Each has the loss of its own samples, and not its share of all: about ln 10 at first.
    assert all(1.0 < rank.curve[0][1] < 5.0 for rank in ranks)
    assert Epochs.problems(launched(arm, group)) == []


def test_a_rank_that_leaks_grows_and_another_does_not(start: Start) -> None:
    # Of small batches, so that many steps take little time.
    group = start("mpirun", horovod(2, replace(WORKLOAD, batch=1)), fault=Fault("leak", rank=1))
    ranks = group.ask("run", DEADLINE_S, steps=300, validate=False)
    sound, leaking = (training_runs.growth(rank["memory"]) for rank in ranks)
    assert np.exp(leaking) > 1.8, "a megabyte a step, to what a rank of TensorFlow takes"
    # A sound one takes some megabytes at once, at any time: an allocator's piece for a thread that
    # had none before. In a run as short as this the median of slopes does not leave them out.
    assert sound < leaking / 5


def test_several_backward_passes_are_one_step_of_a_larger_batch(weights: Weights) -> None:
    whole = replace(WORKLOAD, batch=2 * WORKLOAD.batch)
    expected = weights("mpirun", horovod(2, whole), steps=1)
    trained = weights("mpirun", replace(horovod(2), passes=2), steps=2)
    assert weights_differ(trained, expected) == ""


@pytest.mark.parametrize(
    ("precision", "tolerance"), [("mixed_bfloat16", 0.2), ("mixed_float16", 0.05)]
)
def test_mixed_precision_trains_nearly_the_same_weights(
    weights: Weights, precision: str, tolerance: float
) -> None:
    expected = weights("mpirun", horovod(2))
    trained = weights("mpirun", horovod(2, replace(WORKLOAD, precision=precision)))
    assert 0 < update_difference(trained, expected) < tolerance
