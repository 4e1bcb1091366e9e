"""Whether a night is slower than the nights before it: each throughput, the mean of each network,
that of each node, and all, as a change with an interval that knows how much nights differ.

A throughput of a night is compared with its mean over the REFERENCE sound nights before the last
GAP, after the usual difference of the night's hosts is taken off. The scale of its changes is that
of its own earlier ones, moderated by those of the other throughputs (Smyth, Statistical
Applications in Genetics and Molecular Biology 3, 2004). The tails and the correlation of nights are
estimated from all throughputs; the change of all has its own estimates as well, and the worse ones
count. So a series whose nights differ much, or differ wildly now and then, finds less. Two rules
look for a fall:

- one night is far below;
- the mean of the last three nights is below.

They share FALSE_A_YEAR, the expected number of nights of a year on which a series falls although
nothing has changed; docs/error_rates.md has what that finds.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from statistics import fmean, median
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, stdtr, stdtrit

from hvdperf.timeline.lines import LEAST_CHANGE, Line

# The number of nights that a night is compared with, the newest ones that are left out because
# they are judged together with it, and the fewest sound nights before the first that is judged.
REFERENCE, GAP, FEWEST = 28, 2, 7
# The number of earlier changes that tell the scale, and how many changes the other throughputs'
# scale counts for.
_SCALES, _PRIOR = 90, 6
# The smallest fall, in ln: less is within what a machine does by itself.
LEAST_FALL = math.log1p(LEAST_CHANGE)
# Falls a year, of all rules and lines, where nothing has changed.
FALSE_A_YEAR = 0.3
_NIGHTS_A_YEAR = 365
# The shares of the throughputs, of the networks' means, of all, and of the nodes' means.
_SHARES, _SHARES_WITH_NODES = (0.25, 0.25, 0.5), (0.2, 0.15, 0.4, 0.25)
# Degrees of freedom that the tails may have. The smallest one counts that is nearly as likely as
# the likeliest: ln of the ratio of likelihoods.
_TAILS, _NEARLY = (3, 4, 5, 7, 10, 15, 30, 100), 6.0
# The change of all has heavier tails than the throughputs once these are likelier by so much, in
# ln; it is only one a night, so _NEARLY would take years. Of a change nearer than _FAR scales only
# that counts, because a scale that is too large, as the least one may be, looks like heavy tails.
_LIKELIER, _NEARLY_OF_ALL, _FAR = 0.5, 1.0, 2.0
# The correlation of one night and the next that is assumed at first, and for how many changes it
# counts; the largest that is believed.
_RHO, _RHO_COUNTS, _RHO_MOST = 0.2, 50, 0.8
# Noise is outside of the supported range with so few degrees of freedom, if ln of their likelihood
# is so far above that of normal noise, or if what all have in common has a correlation of _RHO_MOST
# over at least so many nights.
_TAIL_TOO_WILD, _SURELY, _FEWEST_OF_NOISE = 4, 3.5, 60
# All throughputs have a new level if they are above theirs by so many scales on GAP + 1 nights, and
# one throughput or network has if its own part beyond all is.
_ROSE, _ROSE_BEYOND = 2.0, 3.0
# What is further from the usual, in scales, counts as if it were so far: a wild night neither moves
# a level nor widens a scale for months.
_WILD = 4.0
# The fewest earlier changes of a throughput, or of a mean, before any of its kind is judged.
_KNOWN = 2
# The least standard deviation of a change: that of a night whose clock was read well.
_LEAST_SCALE = 0.003
# The number of nights that tell how weekends differ from other days, and how many the assumption
# counts for that they do not.
_DAYS, _FEW_DAYS = 84, 4
# A rise that lasted for fewer nights than that was no new level.
_BRIEF = 14 - GAP - 1
# The number of nights of a host that tell how nights on it differ from others, and by how much at
# most, in ln: what differs more is a bad host.
_FEW_HOSTS, _MOST_OF_HOSTS = 3, 0.08
# The distance from which on a change is worth a second measurement, in standard deviations.
_SUSPECT = 2.5
# The distance at which a fall is found in 95 %, beyond its bound, in standard deviations.
_FOUND = 1.645


class Scope(IntEnum):
    """What a change is of: a throughput, or the mean of a network, of all, or of a node."""

    THROUGHPUT = 0
    NETWORK = 1
    ALL = 2
    NODE = 3


class Key(NamedTuple):
    """A throughput, or a mean of several. name: of the network or node. world_size: of a
    throughput."""

    scope: Scope
    name: str = ""
    world_size: int = 0

    def __str__(self) -> str:
        """Return the name, such as vgg_16-np8, vgg_16, gpu05 or all."""
        return f"{self.name}-np{self.world_size}" if self.world_size else self.name or "all"

    def covers(self, line: Line) -> bool:
        """Return whether it is this throughput, or a mean of its network or of all."""
        return self == ALL or (self.name == line.model and self.world_size in (0, line.world_size))


ALL = Key(Scope.ALL)
# The throughputs of each node; "" is the name where a night has one session for all nodes.
Measured = Mapping[str, Mapping[Key, float]]
Hosts = tuple[str, ...]


@dataclass(frozen=True)
class Speed:
    """A night's change of a throughput or of a mean of several, as a ratio to what was usual.

    lower, upper: bounds (95 %). beyond: the part that is not the change of all. suspect: whether it
    is worth a second measurement.
    """

    change: float
    lower: float
    upper: float
    beyond: float
    fell: bool
    suspect: bool


@dataclass
class _Past:
    """What is known of a throughput or of a mean. recent: the last changes, in ln. waiting: the
    newest distances from the mean of the changes before, so that a drift is no noise, each with its
    difference from the one before it, the difference before that, 0 if there is none, and the known
    part of its variance; they do not count yet, because they may begin a new level. squares: of the
    earlier ones, beyond what is known. last: the newest two distances."""

    recent: deque[float] = field(default_factory=lambda: deque(maxlen=2 * FEWEST))
    waiting: deque[tuple[float, float, float, float]] = field(default_factory=deque)
    squares: deque[float] = field(default_factory=lambda: deque(maxlen=_SCALES))
    last: deque[float] = field(default_factory=lambda: deque(maxlen=2))

    def add(self, change: float, variance: float, most: float, known: float) -> None:
        """Take up a change. variance: of one from the level alone, in squares of the scale. most:
        the largest distance that counts. known: the known part of its variance."""
        distance = change
        if self.recent:
            distance -= fmean(_clipped(self.recent, most))
            variance = 1 + 1 / len(self.recent)
        distance = max(-most, min(most, distance)) / math.sqrt(variance)
        differences = (0.0, 0.0)
        if len(self.last) == 2:
            differences = distance - self.last[1], self.last[1] - self.last[0]
        self.waiting.append((distance, *differences, known))
        self.last.append(distance)
        self.recent.append(change)

    def forget(self) -> None:
        """Forget the last nights."""
        self.last.clear()
        self.recent.clear()
        self.waiting.clear()


class _Shape:
    """How heavy the tails of changes are, and how much one night is like the next."""

    def __init__(self, of_parts: _Shape | None = None) -> None:
        """of_parts: for the change of all, which is one a night, that of the throughputs: it holds
        until this one is known to be worse."""
        self._of_parts = of_parts
        self._likelihood = np.zeros(len(_TAILS))
        self._products = self._squares = 0.0

    def learn(self, changes: np.ndarray) -> None:
        """Take up changes, in scales, a row each: the change, its difference from that of the night
        before, and the difference before that, 0 if there is none."""
        self._likelihood += _log_densities(changes[:, 0], 0.0 if self._of_parts is None else _FAR)
        now, before = np.clip(changes[:, 1:], -3, 3).T
        self._products += float(now @ before)
        self._squares += float(now @ now)

    @property
    def correlation(self) -> float:
        """Return the correlation of one night and the next, 0 or more, by that of the differences
        between them, which a drift or a new level hardly touches: (correlation - 1) / 2."""
        usual = self._of_parts.correlation if self._of_parts is not None else _RHO
        products = self._products + (usual - 1) / 2 * _RHO_COUNTS
        own = 1 + 2 * products / (self._squares + _RHO_COUNTS)
        return min(_RHO_MOST, max(0.0 if self._of_parts is None else usual, own))

    @property
    def tail(self) -> int:
        """Return the degrees of freedom of the tails."""
        below = self._likelihood.max() - self._likelihood
        if self._of_parts is None:
            return _TAILS[int(np.argmax(below <= _NEARLY))]
        usual, own = self._of_parts.tail, _TAILS[int(np.argmax(below <= _NEARLY_OF_ALL))]
        return min(usual, own) if below[_TAILS.index(usual)] >= _LIKELIER else usual

    @property
    def is_too_wild(self) -> bool:
        """Return whether the tails are surely too heavy. After a few nights they may only be
        assumed to be."""
        heavy = self._likelihood[: _TAILS.index(_TAIL_TOO_WILD) + 1].max()
        return self.tail <= _TAIL_TOO_WILD and bool(heavy - self._likelihood[-1] > _SURELY)


class UsualSpeeds:
    """The speeds of a series on one kind of machine, night by night. sound: how many were kept."""

    def __init__(
        self,
        false_a_year: float = FALSE_A_YEAR,
        least: float = LEAST_FALL,
        is_ratio: bool = False,
    ) -> None:
        """false_a_year: the expected number of nights of a year on which it falls although nothing
        has changed. least: the smallest fall, in ln. is_ratio: whether the speeds are ratios to a
        reference, of which the usual one is 1 or what was accepted, whatever the nights before."""
        self._false_a_year, self._least, self._is_ratio = false_a_year, least, is_ratio
        self._levels: dict[tuple[str, Key], deque[float]] = {}
        self._anchors: dict[tuple[str, Key], float] = {}
        self._past: dict[Key, _Past] = {}
        self._shape = _Shape()
        self._shape_of_all = _Shape(self._shape)
        self.sound = 0
        self._is_weekend, self._of_all = False, 0.0
        self._of_days = deque[tuple[bool, float]](maxlen=_DAYS)
        # The hosts of the night, how nights on them usually differ, and how far it is from that.
        self._hosts, self._offset, self._residual = Hosts(), 0.0, 0.0
        # Of earlier nights: the hosts, how the night differed, and its residual.
        self._of_hosts = deque[tuple[Hosts, float, float]](maxlen=_SCALES)
        # The levels before all rose, and the number of sound nights then.
        self._lower: dict[tuple[str, Key], deque[float]] = {}
        self._rose_at = 0
        self._pending: dict[tuple[str, Key], float] = {}
        self._known: Mapping[Key, float] = {}
        self._changes: dict[Key, float] = {}
        self._counts: dict[Key, int] = {}
        self._scales: dict[Key, float] = {}
        self._sds: dict[Key, float] = {}
        self._bounds: dict[Scope, tuple[float, float]] = {}

    def compare(
        self,
        night: Measured,
        is_weekend: bool = False,
        hosts: Hosts = (),
        known: Mapping[Key, float] = MappingProxyType({}),
    ) -> dict[Key, Speed]:
        """Return the changes of a night; {} before there are FEWEST sound ones. night: samples/s of
        all replicas, by node and throughput. hosts: on which all of it was measured. known: part
        of the variance of a key, in ln, such as that of the rounds of a ratio."""
        self._is_weekend, self._hosts, self._known = is_weekend, hosts, known
        self._offset = self._host_offset()
        self._pending = {
            (node, key): math.log(speed) - self._offset
            for node, speeds in night.items()
            for key, speed in speeds.items()
        }
        if self.is_back and self.sound - self._rose_at < _BRIEF:
            # So short a rise was no new level.
            self._take(self._lower)
            self._anchors = {each: fmean(level) for each, level in self._lower.items()}
            self._lower = {}
        changes, counts, lost, shown = {}, {}, {}, {}
        for each, value in self._pending.items():
            levels = list(self._levels.get(each, ()))
            before = levels[:-GAP]
            if self._is_ratio:
                changes[each] = shown[each] = value - self._anchors.setdefault(each, 0.0)
                lost[each] = fmean([*levels[-GAP:], value]) - self._anchors[each]
                counts[each] = REFERENCE
            elif before and (not each[0] or len(before) + GAP >= FEWEST):
                usual = fmean(_clipped(before, self._wild(each[1], ALL)))
                # Three nights tell a level only so well.
                anchor = self._anchors.get(each, usual) - self._scale(each[1], ALL) / 3
                changes[each] = value - max(usual, anchor - self._least)
                # Of what has sunk, all is told.
                shown[each] = value - (anchor if usual < anchor - self._least / 2 else usual)
                lost[each] = fmean([*levels[-GAP:], value]) - anchor
                counts[each] = len(before)
        self._residual = median(changes.values() or [0.0])
        self._changes, losses, totals = map(_parts, (changes, lost, shown))
        self._counts = {key: count for (_, key), count in counts.items() if key in self._changes}
        if ALL in self._past and ALL not in self._changes:
            # Too few throughputs this night: what they do beyond all is not known.
            self._changes = {}
            return {}
        if ALL in self._changes:
            self._of_all = self._changes[ALL]
            day = self._day(is_weekend)
            self._changes[ALL] -= day
            totals[ALL] -= day
        fewest = min(counts.values(), default=0)
        self._counts |= {key: fewest for key in self._changes if key.scope is not Scope.THROUGHPUT}
        self._scales = self._known_scales()
        self._sds = {
            key: max(_LEAST_SCALE, math.sqrt(scale**2 * self._unsure(key) + known.get(key, 0.0)))
            for key, scale in self._scales.items()
        }
        self._bounds = self._bounds_by_kind()
        of_all = self._changes.get(ALL, 0.0), self._sds.get(ALL, 0.0)
        tail = self._shape_of_all.tail
        factor = float(stdtrit(tail, 0.975)) * _of_variance_1(tail)
        found = {}
        for key, change in self._changes.items():
            if key.scope not in self._bounds:
                continue
            total, sd, loss, told = change, self._sds[key], losses[key], totals[key]
            if key != ALL:
                total, sd = total + of_all[0], math.hypot(sd, of_all[1])
                loss, told = loss + losses.get(ALL, 0.0), told + totals.get(ALL, 0.0)
            # What is slower only beside others that became faster is not slower.
            fell = total < -self._least and self._fell(key, change, loss)
            low, high = math.exp(told - factor * sd), math.exp(told + factor * sd)
            far = total < -self._least and change < -_SUSPECT * self._sds[key]
            found[key] = Speed(math.exp(told), low, high, math.exp(change), fell, fell or far)
        return found

    def keep(self, without: Collection[str] = ()) -> bool:
        """Let later nights be compared with the one that was compared last. without: nodes whose
        speeds are not kept. Return whether all have a higher level, since the last GAP + 1 nights.
        """
        self._pending = {each: at for each, at in self._pending.items() if each[0] not in without}
        for node in without:
            self._changes.pop(Key(Scope.NODE, node), None)
        for key, change in self._changes.items():
            past = self._past.setdefault(key, _Past())
            known = self._known.get(key, 0.0)
            most = math.hypot(self._wild(key), _WILD * math.sqrt(known))
            past.add(change, self._unsure(key), most, known)
            if key == ALL:
                self._of_days.append((self._is_weekend, self._of_all))
                self.keep_hosts()
        rose = [key for key in self._changes if self._rose(key)]
        if ALL in rose:
            rose = list(self._changes)
        for key in rose:
            self._past[key].forget()
        if ALL in rose and not self._is_ratio:
            self._of_days.clear()
            self._lower = {
                at: deque([*level][: max(1, len(level) - GAP)], level.maxlen)
                for at, level in self._levels.items()
            }
            self._rose_at = self.sound
        settled = defaultdict[_Shape, list[list[float]]](list)
        for key in self._changes:
            past = self._past[key]
            if len(past.waiting) > GAP:
                shrunk, *differences, known = past.waiting.popleft()
                scale = max(_LEAST_SCALE, math.hypot(self._scales[key], math.sqrt(known)))
                # A change that lasts is a level, not a sign of heavy tails or of correlation.
                since = [shrunk, *(each[0] for each in past.waiting)]
                is_level = min(since) > 2 * scale or max(since) < -2 * scale
                # Before it is known how weekends differ, each is an outlier.
                is_new = key == ALL and len(self._of_days) < _DAYS // 2
                if key.scope is not Scope.NETWORK and past.squares and not is_level | is_new:
                    row = [each / scale for each in (shrunk, *differences)]
                    settled[self._shape_of(key.scope)].append(row)
                past.squares.append(shrunk**2 - known)
        for shape, rows in settled.items():
            shape.learn(np.array(rows))
        for each, value in self._pending.items():
            level = self._levels.setdefault(each, deque(maxlen=REFERENCE + GAP))
            level.append(value)
            if each[1] in rose or Key(Scope.NODE, each[0]) in rose:
                for _ in range(len(level) - GAP - 1):
                    level.popleft()
            if self._is_ratio and each[1] in rose:
                self._anchors[each] = min(0.0, fmean(level))
            elif len(level) > GAP and not self._is_ratio:
                mean = fmean(_clipped(level, self._wild(each[1], ALL)))
                # Three nights that rose may have done so by chance, so a higher level takes longer.
                least = mean - self._least / 2 if len(level) >= 2 * FEWEST else -math.inf
                self._anchors[each] = max(self._anchors.get(each, mean), least)
        self.sound += bool(self._pending)
        return ALL in rose

    def keep_hosts(self) -> None:
        """Learn from the night that was compared last how its hosts differ, and nothing else."""
        self._of_hosts.append((self._hosts, self._offset + self._residual, self._residual))

    @property
    def new_hosts(self) -> list[str]:
        """Return the hosts of the night that was compared last on which too few nights were
        measured to know how they differ. None if the night differs by more than hosts usually do,
        nor if new hosts are usual, as where each night has a container with a name of its own."""
        counts = Counter(host for hosts, _, _ in self._of_hosts for host in hosts)
        known = {host for host, count in counts.items() if count >= _FEW_HOSTS}
        on_known = sum(known.issuperset(hosts) for hosts, _, _ in self._of_hosts)
        if self._residual <= -_MOST_OF_HOSTS or 2 * on_known < len(self._of_hosts):
            return []
        return [host for host in self._hosts if host not in known]

    def _host_offset(self) -> float:
        """Return how nights on these hosts differ from others, in ln."""
        own = [change for hosts, change, _ in self._of_hosts if hosts == self._hosts]
        if not _FEW_HOSTS <= len(own) < len(self._of_hosts):
            return 0.0
        # What all nights have in common, such as a drift, is not of these hosts.
        common = median(residual for _, _, residual in self._of_hosts)
        found = (sum(own) - len(own) * common) / (len(own) + 1)
        return found if abs(found) < _MOST_OF_HOSTS else 0.0

    def _rose(self, key: Key) -> bool:
        """Return whether a throughput, or a mean, has been higher for so long that this is its
        level."""
        last = list(self._past[key].recent)[-GAP - 1 :]
        scales = _ROSE if key == ALL or ALL not in self._changes else _ROSE_BEYOND
        # Better than the reference is no level of a ratio, but better than what was accepted is.
        if len(last) <= GAP or (self._is_ratio and not any(self._anchors.values())):
            return False
        # A wild night that wears off is no level.
        return min(last) > max(scales / _WILD * self._wild(key), max(last) / 2)

    def restart(self, nights: Iterable[tuple[Measured, bool, Hosts]]) -> None:
        """Take these nights as the usual ones from here on, each with whether it is a weekend's,
        and its hosts. The scales stay as they are known."""
        self._take({})
        self._lower = {}
        nights = list(nights)
        if self._is_ratio:
            ratios = defaultdict[tuple[str, Key], list[float]](list)
            for speeds, _, _ in nights:
                for node, own in speeds.items():
                    for key, ratio in own.items():
                        ratios[node, key].append(math.log(ratio))
            self._anchors = {each: min(0.0, median(values)) for each, values in ratios.items()}
        for speeds, is_weekend, hosts in nights:
            self.compare(speeds, is_weekend, hosts)
            self.keep()

    def usual_ratio(self, key: Key) -> float:
        """Return the usual ratio to the reference: 1, or what was accepted."""
        return math.exp(self._anchors.get(("", key), 0.0))

    def _take(self, levels: Mapping[tuple[str, Key], deque[float]]) -> None:
        """Take these levels as the usual ones, and forget the last nights."""
        self._levels = dict(levels)
        self._anchors.clear()
        self._of_days.clear()
        for past in self._past.values():
            past.forget()

    @property
    def is_back(self) -> bool:
        """Return whether the night that was compared last is where all was before it rose."""
        both = [each for each in self._pending if each in self._lower and each in self._levels]
        if not both:
            return False
        now, high = (
            median(self._pending[each] - fmean(levels[each]) for each in both)
            for levels in (self._lower, self._levels)
        )
        return abs(now) < self._least and high < -self._least

    @property
    def waits(self) -> int:
        """Return the number of sound nights after which the next night is judged: those of a level,
        and then those of the changes that tell the scale. A node's level takes FEWEST nights."""
        have = min((len(level) for level in self._levels.values()), default=0)
        of_nodes = any(node for node, _ in self._levels)
        changes = max((len(p.squares) + len(p.waiting) for p in self._past.values()), default=0)
        level = max(0, (FEWEST if of_nodes else GAP + 1) - have)
        return max(FEWEST - self.sound, level + max(0, _KNOWN + GAP - changes), 0)

    def _unsure(self, key: Key, nights: int = 1) -> float:
        """Return the variance of the mean change of so many nights, in squares of the scale."""
        rho, count = self._shape_of(key.scope).correlation, self._counts[key]
        own = (1 + rho * 4 / 3 + rho**2 * 2 / 3) / 3 if nights == 3 else 1.0
        return own + (1 + rho) / (1 - rho) / count

    def _day(self, is_weekend: bool) -> float:
        """Return how such days differ from all days, in ln."""
        if not self._of_days:
            return 0.0
        changes = _clipped([change for _, change in self._of_days], self._wild(ALL))
        usual, days = fmean(changes), zip(self._of_days, changes, strict=True)
        alike = [change - usual for (day, _), change in days if day is is_weekend]
        return sum(alike) / (len(alike) + _FEW_DAYS)

    def _known_scales(self) -> dict[Key, float]:
        """Return the standard deviation of each change."""
        own = {
            key: (sum(past.squares), len(past.squares))
            for key, past in self._past.items()
            if past.squares
        }
        means = defaultdict[Scope, list[float]](list)
        for key, (total, count) in own.items():
            means[key.scope].append(total / count)
        usual = {kind: median(each) for kind, each in means.items()}
        found = {}
        for key in self._changes:
            total, count = own.get(key, (0.0, 0))
            moderated = (total + _PRIOR * usual.get(key.scope, 0.0)) / (count + _PRIOR)
            least = 0.0 if key in self._known else _LEAST_SCALE
            found[key] = math.sqrt(max(least**2, moderated))
        return found

    def _scale(self, *keys: Key) -> float:
        """Return the scale of the sum of these, as known at the last night."""
        return math.hypot(*(self._scales.get(key, 0.0) for key in keys))

    def _wild(self, *keys: Key) -> float:
        """Return the largest distance that counts for levels and scales of the sum of these."""
        is_known = len(self._past.get(keys[0], _Past()).squares) >= FEWEST
        return _WILD * self._scale(*keys) if is_known else math.inf

    def _shape_of(self, scope: Scope) -> _Shape:
        return self._shape_of_all if scope is Scope.ALL else self._shape

    def _bounds_by_kind(self) -> dict[Scope, tuple[float, float]]:
        """Return the bounds of both rules, in standard deviations, for each kind of change that is
        judged."""
        if self.sound < FEWEST:
            return {}
        known = {key.scope for key, past in self._past.items() if len(past.squares) >= _KNOWN}
        has_nodes = any(key.scope is Scope.NODE for key in self._changes)
        shares = _SHARES_WITH_NODES if has_nodes else _SHARES
        found = {}
        for kind, count in Counter(key.scope for key in self._changes).items():
            if kind in known:
                # So few levels that their bounds are computed once.
                share = shares[kind] / 2 ** math.ceil(math.log2(count))
                level = self._false_a_year / _NIGHTS_A_YEAR * share
                found[kind] = _bounds(self._shape_of(kind).tail, level)
        return found

    def _fell(self, key: Key, change: float, loss: float) -> bool:
        """Return whether a night, or several of the last three, show a fall. loss: of the last
        three nights from the highest level, in ln. What sinks little by little is no fall before it
        has lost twice the smallest one."""
        one, mean = self._bounds[key.scope]
        sd = self._sds[key]
        known = list(self._past.get(key, _Past()).recent)
        before, recent = known[-2 * GAP - 1 : -GAP], known[-GAP:]
        if change > -self._least:
            return False
        has_sunk = loss < -2 * self._least

        def is_sudden(now: list[float], earlier: list[float]) -> bool:
            return has_sunk or not earlier or fmean(now) - fmean(earlier) < -self._least

        if change < -one * sd and is_sudden([change], recent):
            return True
        # One wild night is no fall of three, and a night that is back is none.
        three_are_below = len(recent) == GAP and change < -sd and min(recent) < -sd
        if three_are_below and is_sudden([*recent, change], before):
            known = [each[-1] for each in self._past[key].waiting][-GAP:]
            rounds = (sum(known) + self._known.get(key, 0.0)) / 9
            of_three = math.sqrt(self._scales[key] ** 2 * self._unsure(key, 3) + rounds)
            return fmean([*recent, change]) < -mean * of_three
        return False

    @property
    def is_too_wild(self) -> bool:
        """Return whether the noise is outside of the range for which FALSE_A_YEAR holds: tails as
        heavy as Student's t3, or nights that are alike for weeks."""
        if self._shape.is_too_wild or self._shape_of_all.is_too_wild:
            return True
        residuals = np.array([residual for _, _, residual in self._of_hosts])
        alike = float(residuals[1:] @ residuals[:-1]) / (float(residuals @ residuals) or 1.0)
        return len(residuals) >= _FEWEST_OF_NOISE and alike >= _RHO_MOST

    def reach(self) -> dict[Key, float]:
        """Return the fall of each throughput and mean that is found on its first night in 95 %, as
        a ratio, by what was known at the last night; {} before anything is judged."""
        return {
            key: math.exp(-max(self._least, (self._bounds[key.scope][0] + _FOUND) * self._sds[key]))
            for key in self._changes
            if key.scope in self._bounds
        }


def _parts(changes: Mapping[tuple[str, Key], float]) -> dict[Key, float]:
    """Return the change of all, which is the median, and beyond it that of each network with
    several throughputs, which is their mean, that of each node, likewise, and that of each
    throughput, the median over nodes. What a night does to all of them, such as a weekend, hides
    nothing else then. Up to two throughputs stand alone."""
    by_node, by_key = defaultdict[str, list[float]](list), defaultdict[Key, list[float]](list)
    for (node, key), change in changes.items():
        by_node[node].append(change)
        by_key[key].append(change)
    if len(by_key) <= 2 and len(by_node) <= 1:
        return {key: own[0] for key, own in by_key.items()}
    of_all = median(changes.values())
    beyond = {key: median(own) - of_all for key, own in by_key.items()}
    networks = defaultdict[str, list[float]](list)
    for key, change in beyond.items():
        networks[key.name].append(change)
    found = {ALL: of_all}
    if len(networks) > 1:
        several = {model: own for model, own in networks.items() if len(own) > 1}
        found |= {Key(Scope.NETWORK, model): fmean(own) for model, own in several.items()}
    if len(by_node) > 1:
        found |= {Key(Scope.NODE, node): fmean(own) - of_all for node, own in by_node.items()}
    return found | beyond


def _clipped(values: Collection[float], most: float) -> list[float]:
    """Return the values, none further from their median than that."""
    middle = median(values)
    return [max(middle - most, min(middle + most, value)) for value in values]


_NU = np.array(_TAILS, dtype=float)
_AT_ZERO = gammaln((_NU + 1) / 2) - gammaln(_NU / 2) - np.log(np.pi * (_NU - 2)) / 2


def _log_densities(distances: np.ndarray, far: float) -> np.ndarray:
    """Return the sum over distances of ln of the density of Student's t with each of _TAILS, of
    variance 1. Those below `far` have the probability of being so near instead."""
    each = _AT_ZERO - (_NU + 1) / 2 * np.log1p(distances[:, None] ** 2 / (_NU - 2))
    if far:
        near = np.log1p(-2 * stdtr(_NU, -far * np.sqrt(_NU / (_NU - 2))))
        each = np.where(np.abs(distances[:, None]) < far, near, each)
    return np.asarray(each.sum(axis=0))


def _of_variance_1(tail: int) -> float:
    """Return what Student's t is multiplied with for a variance of 1."""
    return math.sqrt((tail - 2) / tail)


@lru_cache(maxsize=1024)
def _bounds(tail: int, level: float) -> tuple[float, float]:
    """Return how many standard deviations one night, and the mean of three, have to be below, each
    in units of its own standard deviation. Each has half of the level."""
    one = -float(stdtrit(tail, level / 2)) * _of_variance_1(tail)
    return one, _of_mean(tail, level / 2)


def _of_mean(tail: int, level: float) -> float:
    """Return the upper quantile of the mean of three nights, in its standard deviations."""
    step, size = 0.02, 2**17
    x = (np.arange(size) - size // 2) * step
    density = (1 + x**2 / tail) ** (-(tail + 1) / 2)
    density /= density.sum()
    summed = np.fft.irfft(np.fft.rfft(np.fft.ifftshift(density)) ** 3, size)
    above = np.cumsum(np.fft.fftshift(summed)[::-1])[::-1]
    at = float(x[np.searchsorted(-above, -level)])
    return at * _of_variance_1(tail) / math.sqrt(3)
