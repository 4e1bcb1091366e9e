"""How often the suite called what was planted by its name, over all sessions that tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scipy.stats import binomtest

from hvdperf.plan.fault_cases import TRIALS, FaultCase
from hvdperf.results.detection_log import Entry, Tried
from hvdperf.results.fingerprint import Value, differences
from hvdperf.verdict import Verdict

# What differs in fingerprints of one machine and stack: the cases decide what data is read and
# which cores have ranks, and many packages are no part of a rank. Those that are have own fields.
_OF_THE_CASES = ("packages_sha256", "data_sets", "rank_cores")


@dataclass(frozen=True)
class Count:
    """Of a trial's sessions, how many said what they must. alarms: how many called slower what
    nothing was planted into. inconclusive: how many came to no verdict."""

    trial: str
    model: str
    world_size: int
    sessions: int
    called: int
    blamed: int
    alarms: int
    inconclusive: int
    figures: tuple[float, ...]


def measured_here(entries: Sequence[Entry], fingerprint: Mapping[str, Value]) -> list[Entry]:
    """Those of the machine and the stack that a session was measured on. fingerprint: its own."""
    here = _place(fingerprint)
    return [entry for entry in entries if not differences(here, _place(entry.fingerprint))]


def _place(fingerprint: Mapping[str, Value]) -> Mapping[str, Value]:
    return {name: value for name, value in fingerprint.items() if name not in _OF_THE_CASES}


def of_newest(entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Those whose figures may be put together with the newest one's, and the others."""
    newest = _circumstances(entries[-1]) if entries else {}
    alike = [entry for entry in entries if not differences(newest, _circumstances(entry))]
    return alike, [entry for entry in entries if entry not in alike]


def series(entries: Sequence[Entry]) -> list[list[Entry]]:
    """All of them, the newest series first: sessions whose figures may be put together."""
    found, left = [], list(entries)
    while left:
        alike, left = of_newest(left)
        found.append(alike)
    return found


def changes(old: Entry, new: Entry) -> list[str]:
    """What keeps two sessions apart, a line each."""
    return differences(_circumstances(old), _circumstances(new))


def _circumstances(entry: Entry) -> Mapping[str, Value]:
    """The fingerprint and the settings, without the digest of all packages, of which many are no
    part of a rank. Those that are have fields of their own."""
    told = {**entry.fingerprint, **entry.settings}
    return {name: value for name, value in told.items() if name != "packages_sha256"}


def counts_of(entries: Iterable[Entry]) -> list[Count]:
    """Over sessions; in the order of `counts`."""
    return counts(tried for entry in entries for tried in entry.tried)


def counts(tried: Iterable[Tried]) -> list[Count]:
    """By trial, in the order of TRIALS, network and world size; of each those that were held
    against the same threshold as its last."""
    alike: dict[tuple[str, str, int], list[Tried]] = {}
    for each in tried:
        alike.setdefault((each.trial, each.model, each.world_size), []).append(each)
    order = list(TRIALS)
    return [
        _count(key, alike[key])
        for key in sorted(alike, key=lambda key: (order.index(key[0]), *key[1:]))
    ]


def _count(of: tuple[str, str, int], every: Sequence[Tried]) -> Count:
    tried = [
        each
        for each in every
        if each.threshold == every[-1].threshold and each.verdict is not Verdict.NOT_JUDGED
    ]
    open_ = (Verdict.INCONCLUSIVE, Verdict.NOT_RUN)
    decided = [each for each in tried if each.verdict not in open_]
    must_be = TRIALS[of[0]].verdict
    called = [each for each in decided if each.called is must_be]
    slower = [each for each in decided if each.called is Verdict.FAIL]
    return Count(
        *of,
        sessions=len(tried),
        called=len(called),
        blamed=sum(each.verdict is Verdict.PASS for each in called),
        alarms=len(slower) if must_be is Verdict.PASS else 0,
        inconclusive=len(tried) - len(decided),
        figures=tuple(each.figure for each in tried if each.figure is not None),
    )


def share_interval(times: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share, of Clopper and Pearson (1934). of: at least one."""
    interval = binomtest(times, of).proportion_ci(0.95)
    return float(interval.low), float(interval.high)


def must(trial: FaultCase) -> str:
    """What has to be said of it, in words."""
    if trial.verdict is not Verdict.FAIL:
        return str(trial.verdict.value)
    who = "all ranks" if trial.rank is None else f"rank {trial.rank}"
    return f"FAIL, for {trial.term} of {who}"
