"""The configuration of one process that trains a small network without data and without others."""

from __future__ import annotations

from typing import Any

from hvdperf.worker.protocol import Exchange, RankConfig

ALONE = RankConfig(
    strategy="single",
    model="resnet_50_s",
    dataset="synthetic",
    input_size=32,
    batch=4,
    optimizer="sgd",
    precision="float32",
    learning_rate="constant",
    classes=1000,
    own_network="",
    world_size=1,
    epoch_steps=10,
    data_dir="",
    data_id="",
    data_files=[],
    exchange=Exchange(),
    passes=1,
    cores=[0],
    startup_cores=[0],
    device=None,
    intra_op=1,
    inter_op=1,
    input_threads=1,
    seed=1,
    script=[],
)


def rank_config(**changes: Any) -> RankConfig:
    return ALONE._replace(**changes)
