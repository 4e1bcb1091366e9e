"""Files that are written whole or not at all."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, content: str | bytes, mode: int = 0o666) -> Path:
    """Write a file in one piece: readers see the whole content or the earlier file.

    mode: permissions of a new file, before the umask. Text is written as UTF-8, with its line
    ends as they are. After an OSError the earlier file remains. Raises OSError also if the path is
    a device, a pipe or the like, which a file would replace.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "exists and is not a regular file", str(path))
    partial = path.with_name(f"{path.name}.partial")
    try:

        def opened(name: str, flags: int) -> int:
            return os.open(name, flags, mode)

        with open(partial, "wb", opener=opened) as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    except OSError:
        # On a full disk the next file needs the room.
        with suppress(OSError):
            partial.unlink()
        raise
    return path


def write_record(path: Path, record: object) -> Path:
    """Write a record as JSON. If it cannot be written, raise OSError and leave what was there."""
    # Imported only here, because a slot, which writes no record, starts faster without it.
    from hvdperf.json_records import encode

    return write_whole(path, encode(record).decode())
