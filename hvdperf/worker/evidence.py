"""What a rank says of its environment and of its data, by which ranks and sessions are compared.

The module uses nothing newer than Python 3.9, because the ranks may run in an older interpreter.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hvdperf.worker.script.tap._hvdperf_recorder import OF_OTHERS, PREFIXES

# Those that say where a rank is, and so differ between ranks.
OF_A_RANK = {
    *(f"HOROVOD_{kind}{what}" for kind in ("", "LOCAL_", "CROSS_") for what in ("RANK", "SIZE")),
    *("HOROVOD_HOSTNAME", "TF_CONFIG"),
}
# The rendezvous of one launch, and the interface of a host.
_OF_A_LAUNCH = ("HOROVOD_GLOO_", "NCCL_SOCKET_IFNAME")


def settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings that all ranks of a launch should have alike."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(PREFIXES)
        and not name.startswith((*_OF_A_LAUNCH, *OF_OTHERS))
        and name not in OF_A_RANK
    }


# The hashed part of each file: its headers, and enough of the data after them.
BYTES_OF_A_FILE = 4096


def dataset_id(directory: Path, names: Sequence[str] = ()) -> str:
    """Return an id of the files in a directory, such as `6 files, 18.4 MB, 0f3a5c7e9b1d2f48`: their
    number, their total size, and a hash of names, sizes and beginnings.

    names: the files that the data set consists of, relative to the directory; a missing file does
    not count. If empty, all files count whose names do not begin with a dot. Raises OSError for a
    file that cannot be read.
    """
    known = hashlib.sha256()
    visible = (path for path in files_of(directory) if not path.name.startswith("."))
    named = (path for path in map(directory.joinpath, names) if path.is_file())
    files = sorted(named if names else visible)
    total = 0
    for path in files:
        size = path.stat().st_size
        total += size
        with open(path, "rb") as stream:
            beginning = stream.read(BYTES_OF_A_FILE)
        known.update(os.fsencode(path.relative_to(directory)) + f"\0{size}\0".encode())
        known.update(hashlib.sha256(beginning).digest())
    return f"{len(files)} files, {total / 1e6:.1f} MB, {known.hexdigest()[:16]}"


def files_of(directory: Path) -> Iterator[Path]:
    """Yield all files below a directory, also in folders that are links to elsewhere; each folder
    is visited once."""
    been = set()
    for folder, folders, names in os.walk(directory, followlinks=True):
        place = os.path.realpath(folder)
        if place in been:
            folders.clear()
            continue
        been.add(place)
        yield from (path for path in (Path(folder, name) for name in names) if path.is_file())
