"""The model on measurements that others have published: fitted on small sizes, held against large
ones. The figures are what it does, not what one would like it to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.prediction import CENTRAL, NotPredictable, Point, fit, predict

HERE = Path(__file__).parent


def published(name: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text())
    return facts


def lab11() -> list[Point]:
    """Efficiency by speed: examples a second of a GPU, over those of one GPU alone.

    Which GPUs shared a node is not stated. Every GPU is taken for a node.
    """
    facts = published("lab11")
    speeds = facts["examples_per_second_per_gpu"]
    return [
        Point(gpus, gpus, speed / speeds[0])
        for gpus, speed in zip(facts["gpus"], speeds, strict=True)
    ]


def one_node(strategy: str) -> list[Point]:
    """Efficiency on the GPUs of one node, every GPU taken for a node."""
    facts = published("vgg16_cifar100_v100")
    speeds = facts[f"{strategy}_images_per_second"]
    return [
        Point(gpus, gpus, speed / gpus / speeds[0])
        for gpus, speed in zip(facts["gpus"], speeds, strict=True)
    ]


def errors(predicted: dict[int, float], points: list[Point]) -> dict[int, float]:
    """By what part of it each efficiency is missed, in percent, above zero if too high."""
    measured = {point.replicas: point.efficiency for point in points}
    return {n: round(100 * (value / measured[n] - 1), 2) for n, value in predicted.items()}


def test_lab11_from_8_gpus_to_32():
    """Fitted on 1..8 GPUs, resnet_v2_101's efficiency is missed by -1.82 % at 16 and -0.46 % at 32.

    Keeping the efficiency of 8 would have missed it by -1.04 % and +0.53 %: no worse on the whole.
    Left out of the fit, 8 is missed by -0.85 %, by +1.05 % if that of 4 is kept, so the model is
    shown. Speeds are printed as whole numbers near 200, which is 0.25 %.
    """
    points = lab11()
    prediction = predict(points[:4], [16, 32])
    central = errors({each.replicas: each.central for each in prediction.estimates}, points)
    kept = errors({each.replicas: each.keep_last for each in prediction.estimates}, points)
    told = f"central {central}, keep-last {kept} %"
    assert central == pytest.approx({16: -1.82, 32: -0.46}, abs=0.02), told
    assert kept == pytest.approx({16: -1.04, 32: 0.53}, abs=0.02), told
    assert max(map(abs, central.values())) < 2, told
    shown = 100 * prediction.model_error, 100 * prediction.keep_last_error
    assert shown == pytest.approx((-0.85, 1.05), abs=0.01)


def test_lab11_is_missed_by_all_models_alike():
    """All three put the whole cost into a term that levels off, so the envelope has no width and
    what was measured lies above it: it tells the forms apart, and knows nothing of noise."""
    points = lab11()
    measured = {point.replicas: point.efficiency for point in points}
    for each in predict(points[:4], [16, 32]).estimates:
        assert each.high - each.low < 1e-4
        assert each.high < measured[each.replicas]


def test_lab11_from_16_gpus_to_32():
    """Left out of the fit, 16 is missed by -1.8 %, and by -1.0 % if the efficiency of 8 is kept:
    the model is not shown, though it would have missed 32 by no more than +0.27 %, and keeping the
    efficiency of 16 by +1.58 %."""
    points = lab11()
    with pytest.raises(NotPredictable, match=r"np 16 is missed by -1.8%, and by -1.0%"):
        predict(points[:5], [32])
    unseen = {32: fit(CENTRAL, points[:5]).efficiency(32, 32)}
    assert errors(unseen, points)[32] == pytest.approx(0.27, abs=0.02)
    assert errors({32: points[4].efficiency}, points)[32] == pytest.approx(1.58, abs=0.02)


@pytest.mark.parametrize(
    ("strategy", "central_percent", "kept_percent"),
    [("horovod", -1.75, 1.31), ("mirrored", -3.27, -0.47)],
)
def test_vgg_16_from_3_gpus_to_4(strategy, central_percent, kept_percent):
    """Fitted on 1..3 GPUs of a node, 4 is missed by -1.75 % (Horovod) and -3.27 %
    (MirroredStrategy), and by +1.31 % and -0.47 % if the last efficiency is kept. The rule sees
    that beforehand, at 3 GPUs, and shows no model."""
    points = one_node(strategy)
    guess = fit(CENTRAL, points[:3]).efficiency(4, 4)
    missed = errors({4: guess}, points)[4], errors({4: points[2].efficiency}, points)[4]
    assert missed == pytest.approx((central_percent, kept_percent), abs=0.02), f"{missed} %"
    with pytest.raises(NotPredictable, match=r"np 3 is missed by .* the model is no better"):
        predict(points[:3], [4])


@pytest.mark.parametrize("strategy", ["horovod", "mirrored"])
def test_vgg_16_on_one_node_tells_nothing_of_more_nodes(strategy):
    points = [Point(1, point.replicas, point.efficiency) for point in one_node(strategy)]
    with pytest.raises(NotPredictable, match="needs 2 multi-node points"):
        predict(points, [8])
