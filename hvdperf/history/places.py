"""Where the history's files are. Everything in .asv/ can be made again; results/ is tracked."""

from __future__ import annotations

from pathlib import Path

from hvdperf.history.releases import Axis
from hvdperf.paths import ROOT

SESSIONS = ROOT / "results" / "runs"
RAW = ROOT / "results" / "history"
NOT_BUILT = ROOT / "results" / "not-built"
GENERATED = ROOT / ".asv"
# What a back-fill's own sessions leave behind.
MEASURED = GENERATED / "sessions"

CONFIGURATION = {
    Axis.HOROVOD: ROOT / "asv.conf.json",
    Axis.TENSORFLOW: ROOT / "hvdperf" / "history" / "by_tensorflow.conf.json",
}
RESULTS = {
    Axis.HOROVOD: ROOT / "results" / "asv",
    Axis.TENSORFLOW: ROOT / "results" / "asv-tensorflow",
}
SITE = GENERATED / "site"
HTML = {axis: SITE / axis.value for axis in Axis}


def repository(axis: Axis) -> Path:
    """The git repository whose commits are that package's releases."""
    return GENERATED / "releases" / axis.value
