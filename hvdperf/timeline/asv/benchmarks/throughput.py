"""What asv tracks. The measuring is the suite's, by the suite's own interpreter: this file runs
inside the environments that asv makes, which hold a TensorFlow and a Horovod and little else."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

ROOT = Path(__file__).resolve().parents[4]


def history(*arguments: str) -> Any:
    """What `hvdperf history` prints, as JSON."""
    python = ROOT / os.environ.get("HVDPERF_VENV", ".venv") / "bin" / "python"
    command = [str(python), "-m", "hvdperf", "history", *arguments]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


class Training:
    """Horovod as it is, on so many replicas; samples of all of them together."""

    params: ClassVar = history("params")
    param_names: ClassVar = ["model", "replica", "world_size"]
    version = "1"
    timeout = 60.0

    def setup_cache(self) -> dict[str, float]:
        """One session of the suite, for all parameters."""
        measured: dict[str, float] = history("measure", "--stack", sys.executable)
        return measured

    setup_cache.timeout = 3600.0  # type: ignore[attr-defined]

    def track_samples_per_second(
        self, measured: dict[str, float], model: str, replica: str, world_size: int
    ) -> float:
        return measured.get(f"{model}/{replica}/{world_size}", float("nan"))

    def track_seconds_per_sample(
        self, measured: dict[str, float], model: str, replica: str, world_size: int
    ) -> float:
        return 1 / self.track_samples_per_second(measured, model, replica, world_size)

    track_samples_per_second.unit = "samples/s"  # type: ignore[attr-defined]
    track_seconds_per_sample.unit = "seconds"  # type: ignore[attr-defined]
