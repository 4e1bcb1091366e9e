"""A text that rank 0 of an mpirun gives to its other ranks, through the PMIx server of that mpirun.

MPI could do the same. It would be imported and initialized by every rank, however, and could not be
finalized without all of them.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hvdperf.errors import UserError

# The libraries that may hold PMIx: Open MPI 4's own, or the separate one of Debian and Open MPI 5.
LIBRARIES = ("libopen-pal.so.40", "libpmix.so.2")
_KEY = b"hvdperf.session"
# Constants of pmix_common.h, which are the same in PMIx 3, 4 and 5.
_SUCCESS, _NOT_FOUND, _GLOBAL, _STRING = 0, -46, 3, 3

# Seconds for which a rank asks again for what is not there, and the pause between two requests.
FOUND_S = 60.0
_POLL_S = 0.2


class _Process(ctypes.Structure):
    _fields_ = [("namespace", ctypes.c_char * 256), ("rank", ctypes.c_uint32)]


class _Value(ctypes.Structure):
    # A union follows the type. A text takes its first 8 bytes, and no member takes more than 64.
    _fields_ = [("type", ctypes.c_uint16), ("text", ctypes.c_char_p), ("rest", ctypes.c_char * 56)]


def publish(text: str) -> None:
    """Give the text to the other ranks. Only rank 0 does. Raises UserError."""
    with _initialized() as (pmix, _):
        value = _Value(_STRING, text.encode())
        _check("PMIx_Put", pmix.PMIx_Put(ctypes.c_uint8(_GLOBAL), _KEY, ctypes.byref(value)))
        _check("PMIx_Commit", pmix.PMIx_Commit())


def look_up() -> str:
    """Wait for the text that rank 0 publishes, and return it; return "" if rank 0 ends before.
    Raises UserError."""
    with _initialized() as (pmix, process):
        first = _Process(process.namespace, 0)
        found = ctypes.POINTER(_Value)()
        no_options = None, ctypes.c_size_t(0)
        deadline = time.monotonic() + FOUND_S
        while True:
            status = pmix.PMIx_Get(ctypes.byref(first), _KEY, *no_options, ctypes.byref(found))
            if status != _NOT_FOUND:
                break
            # That is also the answer to a rank that asks while rank 0 is still starting, as happens
            # to some of 200 ranks on a busy host.
            if time.monotonic() > deadline:
                return ""
            time.sleep(_POLL_S)
        _check("PMIx_Get", status)
        return str(found.contents.text.decode())


@contextmanager
def _initialized() -> Iterator[tuple[ctypes.CDLL, _Process]]:
    """Yield the library, initialized, and the own process's name."""
    pmix, process = _library(), _Process()
    no_options = None, ctypes.c_size_t(0)
    _check("PMIx_Init", pmix.PMIx_Init(ctypes.byref(process), *no_options))
    try:
        yield pmix, process
    finally:
        # A rank that ends without this one ends its mpirun.
        pmix.PMIx_Finalize(*no_options)


def _library() -> ctypes.CDLL:
    for name in LIBRARIES:
        try:
            library = ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        if hasattr(library, "PMIx_Init"):
            return library
    raise UserError(
        f"none of {', '.join(LIBRARIES)} can be loaded, through one of which the ranks of mpirun "
        "find each other: run `. ./activate` first, or install the library of your mpirun"
    )


def _check(function: str, status: int) -> None:
    if status != _SUCCESS:
        raise UserError(
            f"{function} failed with status {status}: this rank cannot reach its mpirun; is "
            "mpirun of the same Open MPI as the libraries in LD_LIBRARY_PATH?"
        )
