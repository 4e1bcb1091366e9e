"""What rounds have to hold."""

from __future__ import annotations

from hvdperf.plan.arms import SWEEP_BYTES, Arm, BlockKind, Collective
from hvdperf.plan.comparisons import Comparison, Question
from hvdperf.plan.questions import gradient_reductions, overlap, parity, startup, sweep
from hvdperf.work.collectives import Collectives
from hvdperf.work.table import kinds_of, transfers_of
from hvdperf.work.training import Startup
from hvdperf.worker.protocol import Phase
from tests.support.rounds import GRADIENTS, HOROVOD_1, HOROVOD_2, MIRRORED_2, WORKLOAD
from tests.support.sessions import ALL, BOUND, FAULT_CASES, GRADIENTS_OF, STRONG, WEAK


def test_split_blocks_are_taken_only_where_they_are_judged():
    kinds = kinds_of(ALL, lambda comparison: comparison is not STRONG)
    assert kinds == {
        HOROVOD_1: {BlockKind.FULL},
        HOROVOD_2: {BlockKind.FULL, BlockKind.LOCAL},
        MIRRORED_2: {BlockKind.FULL},
    }


def test_computing_of_ranks_is_measured_where_a_fail_needs_it():
    def kinds(*asked: Comparison) -> dict[Arm, set[BlockKind]]:
        return kinds_of(asked, lambda comparison: True)

    with_local = {BlockKind.FULL, BlockKind.LOCAL}
    assert kinds(WEAK) == {HOROVOD_1: {BlockKind.FULL}, HOROVOD_2: with_local}
    assert kinds(parity(WORKLOAD, 2)) == {MIRRORED_2: {BlockKind.FULL}, HOROVOD_2: with_local}
    assert kinds(parity(WORKLOAD, 1))[HOROVOD_1] == {BlockKind.FULL}
    variant, *_ = gradient_reductions(WORKLOAD, 2)
    assert set().union(*kinds(variant).values()) == {BlockKind.FULL}
    assert kinds_of([WEAK], lambda comparison: False)[HOROVOD_2] == {BlockKind.FULL}


def test_what_is_only_traced_starts_no_further():
    asked = {comparison.question: comparison for comparison in startup(WORKLOAD, 2)}
    assert Startup.last_phase([asked[Question.STARTUP_TRACE]]) is Phase.TRACE
    assert Startup.last_phase(list(asked.values())) is Phase.BROADCAST


def test_a_start_up_goes_as_far_as_what_is_exchanged_takes():
    assert Collectives.last_phase(sweep(WORKLOAD, 2)) is Phase.INIT
    assert Collectives.last_phase([GRADIENTS_OF]) is Phase.BUILD
    assert Collectives.last_phase([GRADIENTS_OF, BOUND]) is Phase.BROADCAST


def test_blocks_are_taken_where_steps_are_asked_about():
    def kinds(*asked: Comparison) -> list[set[BlockKind]]:
        found = kinds_of(asked, lambda comparison: True)
        return [found[asked[0].candidate.arm], found[asked[0].reference.arm]]

    assert kinds(*sweep(WORKLOAD, 2)) == [set(), set()]
    assert kinds(GRADIENTS_OF) == [set(), set()]
    both = {BlockKind.FULL, BlockKind.LOCAL}
    assert kinds(GRADIENTS_OF, BOUND) == [both, set()]
    # Neither order of what is asked about leaves anything out.
    other = overlap(WORKLOAD, 3)
    for asked in ((GRADIENTS_OF, BOUND, other), (other, BOUND, GRADIENTS_OF), (BOUND, WEAK, other)):
        found = kinds_of(asked, lambda comparison: True)
        assert found[BOUND.candidate.arm] == found[other.candidate.arm] == both
        assert found[BOUND.reference.arm] == set()
    assert found[HOROVOD_1] == {BlockKind.FULL}


def test_both_arms_exchange_every_size_that_is_asked_about():
    two = sweep(WORKLOAD, 2)[:2]
    wanted = transfers_of(two)
    assert set(wanted) == set(two[0].arms)
    (horovod, bare) = wanted.values()
    assert horovod == bare
    assert [t.tensor_bytes for t in horovod if t.collective is Collective.ALLGATHER] == [
        (size,) for size in SWEEP_BYTES
    ]
    assert len(horovod) == 2 * len(SWEEP_BYTES)
    assert set(map(tuple, transfers_of([GRADIENTS_OF, BOUND]).values())) == {(GRADIENTS,)}
    assert transfers_of([WEAK]) == {}


def test_computing_and_exchange_are_told_apart_only_where_that_is_asked():
    kinds = kinds_of(list(FAULT_CASES.values()), lambda comparison: True)
    local = {arm.injected for arm, wanted in kinds.items() if BlockKind.LOCAL in wanted}
    assert local == {"", "busy", "cycle", "nofuse"}
