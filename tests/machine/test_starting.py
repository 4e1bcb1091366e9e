"""What keeps a machine from starting ranks, on made-up machines."""

from __future__ import annotations

import resource
import socket
from pathlib import Path

import pytest

from hvdperf.machine import starting
from hvdperf.machine.starting import killed_for_memory, memory_limit, missing

GROUP = "sys/fs/cgroup/slice/job"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine whose processes are in a control group within another one, which has a limit."""
    for path, text in (
        ("proc/self/cgroup", "0::/slice/job\n"),
        ("proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        ("proc/vmstat", "pgfault 7\noom_kill 2\n"),
        (f"{GROUP}/memory.events", "low 0\noom 1\noom_kill 1\n"),
        (f"{GROUP}/memory.max", "max\n"),
        (f"{GROUP}/../memory.max", f"{2 << 30}\n"),
        ("sys/class/net/lo/flags", "0x9\n"),
    ):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "dev/shm").mkdir(parents=True)
    return tmp_path


def test_a_process_that_the_kernel_killed_for_memory_is_found_with_the_limit(root):
    before = killed_for_memory(root)
    assert memory_limit(root) == 2 << 30
    assert missing(2, ["killed by signal 9"], before, root) == ""
    (root / GROUP / "memory.events").write_text("oom_kill 2\n")
    assert "2048 MiB" in missing(2, ["the process ended"], before, root)


def test_a_full_directory_is_named(root, monkeypatch):
    monkeypatch.setattr(starting, "free_bytes", lambda where: 1 << 20)
    assert "1 MiB left" in missing(2, ["No space left on device"], killed_for_memory(root), root)


@pytest.mark.parametrize(
    ("which", "said", "option"),
    [
        (resource.RLIMIT_AS, "std::bad_alloc", "ulimit -v"),
        (resource.RLIMIT_NPROC, "fork: Resource temporarily unavailable", "ulimit -u"),
    ],
)
def test_a_limit_is_named_if_a_rank_complains_of_it(root, monkeypatch, which, said, option):
    limits = {which: (4096, 4096)}
    infinite = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr("resource.getrlimit", lambda each: limits.get(each, infinite))
    killed = killed_for_memory(root)
    assert option in missing(2, [said], killed, root)
    assert missing(2, ["ValueError: wrong shape"], killed, root) == ""


@pytest.mark.parametrize(("limit", "is_named"), [("150", True), ("30000", False), ("max", False)])
def test_a_limit_of_processes_is_named_if_it_leaves_too_few(root, limit, is_named):
    (root / GROUP / "pids.max").write_text(limit)
    (root / GROUP / "pids.current").write_text("20")
    killed = killed_for_memory(root)
    assert ("processes" in missing(2, ["can't start new thread"], killed, root)) is is_named


def test_a_name_that_does_not_resolve_and_a_loopback_that_is_down_are_named(root, monkeypatch):
    killed = killed_for_memory(root)
    assert missing(2, ["killed by signal 11, SIGSEGV"], killed, root) == ""
    (root / "sys/class/net/lo/flags").write_text("0x8\n")
    assert "loopback" in missing(2, ["it ended"], killed, root)
    (root / "sys/class/net/lo/flags").write_text("0x9\n")

    def fail(*arguments: object) -> None:
        raise socket.gaierror

    monkeypatch.setattr("socket.getaddrinfo", fail)
    assert socket.gethostname() in missing(2, ["SIGSEGV"], killed, root)
