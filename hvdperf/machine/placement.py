"""Placement: the cores and the device of each replica. Pure: hosts in, slots out.

A session has one slot a rank. The number of slots on a host fixes the size of a slot: at every
world size, a replica has the share of one slot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from hvdperf.errors import UserError
from hvdperf.machine.host import Machine

# A rank that has loaded TensorFlow has 400 MiB, a part of which it shares with others.
LEAST_MEMORY_OF_A_RANK_MIB = 128


@dataclass(frozen=True)
class Offer:
    """The resources of one rank: its host, with all cores and GPUs that the host has for a session.

    Ranks on one host share them. gpus: names that CUDA_VISIBLE_DEVICES takes. model: of the GPUs,
    or else of the CPU.
    """

    rank: int
    host: str
    cores: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    model: str = ""

    @classmethod
    def of(cls, rank: int, machine: Machine) -> Offer:
        gpus = tuple(gpu.uuid for gpu in machine.gpus)
        model = " / ".join(sorted({gpu.name for gpu in machine.gpus})) or machine.cpu_model
        return cls(rank, machine.host, machine.cores, gpus, model)


@dataclass(frozen=True)
class Slot:
    """The place of one replica. oversubscribed: whether it shares a core or its device."""

    rank: int
    host: str
    cores: tuple[int, ...]
    device: str | None = None
    oversubscribed: bool = False


Item = TypeVar("Item", Offer, Slot)


def place(offers: Sequence[Offer]) -> tuple[Slot, ...]:
    """Return one slot an offer, in the order in which groups take them, which is that of ranks.

    Every slot gets an equal contiguous share of its host's cores, one core at least, and slot i of
    a host gets GPU i. More slots than cores (or than GPUs) wrap around and are marked
    oversubscribed. Raises UserError if the slots of two hosts would differ, since a figure must not
    be a mean over unlike replicas.
    """
    by_host = _by_host(sorted(offers, key=lambda offer: offer.rank))
    _refuse_unlike(by_host)
    share = _share(by_host)
    placed = [slot for mates in by_host.values() for slot in _place_on_host(mates, share)]
    return _mark_shared(sorted(placed, key=lambda slot: slot.rank))


def _by_host(items: Iterable[Item]) -> dict[str, list[Item]]:
    """Return the items by host, in the order of the hosts' first items."""
    found: dict[str, list[Item]] = {}
    for item in items:
        found.setdefault(item.host, []).append(item)
    return found


def _refuse_unlike(by_host: Mapping[str, list[Offer]]) -> None:
    """Raise UserError if hosts have unlike devices."""
    without_gpu = [host for host, mates in by_host.items() if not any(mate.gpus for mate in mates)]
    if without_gpu and len(without_gpu) < len(by_host):
        raise UserError(
            f"host {without_gpu[0]} has no GPU while others have: leave it out of the host list, "
            "or set CUDA_VISIBLE_DEVICES= (empty) everywhere to measure on the CPUs"
        )
    models = {host: mates[0].model for host, mates in by_host.items()}
    first, *others = models
    for host in others:
        if models[host] != models[first]:
            raise UserError(
                f"host {host} has {models[host]}, while {first} has {models[first]}: measure "
                "them in sessions of their own"
            )


def _share(by_host: Mapping[str, list[Offer]]) -> int:
    """Return the number of cores of a slot: the smallest share on any host, if hosts of equal size
    have unequal numbers of slots. Raises UserError for hosts of unequal size."""
    cores = {host: len(_cores(mates)) for host, mates in by_host.items()}
    shares = {host: max(1, cores[host] // len(mates)) for host, mates in by_host.items()}
    first, *others = by_host
    for host in others:
        if cores[host] != cores[first] and shares[host] != shares[first]:
            raise UserError(
                f"host {host} has {cores[host]} cores for {len(by_host[host])} slots, and {first} "
                f"has {cores[first]} for {len(by_host[first])}: leave {host} out, or give each "
                "host slots in proportion to its cores"
            )
    return min(shares.values())


def _cores(mates: Sequence[Offer]) -> tuple[int, ...]:
    """Return the cores of a host. A scheduler may have given every rank cores of its own."""
    return tuple(dict.fromkeys(core for mate in mates for core in mate.cores))


def _place_on_host(mates: Sequence[Offer], share: int) -> list[Slot]:
    cores = _cores(mates)
    gpus = tuple(dict.fromkeys(gpu for mate in mates for gpu in mate.gpus))
    return [
        Slot(
            rank=mate.rank,
            host=mate.host,
            cores=tuple(
                cores[(local_rank * share + offset) % len(cores)] for offset in range(share)
            ),
            device=gpus[local_rank % len(gpus)] if gpus else None,
        )
        for local_rank, mate in enumerate(mates)
    ]


def _mark_shared(slots: Sequence[Slot]) -> tuple[Slot, ...]:
    users = Counter((slot.host, part) for slot in slots for part in (*slot.cores, slot.device))
    return tuple(
        replace(
            slot,
            oversubscribed=any(users[slot.host, core] > 1 for core in slot.cores)
            or (slot.device is not None and users[slot.host, slot.device] > 1),
        )
        for slot in slots
    )


def place_group(slots: Sequence[Slot], world_size: int) -> tuple[Slot, ...]:
    """Return the first world_size slots, each with its own share, those of a host side by side.

    A slot is marked oversubscribed if it shares with another slot of this group. Raises UserError
    if there are fewer slots, or if world_size is below 1.
    """
    if not 1 <= world_size <= len(slots):
        raise UserError(
            f"world size {world_size} needs {world_size} slots, but this session has "
            f"{len(slots)}: start it with mpirun -np {world_size} or --np {world_size}"
        )
    hosts = _by_host(slots[:world_size]).values()
    return _mark_shared([slot for of_host in hosts for slot in of_host])


def is_oversubscribed(slots: Sequence[Slot], world_size: int) -> bool:
    """Return whether the first world_size slots have to share a core or a device."""
    return any(slot.oversubscribed for slot in place_group(slots, world_size))


def replicas_per_node(slots: Sequence[Slot], world_size: int) -> tuple[int, ...]:
    """Return the number of the first world_size slots on each of their hosts, by order of ranks."""
    return tuple(Counter(slot.host for slot in place_group(slots, world_size)).values())


def nodes(slots: Sequence[Slot], world_size: int) -> int:
    """Return the number of hosts that the first world_size slots are on."""
    return len(replicas_per_node(slots, world_size))


def local_offers(
    machine: Machine, np: int | None = None, oversubscribe: bool = False
) -> tuple[Offer, ...]:
    """Return the offers of a session without mpirun: one a GPU, or one a core without a GPU.

    np: number of offers to return instead. Raises UserError if np is below 1, or if it exceeds the
    number of GPUs (or cores) without oversubscribe.
    """
    unit, available = ("GPU", len(machine.gpus)) if machine.gpus else ("core", len(machine.cores))
    wanted = available if np is None else np
    if wanted < 1:
        raise UserError(f"--np {wanted}: a session needs at least one slot")
    if wanted > available and not oversubscribe:
        limited = machine.cpu_quota is not None and unit == "core"
        quota = f" of a CPU quota of {machine.cpu_quota:g} cores" if limited else ""
        raise UserError(
            f"--np {wanted}: {machine.host} has {available} slots, one a {unit}{quota}; ask for "
            f"fewer, or add --oversubscribe to let replicas share a {unit}"
        )
    if 0 < machine.memory_mib < wanted * LEAST_MEMORY_OF_A_RANK_MIB:
        raise UserError(
            f"--np {wanted}: {machine.host} has memory for at most "
            f"{machine.memory_mib // LEAST_MEMORY_OF_A_RANK_MIB} ranks; ask for fewer"
        )
    return tuple(Offer.of(rank, machine) for rank in range(wanted))


def cores_of(slots: Sequence[Slot]) -> tuple[int, ...]:
    """Return the cores of slots on one host, each once, ascending."""
    return tuple(sorted({core for slot in slots for core in slot.cores}))
