"""Where reports go."""

from __future__ import annotations

from pathlib import Path

from hvdperf.paths import ROOT

RESULTS = ROOT / "results"
# Below the results that they are made of.
REPORTS = "report"


def results_of(session: Path) -> Path:
    """The results that a session is one of: what --results named, of which it lies in runs/; else
    the project's own."""
    runs = session.resolve().parent
    return runs.parent if runs.name == "runs" else RESULTS
