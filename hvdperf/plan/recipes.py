"""Recipes: ways of training that change the cost of a step. Each short name, which a case shows,
maps to the fields of a workload that the recipe changes. Pure data, no I/O."""

from __future__ import annotations

# On CPUs oneDNN supports bfloat16, while float16 takes 30 to 60 times as long as float32.
RECIPES: dict[str, dict[str, str]] = {
    "bf16": {"precision": "mixed_bfloat16"},
    "f16": {"precision": "mixed_float16"},
    # Warmed up, then reduced when training stalls (hvdperf/worker/learning_rate.py).
    "rate": {"learning_rate": "adaptive"},
}
PRECISIONS = (
    "float32",
    *(changes["precision"] for changes in RECIPES.values() if "precision" in changes),
)
