from __future__ import annotations

import subprocess

import pytest

from history import places


@pytest.fixture(scope="session")
def otava() -> None:
    """Apache Otava is in this checkout's .asv/otava."""
    subprocess.run(["bash", places.ROOT / "ci" / "otava.sh"], check=True)
