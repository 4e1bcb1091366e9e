"""Sessions that were measured and judged once, with all that their ranks reported."""

from __future__ import annotations

import tarfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from hvdperf.records.archive import Archive, read_session

FILE = Path(__file__).parents[1] / "judge" / "recorded" / "sessions.tar.xz"


@cache
def recorded_sessions() -> tuple[Archive, ...]:
    """Return the sessions of tests/judge/recorded, by name. Some of their cases were left out."""
    with TemporaryDirectory() as scratch:
        with tarfile.open(FILE) as packed:
            packed.extractall(scratch, filter="data")
        return tuple(read_session(path) for path in sorted(Path(scratch).iterdir()))
