"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, text: str) -> Path:
    """Write in one piece: readers see all of it or what was there before, which an OSError leaves.
    Line ends stay as they are."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        with open(partial, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    except OSError:
        # On a full disk the next file needs the room.
        with suppress(OSError):
            partial.unlink()
        raise
    return path
