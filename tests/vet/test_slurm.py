"""`hvdperf vet` in an allocation of a real Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.leftovers import ended
from tests.support.slurm import slurm_cluster
from tests.support.whole_sessions import BIN, environment_of_sessions

pytestmark = [pytest.mark.mpirun, pytest.mark.long]


def test_the_nodes_of_an_allocation_are_compared(tmp_path: Path) -> None:
    out = tmp_path / "vet.json"
    vet = [str(BIN / "hvdperf"), "vet", "--rounds=10", f"--out={out}"]
    with (
        slurm_cluster(tmp_path, environment_of_sessions()) as cluster,
        cluster.start("salloc", "--nodes=2", "--ntasks=2", *vet) as process,
    ):
        output, _ = process.communicate(timeout=500)
        # The two nodes share two cores with whatever else runs: they may differ.
        assert process.returncode in (0, 1, 6), output
        assert "10 rounds" in output
        assert ended(cluster.processes())
    assert '"node1"' in out.read_text()
    assert "NOT RUN" not in output
