"""Recorded pairs: what is drawn, which arm has the fault, and what is kept."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace

from bench.fault_pairs import ENDING, FAULTS, FORMAT, OfOneArm, Pair, drawn, packed, read_pairs
from hvdperf.plan.arms import AA
from hvdperf.plan.questions import Fault, weak_scaling
from hvdperf.records.documents import now
from hvdperf.work.blocks import turns_of
from tests.support.rounds import HOROVOD_2, WORKLOAD, one_round
from tests.support.stores import fingerprint_of, placed


def test_the_seed_and_the_number_decide_the_fault_and_all_kinds_come():
    faults = [drawn(1, number) for number in range(200)]
    assert faults == [drawn(1, number) for number in range(200)]
    assert faults != [drawn(2, number) for number in range(200)]
    kinds = {Fault.parse(fault).kind for fault in faults if fault}
    assert kinds == FAULTS.keys() - {"none"}
    assert "" in faults
    assert {Fault.parse(fault).rank for fault in faults if fault.startswith("slow")} == {0, 1}


def test_only_one_of_the_two_arms_has_the_fault():
    fault = OfOneArm(**vars(Fault.parse("slow:rank=1,factor=1.3")))
    assert fault.as_config() == Fault.parse("slow:rank=1,factor=1.3").as_config()
    assert fault.strikes(replace(HOROVOD_2, injected=AA))
    assert not fault.strikes(HOROVOD_2)


def test_a_pair_is_read_as_it_was_recorded(tmp_path):
    measured = one_round(weak_scaling(WORKLOAD, 2), 0.9)
    facts = fingerprint_of(placed())
    pair = Pair(FORMAT, now(), "0.2.0", facts, "slow:rank=1,factor=1.3", measured)
    (tmp_path / f"a{ENDING}").write_bytes(packed(pair))
    (read,) = read_pairs(tmp_path)
    assert (read.fault, read.fingerprint, read.recorded_at) == (pair.fault, facts, pair.recorded_at)
    for launch, before in zip(read.round.launches, measured.launches, strict=True):
        assert launch.arm == before.arm
        assert len(launch.blocks) == len(before.blocks)


def test_times_are_kept_to_the_microsecond(tmp_path):
    measured = one_round(weak_scaling(WORKLOAD, 2), 0.9)
    rank = measured.launches[0].blocks[0].ranks[0]
    rank = replace(rank, seconds=0.123456789)
    block = replace(measured.launches[0].blocks[0], ranks=[rank])
    turns_of(measured.launches[0]).blocks[0] = block
    text = lzma.decompress(packed(Pair(FORMAT, now(), "", fingerprint_of(placed()), "", measured)))
    kept = json.loads(text)["round"]["launches"][0]["work"]["blocks"][0]["ranks"][0]["seconds"]
    assert kept == 0.123457
