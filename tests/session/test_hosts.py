"""Sessions on two hosts, which are namespaces of this machine, under a real mpirun."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hosts import two_hosts
from tests.support.leftovers import ended
from tests.support.whole_sessions import BIN, MPIRUN, documents, environment_of_sessions

pytestmark = pytest.mark.mpirun


@pytest.mark.parametrize("launcher", ["mpirun", pytest.param("agents", marks=pytest.mark.long)])
def test_a_session_measures_on_two_hosts(options: list[str], tmp_path: Path, launcher: str) -> None:
    slots = [MPIRUN, "--host", "node1:1,node2:1", "-np", "2"]
    asked = ["perf/", *options, f"--launcher={launcher}", "-k", "weak_scaling"]
    with two_hosts(tmp_path) as hosts:
        session = hosts.start(
            "node1",
            [*slots, str(BIN / "pytest"), *asked],
            {**environment_of_sessions(), "OMPI_MCA_plm_rsh_agent": str(hosts.remote_shell)},
        )
        output, _ = session.communicate(timeout=120)
        assert session.returncode == 6, output
        assert ended(hosts.processes())
    (case,) = [found for found in documents(tmp_path).values() if "outcome" in found]
    assert case["replicas_per_node"] == [1, 1]
    (measured,) = case["outcome"]["rounds"]
    assert {len(launch["evidence"]) for launch in measured["launches"]} == {1, 2}
    assert case["outcome"]["judgement"]["verdict"] == "INCONCLUSIVE"
