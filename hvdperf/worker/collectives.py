"""The timing of collective operations, through the transport of the rank's strategy."""

import time
from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Protocol

import numpy as np

from hvdperf.worker.probe import mpi_library_version
from hvdperf.worker.protocol import Phase
from hvdperf.worker.session_link import Driver

Array = Any  # of NumPy, float32 with one axis
# Runs an operation and returns this rank's result, one array per tensor.
Exchange = Callable[[], Sequence[Any]]
BYTES_OF_A_NUMBER = 4
# Period of the numbers that are exchanged. Their sums over all ranks are exact in float32 at any
# world size below 5,000.
PERIOD = 251


class Unavailable(Exception):
    """There is no transport for tensors. The message gives the reason in one line."""


class Buffers(NamedTuple):
    """The buffers of a rank, each of shape [numbers of all tensors].

    sent: the numbers that the rank hands over. received: room for the numbers that it gets.
    """

    sent: Array
    received: Array


class Transport(Protocol):
    """The part of a trainer that carries out collective operations."""

    rank: int
    world_size: int

    def gradient_elements(self) -> Sequence[int]:
        """Return how many numbers each gradient tensor of the model has."""

    def exchange(self, collective: str, elements: Sequence[int], buffers: Buffers) -> Exchange:
        """Return a function that exchanges all tensors at once. elements: the size of each tensor.
        A rank hands the first part of its buffer to an allgather. Raises Unavailable."""

    def barrier(self) -> None: ...


def measure(
    trainer: Transport,
    driver: Driver,
    collective: str,
    tensor_bytes: Sequence[int],
    repeats: int,
    check: bool,
) -> dict[str, Any]:
    """Exchange float32 tensors `repeats` times, and time each exchange from a barrier on.

    collective: a value of Collective (plan/arms.py). tensor_bytes: of each tensor; empty for
    all gradients of the model. check: compare the resulting numbers with the expected ones, once
    and untimed.

    Returns bytes (of all tensors), tensors, seconds (one per repeat, on this rank's clock), library
    (the version of the MPI library in this process, None without one) and problem (in words, or
    "").
    """
    driver.enter(Phase.COLLECTIVE)
    elements = _elements(trainer, collective, tensor_bytes)
    count, problem = sum(elements), ""
    seconds: list[float] = []
    try:
        run = trainer.exchange(
            collective, elements, _buffers(count, trainer.rank + driver.fault.offset())
        )
        if check:
            results = [np.asarray(tensor) for tensor in run()]
            result = results[0] if len(results) == 1 else np.concatenate(results)
            wanted = expected(collective, count, trainer.rank, trainer.world_size)
            problem = difference(result, wanted)
            del results, result, wanted
        for _ in range(repeats):
            driver.steps_begun += 1
            trainer.barrier()
            begin = time.perf_counter()
            result = run()
            seconds.append(time.perf_counter() - begin)
            del result  # so that it is not freed while the next one is timed
    except Unavailable as error:
        problem = str(error)
    return {
        "bytes": BYTES_OF_A_NUMBER * count,
        "tensors": len(elements),
        "seconds": seconds,
        "library": mpi_library_version(),
        "problem": problem,
    }


def _elements(trainer: Transport, collective: str, tensor_bytes: Sequence[int]) -> Sequence[int]:
    """Return the number of elements of each tensor. For operations that split a tensor among ranks
    it is a multiple of the world size."""
    if not tensor_bytes:
        return trainer.gradient_elements()
    counts = [size // BYTES_OF_A_NUMBER for size in tensor_bytes]
    if collective in ("allgather", "reducescatter"):
        counts = [count // trainer.world_size * trainer.world_size for count in counts]
    return counts


# The numbers that go in and the numbers that must come out -------------------------------------

_kept: dict[float, Buffers] = {}


def _buffers(count: int, offset: float) -> Buffers:
    """Return buffers of `count` numbers, which are kept for the next call: memory that is new to a
    process costs more than an exchange."""
    if offset not in _kept or len(_kept[offset].sent) < count:
        _kept[offset] = Buffers(pattern(count) + np.float32(offset), np.zeros(count, np.float32))
    return Buffers(*(buffer[:count] for buffer in _kept[offset]))


def pattern(count: int) -> Array:
    """Return the numbers that rank 0 sends, float32 [count]. Rank r adds r to each of them."""
    return np.resize(np.arange(PERIOD, dtype=np.float32), count)


def expected(collective: str, count: int, rank: int, world_size: int) -> Array:
    """Return the numbers that a rank must end with if each rank has sent its pattern."""
    result, part = pattern(count), count // world_size
    if collective == "broadcast":
        return result
    if collective == "allgather":
        return np.concatenate([result[:part] + np.float32(each) for each in range(world_size)])
    result *= world_size
    result += world_size * (world_size - 1) / 2
    return result[rank * part : (rank + 1) * part] if collective == "reducescatter" else result


def difference(result: Array, wanted: Array) -> str:
    """Return the first difference of a result from the wanted one, in words, or ""."""
    if result.shape != wanted.shape:
        return f"the result has {len(result)} numbers instead of {len(wanted)}"
    if np.array_equal(result, wanted):
        return ""
    first = int(np.flatnonzero(result != wanted)[0])
    return f"number {first} is {result[first]:g} instead of {wanted[first]:g}"
