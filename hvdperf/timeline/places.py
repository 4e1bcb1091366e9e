"""The places of the history's files. Everything in .asv/ can be generated again. The history's
files in results/ are tracked by git, except the sessions in results/runs/."""

from __future__ import annotations

from pathlib import Path

from hvdperf.paths import ROOT
from hvdperf.timeline.releases.raw import Axis

SESSIONS = ROOT / "results" / "runs"
RAW = ROOT / "results" / "history"
NOT_BUILT = ROOT / "results" / "not-built"
USES = ROOT / "results" / "uses"
GENERATED = ROOT / ".asv"
# Results of the sessions that a back-fill or `asv run` starts.
MEASURED = GENERATED / "sessions"

CONFIGURATION = {
    Axis.HOROVOD: ROOT / "asv.conf.json",
    Axis.TENSORFLOW: ROOT / "hvdperf" / "timeline" / "asv" / "by_tensorflow.conf.json",
}
RESULTS = {
    Axis.HOROVOD: ROOT / "results" / "asv",
    Axis.TENSORFLOW: ROOT / "results" / "asv-tensorflow",
}
SITE = GENERATED / "site"
HTML = {axis: SITE / axis.value for axis in Axis}


def repository(axis: Axis) -> Path:
    """Return the path of the git repository whose commits are the releases of a package."""
    return GENERATED / "releases" / axis.value
