"""A pytest plugin that writes the report of a session at the session's end.

A separate process writes the report, because an error there must not change the session's exit
status.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from hvdperf.errors import UserError
from hvdperf.paths import ROOT, shown
from hvdperf.programs import run

LONGEST_S = 120


def pytest_hvdperf_written(directory: Path, config: pytest.Config) -> str:
    return _written(directory, config.invocation_params.dir)


def _written(directory: Path, here: Path) -> str:
    """Write the report. Return a line that says where the page is, or else why there is none and
    how to write it. Ctrl-C ends only the writing, because the session has its verdicts."""
    # Run from `here`, so that paths are printed as seen from there. PYTHONPATH names the project's
    # root, which has the module.
    command = [sys.executable, "-m", "hvdperf", "report", str(directory)]
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(paths))
    try:
        done = run(command, here, environment, within_s=LONGEST_S)
    except KeyboardInterrupt:
        why = "interrupted"
    except UserError as error:
        why = str(error)
    else:
        if done.status == 0:
            return f"report: {done.output.strip()}"
        why = done.why
    return f"no report: {why}; to write it: hvdperf report {shlex.quote(shown(directory))}"
