"""The document of a night: what was measured and judged, in one small file.

results/nights/<series>/<date>.json is written after every step, so a night that is killed can go
on. A series is a name for nights that belong together; their machine, stack and settings may
change, and each night has them. Where each node measures itself, a night has a document a node,
<date>.<node>.json, and read_nights makes one night of them.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from hvdperf.errors import UserError, refusing
from hvdperf.files import write_whole
from hvdperf.json_records import Moment, Positive, Unreadable
from hvdperf.paths import shown
from hvdperf.plan.arms import SWEEP
from hvdperf.records.archive import read_document
from hvdperf.records.documents import SUMMARY_FORMAT, AboveZero, Kind, Row, Summary
from hvdperf.records.outcome import Measure
from hvdperf.timeline import store
from hvdperf.timeline.store import NIGHTS
from hvdperf.verdict import Verdict, counted, worst

FORMAT = 2
# Hours after the end of a night from which the next one is missing: a day, and four hours of delay.
# A watch at noon sees by then that a night which should have begun at 1 o'clock has not ended.
OVERDUE_H = 28.0
# Where nights are published.
BRANCH = "hvdperf-nights"
# A hundred years.
MOST_DAYS = 36500
# In the directory of a series: what was accepted, a line each.
ACCEPTED = "accepted.txt"
# What is asked of a training script (hvdperf run --series): its command, by this name.
SCRIPT = "script"
_SERIES = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# A network and a world size.
Throughput = tuple[str, int]


@dataclass(frozen=True)
class Night:
    """One night of a series.

    night: its date, in UTC. command: how to repeat it. against: the reference stack's interpreter,
    or "". probe: how much the machine did a second without Horovod, by name
    (hvdperf.machine.probe). unfit: what made the machine unfit, one line each. reason: why a
    session is missing; "" if none is. ended_at: None until everything was measured. node: as of its
    parts; "" of several nodes.
    """

    format: Positive
    series: str
    night: date
    began_at: Moment
    command: str
    against: str = ""
    probe: Mapping[str, AboveZero] = field(default_factory=dict)
    unfit: tuple[str, ...] = ()
    parts: tuple[Summary, ...] = ()
    reason: str = ""
    ended_at: Moment | None = None
    node: str = ""

    @property
    def script(self) -> str:
        """Return the command of the training script that a night measured; "" if it measured the
        suite's networks."""
        return next((part.asked[SCRIPT] for part in self.parts if SCRIPT in part.asked), "")

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that measured themselves, by name."""
        return tuple(sorted({part.node for part in self.parts if part.node}))

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the hosts of the night's session; () if each node measured itself."""
        part = self.part()
        return part.hosts if part is not None and not part.node else ()

    @property
    def disturbed(self) -> str:
        """Return what disturbed the night's own session, or those of all nodes; "" if one was
        not."""
        own = [part.disturbed for part in self.parts if part.kind is Kind.OWN]
        return own[0] if own and all(own) else ""

    def part(self, kind: Kind = Kind.OWN, node: str = "") -> Summary | None:
        """Return the session of a kind; None without it. node: whose, if each has its own; "" for
        the first."""
        for part in self.parts:
            if part.kind is kind and node in ("", part.node):
                return part
        return None

    @property
    def is_weekend(self) -> bool:
        return self.night.isoweekday() in (6, 7)

    @property
    def speeds(self) -> dict[Throughput, tuple[float, ...]]:
        """Return the samples per second of all replicas, one figure a launch, by network and world
        size, of all nodes."""
        return self.figures(Measure.SPEED)

    def figures(self, measure: Measure) -> dict[Throughput, tuple[float, ...]]:
        """Return the figures of launches, one each, by network and world size, of all nodes."""
        found: dict[Throughput, tuple[float, ...]] = {}
        for own in self.by_node(measure).values():
            for key, launches in own.items():
                found[key] = (*found.get(key, ()), *launches)
        return found

    def by_node(self, measure: Measure) -> dict[str, dict[Throughput, tuple[float, ...]]]:
        """Return the figures of launches of each node. What was measured again counts like what was
        measured first, and does not replace it, unless the second measurement was disturbed: then
        only the first counts."""
        found: dict[str, dict[Throughput, tuple[float, ...]]] = {}
        for part in self.parts:
            if part.kind.is_again and part.disturbed:
                continue
            for each in part.of(measure):
                own, key = found.setdefault(part.node, {}), (each.model, each.world_size)
                own[key] = (*own.get(key, ()), *each.values)
        return found

    def repeat(self, part: Summary, row: Row) -> str:
        """Return the command that measures a case again, with the others of its network and world
        size that have the same name in brackets."""
        case = row.name.partition("[")[2].removesuffix("]") or row.name
        against = f" --against {shlex.quote(self.against)}" if part.kind.is_gate else ""
        # A sweep of collective operations belongs to no network.
        model = "" if row.model == SWEEP.model else f" --models {row.model}"
        return f"{self.command}{against}{model} --world-sizes {row.world_size} -k {case}"

    @property
    def cases(self) -> list[tuple[Summary, Row]]:
        return [(part, row) for part in self.parts for row in part.cases]

    @property
    def verdict(self) -> Verdict:
        """Return the worst verdict. A session that is missing or did not end is NOT RUN."""
        words = [row.verdict for _, row in self.cases]
        if self.reason or not self.is_whole:
            words.append(Verdict.NOT_RUN)
        return worst(words)

    @property
    def is_whole(self) -> bool:
        """Return whether there are sessions, and all of them ended."""
        return bool(self.parts) and all(part.has_ended for part in self.parts)

    @property
    def told(self) -> str:
        """Return the number of cases by verdict, or of throughputs if there is no case, and why a
        session is missing."""
        words = [row.verdict for _, row in self.cases]
        counts = counted({word: words.count(word) for word in words})
        if not counts and self.speeds:
            counts = f"throughputs: {len(self.speeds)}"
        ended = "" if self.is_whole or self.reason else "a session did not end"
        return "; ".join(filter(None, (counts, self.reason, ended)))


def machine_of(part: Summary) -> object:
    """Return the kind of machine and hosts of a session. Drivers, clocks and settings are no part
    of it: they are what makes a series slower."""
    known = part.fingerprint
    names = (known["method"], known["cpu_model"], known["cores"], known["gpus"])
    return (*names, tuple(known["gpu_model"]), len(part.hosts), bool(part.node))


def check_series(name: str, what: str = "--series") -> str:
    """Return the name. Raises UserError for one that is no file name."""
    if not _SERIES.fullmatch(name):
        raise UserError(
            f"{what} {name}: is not a name; use up to 64 letters, digits, '.', '_' and '-'"
        )
    return name


def path_of(directory: Path, series: str, night: date, node: str = "") -> Path:
    """Return the file of a night, or of a node's. directory: of all series, as results/nights."""
    return directory / series / f"{stem(night, node)}.json"


def stem(night: date, node: str) -> str:
    """Return the name of a document."""
    return f"{night}.{node}" if node else f"{night}"


def write_night(directory: Path, night: Night) -> Path:
    """Write the document. Raises UserError if that is impossible."""
    return store.write(path_of(directory, night.series, night.night, night.node), night)


def read_night(path: Path) -> Night:
    """Read a document. Raises Unreadable if it is broken, not that of its path, or of a date to
    come, after which a series would never be missing."""
    night = read_document(path, Night, FORMAT, {1: _upgraded})
    if night.night > datetime.now(UTC).date() + timedelta(days=1):
        raise Unreadable(f"its night, {night.night}, has not come yet")
    if (night.series, stem(night.night, night.node)) != (path.parent.name, path.stem):
        raise Unreadable(f"it is of {night.series}, {stem(night.night, night.node)}")
    return night


def _upgraded(night: dict[str, Any]) -> object:
    """Return the content of a night of format 1, whose sessions were no summaries."""

    def summary(part: dict[str, Any]) -> object:
        kind = "gate " * bool(part["is_gate"]) + "again" * bool(part.get("again"))
        speeds = (
            {**each, "measure": Measure.SPEED.value, "values": each["samples_per_second"]}
            for each in part.get("speeds", [])
        )
        costs = ({**each, "values": each["figures"]} for each in part.get("costs", []))
        return {
            **part,
            "format": SUMMARY_FORMAT,
            "written_at": night.get("ended_at") or night["began_at"],
            "kind": kind.strip() or Kind.OWN.value,
            "results": [*speeds, *costs],
        }

    return {**night, "format": FORMAT, "parts": [summary(part) for part in night.get("parts", [])]}


def of_all_nodes(nights: Sequence[Night]) -> Night:
    """Return one night of the documents of a date, a node each. It has ended when the last of them
    has."""
    if len(nights) == 1:
        return nights[0]
    ended = [night.ended_at for night in nights]

    def told(of: Callable[[Night], Iterable[str]]) -> tuple[str, ...]:
        return tuple(f"{night.node}: {line}" for night in nights for line in of(night) if line)

    return replace(
        nights[0],
        began_at=min(night.began_at for night in nights),
        probe={
            f"{night.node}: {name}": speed
            for night in nights
            for name, speed in night.probe.items()
        },
        unfit=told(lambda night: night.unfit),
        parts=tuple(part for night in nights for part in night.parts),
        reason="; ".join(told(lambda night: [night.reason])),
        ended_at=None if None in ended else max(filter(None, ended)),
        node="",
    )


@dataclass(frozen=True)
class Accepted:
    """What somebody accepted: that what became slower up to this night stays. why: in a line."""

    night: date
    why: str


@dataclass(frozen=True)
class Nights:
    """The nights of all series, in the order of dates. left_out: a line for each file that cannot
    be read. accepted: by series, as read_accepted returns it."""

    of: Mapping[str, Sequence[Night]]
    left_out: tuple[str, ...] = ()
    accepted: Mapping[str, tuple[Accepted, ...]] = field(default_factory=dict)


def joined(nights: Iterable[Night]) -> list[Night]:
    """Return one night of the documents of each series and date, in their order."""
    dates: dict[tuple[str, date], list[Night]] = {}
    for night in nights:
        dates.setdefault((night.series, night.night), []).append(night)
    return [of_all_nodes(each) for each in dates.values()]


def read_nights(directory: Path, series: Iterable[str] = (), node: str = "") -> Nights:
    """Read all nights below a directory, or those of the named series. node: only what this node
    measured of itself. Raises UserError if a named series has none."""
    wanted, paths = list(series), store.documents(directory)
    chosen = [path for path in paths if not wanted or path.parent.name in wanted]
    nights, left_out = store.read_all(chosen, read_night)
    found: dict[str, list[Night]] = {}
    for night in joined(night for night in nights if not node or night.node == node):
        found.setdefault(night.series, []).append(night)
    for name in wanted:
        if name not in found:
            known = ", ".join(sorted({path.parent.name for path in paths})) or "none"
            raise UserError(f"--series {name}: has no night in {shown(directory)}; known: {known}")
    accepted = {name: read_accepted(directory / name) for name in found}
    return Nights(
        {name: found[name] for name in wanted or found}, tuple(store.shortened(left_out)), accepted
    )


def read_accepted(series: Path) -> tuple[Accepted, ...]:
    """Return what was accepted, oldest first. series: its directory. A line without a date is left
    out."""
    try:
        lines = (series / ACCEPTED).read_text().splitlines()
    except (OSError, ValueError):
        return ()
    found = []
    for line in lines:
        night, _, why = line.partition(" ")
        with suppress(ValueError):
            found.append(Accepted(date.fromisoformat(night), why.strip()))
    return tuple(found)


def add_accepted(series: Path, *accepted: Accepted) -> None:
    """Add to what was accepted; what is there stays. Raises UserError."""
    known = read_accepted(series)
    lines = (f"{each.night} {each.why}".rstrip() for each in (*known, *accepted))
    with refusing(f"{shown(series)}: ", OSError):
        write_whole(series / ACCEPTED, "".join(f"{line}\n" for line in lines))


def accepted_until(accepted: Iterable[Accepted]) -> date:
    """Return the date up to which what became slower is accepted; date.min if there is none."""
    return max((each.night for each in accepted), default=date.min)


def remove_older(results: Path, days: int) -> Iterator[str]:
    """Remove the sessions and pages of nights that ended more than this many days ago; yield a line
    for each. Sessions that belong to no night stay, and so do the documents of nights: a year of
    them is small, and what regressions are found in. Raises UserError."""
    if not 1 <= days <= MOST_DAYS:
        raise UserError(f"--keep {days}: must be between 1 and {MOST_DAYS} days")
    limit = datetime.now(UTC) - timedelta(days=days)
    for nights in read_nights(results / NIGHTS).of.values():
        for night in nights:
            if night.ended_at is None or night.ended_at > limit:
                continue
            for part in night.parts:
                for path in (
                    results / "runs" / part.session,
                    results / "scripts" / part.session,
                    results / "report" / f"{part.session}.html",
                ):
                    if path.exists():
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
                        yield f"removed {shown(path)}"
