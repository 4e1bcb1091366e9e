from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

NvidiaSmi = Callable[..., dict[str, str]]


@pytest.fixture
def nvidia_smi(tmp_path: Path) -> NvidiaSmi:
    """Return a function that puts a program of that name on a PATH of its own, and returns the
    environment for it."""

    def install(script: str, **environment: str) -> dict[str, str]:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return {"PATH": f"{tmp_path}:/usr/bin:/bin", **environment}

    return install
