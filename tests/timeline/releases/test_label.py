"""Figures stand under one label only where they are comparable."""

from __future__ import annotations

import pytest

from hvdperf.plan.arms import Workload
from hvdperf.timeline.releases.raw import machine_label, replica_label, replica_of
from tests.support.histories import FACTS

WORDS = Workload("lstm_s", "ptb", 35, batch=16)


def test_a_label_tells_the_machine():
    label = machine_label(FACTS)
    assert label.startswith("amd-epyc-2-cores-24-gib-")
    assert machine_label({**FACTS, "gpus": 4, "gpu_model": ["Tesla V100"]}).startswith(
        "4-tesla-v100-"
    )


@pytest.mark.parametrize(
    ("cores", "said"), [("0: 0", "1 core"), ("0: 0-3,8", "5 cores"), ("0: 1,3", "2 cores")]
)
def test_a_replica_tells_its_data_and_its_cores(cores, said):
    facts = {**FACTS, "data_sets": ["ptb: 1 file, 0.1 MB, 00ff"], "rank_cores": [cores]}
    assert replica_of(facts, WORDS) == f"ptb 00ff, size 35, batch 16, float32, {said}"
    synthetic = Workload("vgg_16_s", "synthetic", 32, batch=8, precision="mixed_bfloat16")
    expected = "synthetic, size 32, batch 8, mixed_bfloat16, 1 GPU"
    assert replica_label("", 4, True, synthetic) == expected


@pytest.mark.parametrize(
    ("facts", "is_same"),
    [
        # The stack, and what each series records.
        ({"tensorflow": "2.15.1", "horovod": "0.27.0", "keras": "2.15.0"}, True),
        ({"numpy": "1.26.4", "packages_sha256": "00"}, True),
        ({"data_sets": ["cifar10: others"], "rank_cores": ["0: 0-1"]}, True),
        ({"kernel": "6.2.0"}, False),
        ({"cores": 4}, False),
        ({"launcher": "agents"}, False),
        ({"method": 2}, False),
        ({"horovod_cycle_time_ms": 5.0}, False),
        ({"mca_settings": ["btl=tcp"]}, False),
        ({"a field that nobody knows yet": "x"}, False),
    ],
)
def test_whatever_differs_except_the_stack_begins_a_new_series(facts, is_same):
    assert (machine_label({**FACTS, **facts}) == machine_label(FACTS)) is is_same
