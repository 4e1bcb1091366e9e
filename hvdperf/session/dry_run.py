"""Asks pytest what a session would be, without measuring anything."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hvdperf.errors import UserError
from hvdperf.json_records import decode
from hvdperf.paths import ROOT, cases

# The environment variable that names the file to which a dry run writes a record.
FILE = "HVDPERF_DRY_RUN"


@dataclass(frozen=True)
class DryRun:
    """A session that is not run. work, thresholds: the profile with its data, and the file of
    thresholds, in words. settings: those that change figures, in words. without_threshold: names of
    cases."""

    work: str
    thresholds: str
    settings: tuple[str, ...]
    without_threshold: tuple[str, ...]


def dry_run(options: Sequence[str]) -> DryRun:
    """Return the session that these options of pytest would run. Raises UserError if pytest refuses
    it."""
    command = [sys.executable, "-m", "pytest", *cases(), "--dry-run", "-q", *options]
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "dry_run.json"
        environment = {**os.environ, FILE: str(path)}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode == 0 and path.exists():
            return decode(path.read_bytes(), DryRun)
    said = (done.stderr + done.stdout).strip().splitlines() or ["pytest printed nothing"]
    first = next((line for line in said if line.startswith("ERROR: ")), said[0])
    raise UserError(first.removeprefix("ERROR: "))
