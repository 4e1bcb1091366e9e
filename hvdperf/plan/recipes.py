"""Ways of training that change what a step costs, by the short name that a case shows: what each of
them changes about a workload. Pure data, no I/O."""

from __future__ import annotations

# On CPUs bfloat16 is what oneDNN has; float16 takes 30 to 60 times as long as float32.
RECIPES: dict[str, dict[str, str]] = {
    "bf16": {"precision": "mixed_bfloat16"},
    "f16": {"precision": "mixed_float16"},
    # Warmed up, then reduced where training stalls (hvdperf/worker/learning_rate.py).
    "rate": {"learning_rate": "adaptive"},
}
PRECISIONS = (
    "float32",
    *(changes["precision"] for changes in RECIPES.values() if "precision" in changes),
)
