"""Counts how often injected faults got the expected verdict, over all sessions that tried them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hvdperf.plan.faults import TRIALS, FaultCase
from hvdperf.results.detection_log import Entry, Tried
from hvdperf.results.fingerprint import differences
from hvdperf.verdict import Verdict

# Fields that differ between fingerprints of one machine and stack: the cases decide what data is
# read and which cores have ranks, and many packages are no part of a rank. The packages that are
# part of a rank have fields of their own.
_OF_THE_CASES = ("packages_sha256", "data_sets", "rank_cores")


@dataclass(frozen=True)
class Count:
    """The sessions of one fault case on one network and world size, counted by what they reported.

    sessions: all but those with NOT JUDGED. called: those with the expected verdict on the arm
    itself. blamed: those of `called` that also gave the expected reason. alarms: those that called
    an arm without a fault slower; 0 for a fault. inconclusive: those without a verdict. figures:
    the ratios that were measured, one a session.
    """

    trial: str
    model: str
    world_size: int
    sessions: int
    called: int
    blamed: int
    alarms: int
    inconclusive: int
    figures: tuple[float, ...]


def measured_here(entries: Sequence[Entry], fingerprint: Mapping[str, object]) -> list[Entry]:
    """Return the entries of the machine and stack of a session. fingerprint: that session's."""
    here = _place(fingerprint)
    return [entry for entry in entries if not differences(here, _place(entry.fingerprint))]


def _place(fingerprint: Mapping[str, object]) -> Mapping[str, object]:
    return {name: value for name, value in fingerprint.items() if name not in _OF_THE_CASES}


def of_newest(entries: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """Return the entries whose figures may be pooled with the last one's, and the others."""
    newest = _circumstances(entries[-1]) if entries else {}
    alike = [entry for entry in entries if not differences(newest, _circumstances(entry))]
    return alike, [entry for entry in entries if entry not in alike]


def series(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Split all entries into series, newest first. The figures of one series may be pooled."""
    found, left = [], list(entries)
    while left:
        alike, left = of_newest(left)
        found.append(alike)
    return found


def changes(old: Entry, new: Entry) -> list[str]:
    """Return the differences because of which two sessions may not be pooled, one line each."""
    return differences(_circumstances(old), _circumstances(new))


def _circumstances(entry: Entry) -> Mapping[str, object]:
    """Return the fingerprint and the settings, without the digest of all packages.

    Many packages are no part of a rank; those that are have fields of their own."""
    told = {**entry.fingerprint, **entry.settings}
    return {name: value for name, value in told.items() if name != "packages_sha256"}


def counts_of(entries: Iterable[Entry]) -> list[Count]:
    """Count the fault cases of all sessions, in the order of `counts`."""
    return counts(tried for entry in entries for tried in entry.tried)


def counts(tried: Iterable[Tried]) -> list[Count]:
    """Count by fault case (in the order of TRIALS), network and world size.

    Each count holds only those that were compared with the same threshold as the last one."""
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
    """Return the 95 % interval of the share times / of by Clopper and Pearson (1934). of: at least
    one."""
    from scipy.stats import binomtest  # imported here, because the import takes seconds

    interval = binomtest(times, of).proportion_ci(0.95)
    return float(interval.low), float(interval.high)


def must(trial: FaultCase) -> str:
    """Return the expected verdict on a fault case, in words."""
    if trial.verdict is not Verdict.FAIL:
        return str(trial.verdict.value)
    who = "all ranks" if trial.rank is None else f"rank {trial.rank}"
    return f"FAIL, for {trial.term} of {who}"
