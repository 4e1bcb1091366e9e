"""Sessions on two hosts, which are namespaces of this machine, under a real mpirun."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

import pytest

from hvdperf.paths import CACHE
from tests.support.hosts import Hosts, two_hosts
from tests.support.leftovers import ended
from tests.support.whole_sessions import (
    BIN,
    MPIRUN,
    ROOT,
    case_on_two_hosts,
    documents,
    environment_of_sessions,
    verdicts,
)

pytestmark = pytest.mark.mpirun
long = pytest.mark.long
# A round is a launch of one rank on each host.
ONE_LAUNCH = "-k", "efficiency"
CUT_OFF = (
    r"(rank 1 on node2 failed in phase '\w+': ConnectionError: its|the launch failed in phase "
    r"'\w+': it ended: the slot of rank 1 on node2 is gone: its) host does not answer any more"
)


def start(hosts: Hosts, arguments: list[str], **variables: str) -> subprocess.Popen[str]:
    """Start a session on a slot of each host."""
    slots = [MPIRUN, "--host", "node1:1,node2:1", "-np", "2"]
    shell = {"OMPI_MCA_plm_rsh_agent": str(hosts.remote_shell)}
    command = [*slots, str(BIN / "pytest"), "perf/", *arguments]
    return hosts.start("node1", command, {**environment_of_sessions(), **shell, **variables})


def read_until(session: subprocess.Popen[str], text: str) -> str:
    """Return the output of a session up to the line with this text."""
    assert session.stdout is not None
    output = ""
    while text not in output:
        line = session.stdout.readline()
        assert line, output
        output += line
    return output


@pytest.mark.parametrize(
    ("launcher", "own", "name"),
    [
        ("mpirun", f"--workloads={ROOT / 'examples' / 'keras_network.py'}", "small_cnn"),
        pytest.param(
            "agents",
            f"--script={ROOT / 'tests/support/scripts/loop.py'} --steps 9999",
            "loop.py-steps-9999",
            marks=long,
        ),
    ],
    ids=["network", "script"],
)
def test_what_is_the_users_own_is_measured_on_two_hosts_although_a_cut_heals_in_time(
    options: list[str], tmp_path: Path, launcher: str, own: str, name: str
) -> None:
    asked = [*options, own, f"--launcher={launcher}", *ONE_LAUNCH]
    with two_hosts(tmp_path) as hosts:
        session = start(hosts, asked, HOROVOD_CYCLE_TIME="2")
        output = read_until(session, "round 1 of 8")
        hosts.wait_for("node2", "hvd-rank-1")
        hosts.cut()
        time.sleep(5)
        hosts.heal()
        output += session.communicate(timeout=120)[0]
        assert session.returncode == 6, output
        assert ended(hosts.processes())
    assert "hosts: node1 (1 slot), node2 (1 slot); network 10.77.0.0/24 (eth0 on node1)" in output
    assert "mpirun --host node1:1,node2:1 -np 2 pytest" in output, "the command to go on"
    case = case_on_two_hosts(tmp_path)
    assert case["name"] == f"communication[{name}-np2]"
    (measured,) = case["outcome"]["rounds"]
    for launch in measured["launches"]:
        for rank in launch["evidence"]:
            assert rank["settings"]["HOROVOD_CYCLE_TIME"] == "2"


@pytest.mark.parametrize(
    ("launcher", "lose", "reason"),
    [
        # Some of the ranks may not have connected yet.
        (
            "mpirun",
            lambda hosts: hosts.kill("node2"),
            r"(rank 1 on node2 failed in phase '\w+': the process ended without a report|"
            r"the launch failed in phase '\w+': it ended: the slot of rank 1 on node2 is gone)",
        ),
        pytest.param("mpirun", Hosts.cut, CUT_OFF, marks=long),
        pytest.param("agents", Hosts.cut, CUT_OFF, marks=long),
    ],
    ids=["dead", "cut", "cut-agents"],
)
def test_a_session_outlives_a_host(
    options: list[str], tmp_path: Path, launcher: str, lose: Callable[[Hosts], None], reason: str
) -> None:
    two = ["--models=alexnet_s,vgg_16_s", "--budget=1"]
    asked = [*options, *two, f"--launcher={launcher}", *ONE_LAUNCH]
    with two_hosts(tmp_path) as hosts:
        session = start(hosts, asked)
        hosts.wait_for("node2", "hvd-rank-1")
        lose(hosts)
        output = read_until(session, "exit status")
        more, _ = session.communicate(timeout=60)
        assert session.returncode == 1, output + more
        assert ended(hosts.processes()), "nothing is left, on the lost host neither"
    told = " ".join(output.split())
    assert re.search(f"horovod@2: {reason}", told), told
    assert "horovod@2: not started: the slot of rank 1 on node2 is gone" in told
    assert "report: " in output
    assert sorted(verdicts(tmp_path).values()) == ["FAIL", "NOT RUN"]


@long
@pytest.mark.parametrize("killed", ["outer_mpirun", "orterun"])
def test_a_session_ends_with_its_mpirun_on_both_hosts(
    options: list[str], tmp_path: Path, killed: str
) -> None:
    with two_hosts(tmp_path) as hosts:
        session = start(hosts, [*options, *ONE_LAUNCH])
        hosts.wait_for("node2", "hvd-rank-1")
        children = Path(f"/proc/{session.pid}/task/{session.pid}/children").read_text().split()
        programs = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in children}
        orterun = next(pid for pid, words in programs.items() if "orterun" in words.split("\0")[0])
        os.kill(int(orterun) if killed == "orterun" else session.pid, signal.SIGKILL)
        assert ended(hosts.processes())
        session.communicate(timeout=20)
        assert session.returncode != 1


def test_a_host_with_another_stack_is_refused(options: list[str], tmp_path: Path) -> None:
    package = distribution("horovod")
    installed = Path(str(package.locate_file(f"horovod-{package.version}.dist-info")))
    other = shutil.copytree(installed, tmp_path / installed.name, copy_function=shutil.copy)
    metadata = (other / "METADATA").read_text()
    changed = metadata.replace(f"Version: {package.version}", "Version: 0.1")
    (other / "METADATA").write_text(changed)
    os.utime(other)
    with two_hosts(tmp_path) as hosts:
        hosts.replace("node2", installed, other)
        session = start(hosts, [*options, *ONE_LAUNCH])
        output, _ = session.communicate(timeout=120)
        assert session.returncode == 4, output
        assert ended(hosts.processes())
    (line,) = [each for each in output.splitlines() if "ERROR" in each]
    assert "node2 has another stack" in line
    assert f"horovod: {package.version} -> 0.1; run `make env` in the checkout of node2" in line
    assert documents(tmp_path) == {}


@long
def test_a_compared_script_changes_no_file_on_either_host(tmp_path: Path) -> None:
    own, kept = tmp_path / "own", tmp_path / "kept"
    for directory in (own, kept):
        directory.mkdir()
    for rank in range(2):
        (kept / f"{rank}.bin").write_bytes(b"old")
    text = (ROOT / "tests/support/scripts/loop.py").read_text()
    writes = f"""hvd.init()
try:
    tf.io.write_file(f"{kept}/{{hvd.rank()}}.bin", "new")
    read = tf.io.read_file(f"{kept}/{{hvd.rank()}}.bin").numpy()
    print(f"absolute {{hvd.rank()}} {{read}}\\n", end="")
except tf.errors.PermissionDeniedError:
    print(f"refused {{hvd.rank()}}\\n", end="")
tf.io.write_file(f"relative-{{hvd.rank()}}.bin", "new")
"""
    (own / "train.py").write_text(text.replace("hvd.init()\n", writes, 1))
    script = [str(BIN / "python"), str(own / "train.py"), "--steps=50"]
    ranks = [MPIRUN, "--host", "node1:1,node2:1", "-np", "2", "-x", "LD_LIBRARY_PATH", *script]
    asked = ["--against=FOO=1", "--steps=40", "--budget=0.01", f"--results={tmp_path}"]
    with two_hosts(tmp_path) as hosts:
        shell = {"OMPI_MCA_plm_rsh_agent": str(hosts.remote_shell)}
        command = [str(BIN / "hvdperf"), "run", *asked, "--", *ranks]
        # All directories beside that of temporary files are mounted, and /tmp may have hundreds.
        environment = {**environment_of_sessions(), **shell, "TMPDIR": str(CACHE)}
        process = hosts.start(
            "node1", ["sh", "-c", f'cd {own} && exec "$@"', "sh", *command], environment
        )
        output, _ = process.communicate(timeout=200)
        assert ended(hosts.processes())
    assert "only 1 round" in output
    (said, *_) = sorted(tmp_path.glob("scripts/*/1-0/output.txt"))
    assert "absolute 0 b'new'" in said.read_text(), "in a namespace, and nobody else sees it"
    assert "refused 1" in said.read_text()
    assert "AutoGraph could not" not in said.read_text(), "it has temporary files"
    assert [path.name for path in own.iterdir()] == ["train.py"]
    assert {path.read_bytes() for path in kept.iterdir()} == {b"old"}
