import math
import random
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from hvdperf.explain.collectives import StepTimes, too_fast
from hvdperf.plan.arms import Arm, BlockKind
from hvdperf.records.rounds import Correctness, Launch, Run, Series, StampedRun, Turns
from hvdperf.work import evidence
from hvdperf.work.base import Work
from hvdperf.work.blocks import turns_of
from hvdperf.work.collectives import Collectives
from hvdperf.work.training import Epochs, WallTime, impossible_shares
from hvdperf.worker.strategies import Strategy
from tests.support.rounds import (
    GRADIENTS,
    HOROVOD_1,
    HOROVOD_2,
    MIRRORED_2,
    WORKLOAD,
    change_reports,
    evidence_report,
    launch,
    run_report,
    series,
    series_report,
)
from tests.support.with_timestamps import with_timestamps

HOROVOD_4 = Arm(WORKLOAD, Strategy.HOROVOD, 4)
SPEEDS = {BlockKind.FULL: 1000.0}


def invalid_reasons(launch: Launch) -> list[str]:
    """Return the problems that the work of such a launch finds."""
    works: dict[type, type[Work]] = {Turns: Collectives, Run: Epochs, StampedRun: WallTime}
    return works[type(launch.work)].problems(launch)


def changed(sound, position, **values):
    """The launch with something else in the report of one rank, of its first block."""
    sound.blocks[0].ranks[position] = replace(sound.blocks[0].ranks[position], **values)
    return sound


@pytest.mark.parametrize("arm", [HOROVOD_1, HOROVOD_2, HOROVOD_4])
def test_a_sound_launch_has_no_problems(arm):
    assert invalid_reasons(launch(arm, dict.fromkeys(BlockKind, 1000.0))) == []


def test_a_mirrored_launch_is_one_process_with_a_digest_a_replica():
    sound = launch(MIRRORED_2, SPEEDS)
    assert len(sound.blocks[0].ranks) == 1
    assert invalid_reasons(sound) == []
    sound.evidence = [evidence_report()]
    assert invalid_reasons(sound) == [
        "resnet_50_s mirrored@2: 1 of 2 replicas reported a digest of their weights"
    ]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            [{}, {"data": "6 files, 18.4 MB, deadbeefdeadbeef"}],
            "rank 1 reads other data: 6 files, 18.4 MB, deadbeefdeadbeef instead of 6 files, ",
        ),
        ([{"data": ""}, {}], "rank 0 reads other data: none instead of 6 files"),
        (
            [{"settings": {"A": "3", "B": "1"}}, {"settings": {"A": "3"}}],
            "B is (not set) on rank 1 and 1 on rank 0",
        ),
        ([{"world_size": 1}, {"world_size": 1}], "the framework saw world size [1]"),
        ([{"world_size": 2}, {"world_size": 1}], "the framework saw world size [1, 2]"),
        (
            [{"learning_rate": 1e-3}, {"learning_rate": 2e-3}],
            "ranks train with different learning rates: 0.001, 0.002",
        ),
        ([{"learning_rate": 1e-3}, {"learning_rate": math.nan}], "different learning rates"),
    ],
)
def test_what_ranks_have_otherwise_is_named(changes, told):
    torn = launch(HOROVOD_2, SPEEDS)
    torn.evidence = [evidence_report(**of_rank) for of_rank in changes]
    (problem,) = invalid_reasons(torn)
    assert problem.startswith("resnet_50_s horovod@2: ")
    assert told in problem


def test_the_problems_of_a_run_are_those_of_its_launch():
    trained = launch(HOROVOD_2, {})
    trained.work = Run([run_report(steps=100), run_report(steps=101)])
    assert "resnet_50_s horovod@2: ranks stopped at different steps: [100, 101]" in invalid_reasons(
        trained
    )


def test_the_replica_with_other_weights_is_named():
    torn = launch(HOROVOD_4, SPEEDS)
    torn.evidence = [
        evidence_report(world_size=4, digests=[digest]) for digest in ("a", "a", "b", "a")
    ]
    (problem,) = invalid_reasons(torn)
    assert "replicas differ: " in problem
    assert "replica 2 are not those of the others" in problem


@pytest.mark.parametrize("missing", [0, 1])
def test_a_rank_that_reports_nothing_is_a_problem(missing):
    short = launch(HOROVOD_2, SPEEDS)
    first = short.blocks[0]
    turns_of(short).blocks[0] = replace(first, ranks=[first.ranks[1 - missing]])
    assert "full block of turn 0: 1 of 2 ranks reported" in invalid_reasons(short)[0]


@pytest.mark.parametrize(
    "values",
    [
        {"loss": math.nan},
        {"loss": math.inf},
        *({"seconds": seconds} for seconds in (math.inf, math.nan, 0.0, -1.0)),
        {"step_seconds": [0.1, math.nan]},
        {"loss": math.nan, "not_finite_at": 17},
    ],
)
def test_a_figure_that_cannot_be_is_a_problem_of_its_rank(values):
    (problem,) = invalid_reasons(changed(launch(HOROVOD_2, SPEEDS), 1, **values))
    told = "full block of turn 0: rank 1 reported a figure that is not finite"
    if "not_finite_at" in values:
        told = "rank 1: the loss is NaN at step 17"
    assert told in problem


@pytest.mark.parametrize("made", [partial(launch, speeds=SPEEDS), with_timestamps])
def test_the_blocks_of_every_work_are_checked(made):
    assert invalid_reasons(made(HOROVOD_2)) == []
    short = made(HOROVOD_2)
    (problem,) = invalid_reasons(changed(short, 1, samples=short.blocks[0].ranks[1].samples - 1))
    assert "samples were consumed instead of" in problem


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(BlockKind.FULL, 640), (BlockKind.LOCAL, 640), (BlockKind.SPLIT, 320)],
)
def test_every_kind_of_block_consumes_what_the_plan_says(kind, expected):
    sound = launch(HOROVOD_2, {kind: 1000.0})
    assert evidence.expected_samples(sound, sound.blocks[0]) == expected
    assert invalid_reasons(sound) == []
    own = sound.blocks[0].ranks[0].samples
    (problem,) = invalid_reasons(changed(sound, 0, samples=own - 1))
    assert f"{expected - 1} samples were consumed instead of {expected}" in problem


WEIGHTS: dict[str, Any] = {"a0": np.array([[1.0, -2.0]]), "a1": np.array([0.0])}


def weights(**other: Any) -> dict[str, Any]:
    return {**WEIGHTS, **other}


@pytest.mark.filterwarnings("ignore:invalid value encountered in subtract")
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        # 1e-6 + 1e-5 * 2 at -2, and 1e-6 at 0.
        ({"a0": WEIGHTS["a0"] + 1e-5, "a1": WEIGHTS["a1"] - 0.9e-6}, ""),
        ({"a0": WEIGHTS["a0"] - 1.0, "a1": WEIGHTS["a1"] + 2e-6}, "tensor a0 differs by 1 "),
        ({"a1": WEIGHTS["a1"] - 2e-6}, "tensor a1 differs by 1e-06 more than tolerated"),
        ({"a1": np.array([math.nan])}, "tensor a1 is not finite"),
        ({"a1": np.array([math.inf])}, "tensor a1 is not finite"),
        ({"a0": WEIGHTS["a0"].reshape(2, 1)}, "tensor a0: shapes (2, 1) and (1, 2) differ"),
        ({"b0": np.zeros(1)}, "tensors only in the first: b0; only in the second: none"),
        ({f"b{i}": np.zeros(1) for i in range(4)}, "tensors only in the first: b0, b1, b2, ...;"),
    ],
)
def test_the_tensor_that_differs_most_is_named(changes, told):
    other = weights(**changes)
    found = evidence.weights_differ(other, WEIGHTS)
    assert found.startswith(told)
    assert bool(found) == bool(told)
    if "is not finite" in told:
        assert evidence.weights_differ(WEIGHTS, other) == told
        assert evidence.weights_differ(other, other) == told, "not with themselves either"


def test_weights_that_differ_by_exactly_the_tolerance_do_not_differ():
    a, b = ({"a0": np.array([value]), "a1": np.array([])} for value in (0.25, 0.0))
    assert evidence.weights_differ(a, b, rtol=0.0, atol=0.25) == ""
    assert evidence.weights_differ(a, b, rtol=0.0, atol=0.125) != ""


@pytest.mark.parametrize(
    ("factor", "alike"), [(1.0, True), (1.04, True), (1.06, False), (0, False)]
)
def test_a_difference_is_held_against_what_training_changed(factor: float, alike: bool) -> None:
    begun = np.array([1.0, -1.0])
    update = np.array([0.001, 0.0])
    expected = {"trained0": begun + update, "begun0": begun}
    other = {"trained0": begun + factor * update, "begun0": begun}
    assert (evidence.weights_differ(other, expected, rtol=0, atol=0, of_update=0.05) == "") is alike
    assert (evidence.weights_differ(other, expected) == "") is (factor == 1.0), (
        "unless it is asked for"
    )


def test_trainings_must_begin_with_the_same_weights() -> None:
    one = {"trained0": np.array([1.0]), "begun0": np.array([0.5])}
    other = {"trained0": np.array([1.0]), "begun0": np.array([0.6])}
    assert "tensor begun0 differs" in evidence.weights_differ(one, other, of_update=0.05)


# Collective operations -------------------------------------------------------------------------


def test_what_explains_the_rest_is_told_first():
    lonely = launch(HOROVOD_2, {})
    turns_of(lonely).series = [Series(GRADIENTS, 0, [series_report([], problem="no mpi4py")] * 2)]
    lonely.evidence = [evidence_report(world_size=1, learning_rate=0.0, digests=[""])] * 2
    first, *others = invalid_reasons(lonely)
    assert first.endswith("rank 0: no mpi4py")
    assert any("world size [1]" in problem for problem in others)
    turns_of(lonely).series = [series(0.1)]
    assert invalid_reasons(lonely) == others[1:]


def turns(*full: float) -> list[StepTimes]:
    """Of steps whose longer part takes a second."""
    return [StepTimes(seconds, local=0.5, exchange=1.0) for seconds in full]


def test_steps_that_are_faster_than_their_longer_part_are_noticed():
    assert "only 0.949 times" in too_fast("resnet_50_s horovod@2", [turns(0.949)] * 6)
    told = too_fast("resnet_50_s horovod@2", [turns(0.7, 0.71, 0.9)] * 6)
    assert told.startswith(
        "resnet_50_s horovod@2: a step takes only 0.710 times as long as the longer"
    )


@pytest.mark.parametrize(
    "launches",
    [
        [turns(1.2, 1.3)] * 6,
        # Within the noise of parts that are measured one after the other.
        [turns(0.96, 0.97)] * 6,
        [turns(0.95)] * 6,
        # One launch is no evidence, nor are five.
        [turns(0.7)] * 5,
        # In one launch of six it could be chance.
        [*[turns(0.7)] * 5, turns(0.99)],
        # A turn that is off does not make a launch.
        [turns(0.2, 1.1, 1.1)] * 6,
        [[]],
        [],
    ],
)
def test_steps_that_may_be_possible_are_believed(launches):
    assert too_fast("resnet_50_s horovod@2", launches) == ""


def test_of_two_noisy_parts_the_longer_one_is_not_taken_for_true():
    """Steps that hide all of their exchange, whose parts take as long as each other."""
    noise = random.Random(1)

    def timed(sd: float) -> StepTimes:
        return StepTimes(*(noise.lognormvariate(0.0, sd) for _ in range(3)))

    for sd in (0.09, 0.13):
        wrong = [
            too_fast("resnet_50_s horovod@2", [[timed(sd) for _ in range(3)] for _ in range(8)])
            for _ in range(200)
        ]
        assert sum(map(bool, wrong)) <= 2


def test_parts_that_add_up_to_more_than_their_step_are_noticed():
    def made(longer: float) -> Launch:
        launch = with_timestamps(HOROVOD_2)
        change_reports(
            launch,
            lambda _, report: replace(report, inside_seconds=longer * report.inside_seconds),
            lambda block: block.kind is not BlockKind.FULL,
        )
        return launch

    assert impossible_shares([made(1.0)] * 6) == ""
    # Within the noise of parts that are measured one after the other.
    assert impossible_shares([made(1.04)] * 6) == ""
    assert "alone, take 120 % of its time" in impossible_shares([made(1.2)] * 6)
    # In fewer launches, it could be chance.
    assert impossible_shares([made(1.2)] * 5) == ""


def trained(loss=0.5, samples=("a", "b")):
    return [Correctness(loss, ["digest"], [digest]) for digest in samples]


BOTH = {"begun0": np.ones(3), "trained0": np.zeros(3)}


@pytest.mark.parametrize(
    ("theirs", "weights", "where"),
    [
        (trained(), {**BOTH, "begun0": np.zeros(3)}, evidence.Parted.AT_THE_START),
        (trained(samples=("a", "c")), BOTH, evidence.Parted.IN_THE_DATA),
        (trained(loss=0.6), BOTH, evidence.Parted.AT_THE_FIRST_LOSS),
        (trained(), BOTH, evidence.Parted.AT_THE_FIRST_UPDATE),
    ],
)
def test_two_trainings_part_where_they_first_differ(theirs, weights, where):
    assert evidence.parted(trained(), theirs, BOTH, weights) is where
