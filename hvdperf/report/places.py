"""The directories of results and of reports."""

from __future__ import annotations

import os
from pathlib import Path

from hvdperf.paths import ROOT

RESULTS = ROOT / "results"
# The directory of reports, below the results that they show.
REPORTS = "report"


def results_of(session: Path) -> Path:
    """Return the results that a session belongs to: the directory that holds its runs/, as
    --results named it. Return the project's own results for a session outside of a runs/."""
    runs = Path(os.path.realpath(session)).parent  # unlike Path.resolve, accepts a loop of links
    return runs.parent if runs.name == "runs" else RESULTS
