"""Real file systems that are full or cannot be written, by which root is stopped, too."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(path: Path, size: str = "256k") -> Iterator[Path]:
    """Yield a path with a file system of that size, unmounted at the end. The test is skipped if
    nothing can be mounted."""
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def make_read_only(path: Path) -> None:
    """Make a file system read-only. path: from small_disk."""
    subprocess.run(["mount", "-o", "remount,ro", str(path)], check=True)


def fill(path: Path) -> Path:
    """Take all room that is left, and return the file that has it."""
    ballast = path / "ballast"
    with open(ballast, "wb", buffering=0) as stream:
        try:
            while True:
                stream.write(bytes(1024))
        except OSError:
            return ballast


def write_anew(path: Path, content: bytes) -> None:
    """Write a file in the place of one that may be there. To cut that one to nothing would wait for
    the disk, which takes milliseconds each time."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)
