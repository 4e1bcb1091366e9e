"""Variants of a training: ways of exchanging gradients, and recipes that change the cost of a step,
each by the short name that a case shows. Pure data, no I/O."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Exchange:
    """One way in which Horovod exchanges gradients. The values here are Horovod's defaults.

    compression: "none", or "fp16" for half the bytes. reduction: "average", or "adasum"
    (arXiv:2006.02924). groups: number of groups whose tensors are reduced together, 0 for none.
    sparse_as_dense: reduce an embedding's gradient rather than gather its rows. fusion_bytes: size
    of the fusion buffer. cycle_ms: time for which tensors are collected for that buffer. Both are
    None for Horovod's own. tolerance: the largest difference of the weights from those of the
    default, besides rounding, as a part of their change by training; None if they are meant to
    differ.
    """

    compression: str = "none"
    reduction: str = "average"
    groups: int = 0
    sparse_as_dense: bool = False
    fusion_bytes: int | None = None
    cycle_ms: float | None = None
    tolerance: float | None = 1e-5


# By the short name that a case shows. "" is Horovod's default.
EXCHANGES = {
    "": Exchange(),
    # The weights of resnet_50_s differ by 1.3 % after two steps.
    "fp16": Exchange(compression="fp16", tolerance=0.05),
    "group": Exchange(groups=1),
    # Adasum does not support sparse gradients.
    "adasum": Exchange(reduction="adasum", sparse_as_dense=True, tolerance=None),
    "dense": Exchange(sparse_as_dense=True),
    "nofuse": Exchange(fusion_bytes=0),
    "cycle": Exchange(cycle_ms=25.0),
}

# Each recipe maps to the fields of a workload that it changes.
# On CPUs oneDNN supports bfloat16, while float16 takes 30 to 60 times as long as float32.
RECIPES: dict[str, dict[str, str]] = {
    "bf16": {"precision": "mixed_bfloat16"},
    "f16": {"precision": "mixed_float16"},
    # Warmed up, then reduced when training stalls (hvdperf/worker/learning.py).
    "rate": {"learning_rate": "adaptive"},
}
PRECISIONS = (
    "float32",
    *(changes["precision"] for changes in RECIPES.values() if "precision" in changes),
)
