"""Where ranks share memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hvdperf.machine import space
from hvdperf.machine.space import (
    AT_LEAST,
    free_bytes,
    shared_memory_directory,
    shared_memory_needed,
)

GIB = 1 << 30


@pytest.fixture
def free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Free bytes of the two places, by name; a root with both."""
    sizes = {"shm": GIB, "tmp": GIB}
    monkeypatch.setattr(space, "free_bytes", lambda where: sizes[where.name])
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "tmp"))
    return sizes


@pytest.mark.parametrize(
    ("memory", "files", "chosen"),
    [
        (GIB, 2 * GIB, "shm"),
        (AT_LEAST, GIB, "shm"),
        (AT_LEAST - 1, GIB, "tmp"),
        (0, GIB, "tmp"),
        (AT_LEAST // 2, AT_LEAST // 4, "shm"),
    ],
)
def test_memory_is_shared_in_memory_if_it_has_room(tmp_path, free, memory, files, chosen):
    free |= {"shm": memory, "tmp": files}
    assert shared_memory_directory(2, root=tmp_path).name == chosen


def test_more_ranks_need_more(tmp_path, free):
    free["shm"] = shared_memory_needed(64)
    assert shared_memory_directory(64, root=tmp_path).name == "shm"
    assert shared_memory_directory(65, root=tmp_path).name == "tmp"


def test_what_does_not_exist_has_no_room(tmp_path):
    assert free_bytes(tmp_path / "nowhere") == 0
    assert free_bytes(tmp_path) > 0 or os.statvfs(tmp_path).f_bavail == 0
