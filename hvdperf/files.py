"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, text: str) -> Path:
    """Write a file in one piece: readers see the whole text or the earlier file.

    Line ends are written as they are. After an OSError the earlier file remains.
    """
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
