"""The noise record of a machine: the variance between its launches, session by session.

An early look has to know how much two launches differ by chance alone, which three rounds cannot
show. The record is kept in results/machines/<machine>.json, apart from the documents of sessions,
because the form of these documents may change.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from statistics import quantiles

from hvdperf.files import write_whole
from hvdperf.json_records import Unreadable, decode, encode
from hvdperf.machine.host import Machine
from hvdperf.machine.placement import Slot, is_oversubscribed
from hvdperf.paths import shown
from hvdperf.stats import RoundMoments
from hvdperf.verdict import UNKNOWN_LAUNCH_SD, Noise

# The number of latest sessions that count, and the fewest that are enough.
LATEST, FEWEST = 20, 4
# Floor of the assumed standard deviation between launches, which is else taken from the upper
# quartile of the sessions' variances.
LEAST_LAUNCH_SD = 0.02


class Load(Enum):
    """The way in which ranks share the machine. How much launches differ depends on it."""

    ONE_REPLICA = "one replica"
    SEVERAL = "several replicas"
    OVERSUBSCRIBED = "more replicas than cores or devices"


def load_of(world_size: int, slots: Sequence[Slot]) -> Load:
    if world_size == 1:
        return Load.ONE_REPLICA
    return Load.OVERSUBSCRIBED if is_oversubscribed(slots, world_size) else Load.SEVERAL


# The variance between launches, by load: an unbiased estimate, which can be negative.
Variances = Mapping[Load, float]


@dataclass(frozen=True)
class Sessions:
    """The file of a machine. launch_variance, rounds: by the name of the session, in the order of
    names."""

    launch_variance: Mapping[str, Variances] = field(default_factory=dict)
    rounds: Mapping[str, RoundMoments] = field(default_factory=dict)


@dataclass(frozen=True)
class MachineRecord:
    """The noise record of one machine. problem: a line that says why its file, at `path`, cannot be
    read; "" if it was read or does not exist."""

    path: Path
    known: Sessions = Sessions()
    problem: str = ""

    def noise(self, load: Load, correlation: float) -> Noise:
        """Return the noise that an early look assumes for a comparison under this load.
        correlation: between a turn and the next one of the same launch."""
        sessions = self.known.launch_variance.values()
        seen = [found[load] for found in sessions if load in found][-LATEST:]
        of_rounds = self.correlation_of_rounds
        if len(seen) < FEWEST:
            return Noise(UNKNOWN_LAUNCH_SD, correlation, of_rounds=of_rounds)
        *_, variance = quantiles([max(value, 0.0) for value in seen], n=4, method="inclusive")
        source = f"{len(seen)} earlier sessions of this machine, {load.value}"
        launch_sd = max(LEAST_LAUNCH_SD, math.sqrt(variance))
        return Noise(launch_sd, correlation, source, of_rounds)

    @property
    def correlation_of_rounds(self) -> float:
        """Return the correlation of neighbouring rounds, pooled over sessions and loads; 0 with
        fewer than FEWEST sessions."""
        rounds = self.known.rounds.values()
        return sum(rounds, RoundMoments()).correlation if len(rounds) >= FEWEST else 0.0

    def add(self, session: str, variances: Variances, rounds: RoundMoments) -> None:
        """Write the file with this session, in place of an earlier part of the same session.

        Only the LATEST sessions are kept. Without variances nothing is written. Raises OSError.
        """
        if not variances:
            return
        every = {**self.known.launch_variance, session: variances}
        kept = sorted(every)[-LATEST:]
        moments = {**self.known.rounds, session: rounds}
        document = Sessions(
            {name: every[name] for name in kept},
            {name: moments[name] for name in kept if name in moments},
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, encode(document).decode())


def read_record(results: Path, machine: Machine) -> MachineRecord:
    """Return the record of this machine below a directory of results, or an empty record if none
    can be read."""
    path = results / "machines" / f"{machine_name(machine)}.json"
    try:
        return MachineRecord(path, decode(path.read_bytes(), Sessions))
    except FileNotFoundError:
        return MachineRecord(path)
    except (OSError, Unreadable) as error:
        why = error.strerror if isinstance(error, OSError) else "not in the format of this suite"
        problem = f"{shown(path)}: {why}; this machine's earlier sessions are ignored"
        return MachineRecord(path, problem=problem)


def machine_name(machine: Machine) -> str:
    """Return a name that machines of one kind share, such as `amd-epyc-2-cores`."""
    gpus = sorted({gpu.name or "gpu" for gpu in machine.gpus})
    device = " ".join([f"{len(machine.gpus)}", *gpus]) if gpus else machine.cpu_model
    words = f"{device} {len(machine.cores)} cores"
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
