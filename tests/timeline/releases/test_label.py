"""Figures stand under one label only where they are comparable."""

from __future__ import annotations

import pytest

from hvdperf.plan.arms import Workload
from hvdperf.timeline.releases.label import machine_label, replica_label, replica_of
from tests.support.histories import FACTS

WORDS = Workload("lstm_s", "ptb", 35, batch=16)


def test_a_label_tells_the_machine():
    label = machine_label(FACTS)
    assert label.startswith("amd-epyc-2-cores-24-gib-")
    assert machine_label({**FACTS, "gpus": 4, "gpu_model": ["Tesla V100"]}).startswith(
        "4-tesla-v100-"
    )


@pytest.mark.parametrize(
    "facts",
    [
        {"tensorflow": "2.15.1"},
        {"horovod": "0.27.0"},
        {"keras": "2.15.0", "numpy": "1.26.4", "packages_sha256": "00"},
        {"data_sets": ["cifar10: others"]},
        {"rank_cores": ["0: 0-1"]},
    ],
)
def test_the_stack_is_no_part_of_it(facts):
    assert machine_label({**FACTS, **facts}) == machine_label(FACTS)


@pytest.mark.parametrize(
    "facts",
    [
        {"kernel": "6.2.0"},
        {"cores": 4},
        {"launcher": "agents"},
        {"method": 2},
        {"horovod_cycle_time_ms": 5.0},
        {"mca_settings": ["btl=tcp"]},
        {"a field that nobody knows yet": "x"},
    ],
)
def test_whatever_else_differs_begins_a_new_series(facts):
    assert machine_label({**FACTS, **facts}) != machine_label(FACTS)


@pytest.mark.parametrize(
    ("cores", "said"), [("0: 0", "1 core"), ("0: 0-3,8", "5 cores"), ("0: 1,3", "2 cores")]
)
def test_a_replica_tells_its_data_and_its_cores(cores, said):
    facts = {**FACTS, "data_sets": ["ptb: 1 file, 0.1 MB, 00ff"], "rank_cores": [cores]}
    assert replica_of(facts, WORDS) == f"ptb 00ff, size 35, batch 16, float32, {said}"


def test_synthetic_data_has_no_identity():
    workload = Workload("vgg_16_s", "synthetic", 32, batch=8, precision="mixed_bfloat16")
    assert replica_label("", 4, True, workload) == (
        "synthetic, size 32, batch 8, mixed_bfloat16, 1 GPU"
    )
