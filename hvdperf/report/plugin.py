"""Writes the page at the end of a session, in a process of its own, so that an error there changes
no exit status here. A pytest plugin."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hvdperf.errors import UserError
from hvdperf.paths import ROOT, shown
from hvdperf.programs import run

if TYPE_CHECKING:
    import pytest

LONGEST_S = 120


def pytest_hvdperf_written(directory: Path, config: pytest.Config) -> str:
    return write_apart(directory, config.invocation_params.dir)


def write_apart(directory: Path, here: Path) -> str:
    """Write the page of a session or of a run of a script. Return a line that says where it is, or
    else why there is none and how to write it. Ctrl-C ends only the writing, because what was
    measured is kept. directory: of the documents. here: the one from which paths are shown."""
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
