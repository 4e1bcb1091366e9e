"""Turns sessions into raw results, and raw results into the files that asv reads."""

from __future__ import annotations

from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.history import places
from hvdperf.history.asv_results import write_tree
from hvdperf.history.lines import lines
from hvdperf.history.raw import RawResult, Refused, extract, keep, read_history
from hvdperf.history.releases import Axis, releases
from hvdperf.history.repository import write_repository
from hvdperf.paths import shown


def keep_sessions(sessions: Path, root: Path) -> list[str]:
    """Keep the throughput of every session below `sessions` as a raw result below `root`. Return
    one line for each session that is new, or that has no throughput to keep."""
    told = []
    for directory in sorted(path for path in sessions.glob("*") if path.is_dir()):
        try:
            result = extract(directory)
        except (Refused, UserError) as error:
            told.append(f"{shown(directory)}: not in the history: {error}")
            continue
        if keep(result, root):
            told.append(f"{shown(directory)}: {len(result.series)} series of {result.machine}")
    return told


def make_repositories() -> dict[Axis, dict[str, str]]:
    """Make the repositories of both packages' releases; return the commit of each version."""
    return {axis: write_repository(places.repository(axis), releases(axis)) for axis in Axis}


def make_trees(root: Path = places.RAW) -> tuple[list[RawResult], list[str]]:
    """Write the files that asv reads, of both axes, from all raw results. Return these raw results,
    and one line for each file that is refused."""
    results, refused = read_history(root)
    for axis, commits in make_repositories().items():
        write_tree(axis, places.RESULTS[axis], commits, results, lines(results, axis))
    return results, refused
