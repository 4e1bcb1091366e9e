"""Settings in the head of a session and beside its verdicts."""

from __future__ import annotations

from dataclasses import replace

from hvdperf.plan.questions import horovod_overhead, weak_scaling
from hvdperf.records.fingerprinting import fingerprint
from hvdperf.records.fingerprinting import beside, head
from tests.support.rounds import WORKLOAD
from tests.support.stores import MACHINE, STACK, placed

ALONE, TOGETHER = horovod_overhead(WORKLOAD, 1), weak_scaling(WORKLOAD, 2)


def known(**environment: str):
    return fingerprint(MACHINE, STACK, "mpirun", placed(), environment)


def test_without_settings_nothing_is_told():
    assert head(known(), [ALONE, TOGETHER]) == []
    assert beside(known(), TOGETHER) == ""
    assert head(known(HOROVOD_CYCLE_TIME="1"), [TOGETHER]) == [], "that is the default"


def test_every_setting_is_told_once_in_the_head_and_beside_what_it_touches():
    facts = known(
        HOROVOD_CYCLE_TIME="100",
        HOROVOD_OF_ANOTHER_RELEASE="1",
        OMP_NUM_THREADS="1",
        XLA_FLAGS="--xla_cpu_enable_fast_math=true",
    )
    names = [line.partition("=")[0] for line in head(facts, [ALONE, TOGETHER])]
    assert names == [
        "HOROVOD_CYCLE_TIME",
        "HOROVOD_OF_ANOTHER_RELEASE",
        "OMP_NUM_THREADS",
        "XLA_FLAGS",
    ]
    assert "HOROVOD_CYCLE_TIME=100" in beside(facts, TOGETHER)
    for case, cycle_time in ((ALONE, False), (TOGETHER, True)):
        said = beside(facts, case)
        assert "XLA_FLAGS" in said
        assert ("HOROVOD_CYCLE_TIME" in said) is cycle_time
        assert "OMP_NUM_THREADS" not in said, "the suite overrides it"
        assert "ANOTHER_RELEASE" not in said, "nobody knows what it touches"


def test_many_settings_are_a_short_clause():
    names = ["ALGO", "BUFFSIZE", "PROTO", "NTHREADS", "NET"]
    facts = known(**{f"NCCL_{name}": "1" for name in names})
    facts["gpus"] = 2
    assert beside(facts, TOGETHER).endswith("and 2 more")


def test_half_precision_on_a_cpu_is_told():
    half = weak_scaling(replace(WORKLOAD, precision="mixed_float16"), 2)
    assert [line.partition(":")[0] for line in head(known(), [TOGETHER, half])] == ["mixed_float16"]
    assert "mixed_float16" in beside(known(), half)
    assert beside(known(), TOGETHER) == ""
