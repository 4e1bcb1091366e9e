"""Removes what takes room of nights long ago. The documents of nights stay: a year of them is small
and what regressions are found in."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.paths import shown
from hvdperf.timeline.nights.night import read_nights
from hvdperf.timeline.store import NIGHTS

# A hundred years.
MOST_DAYS = 36500


def remove_older(results: Path, days: int) -> Iterator[str]:
    """Remove the sessions and pages of nights that ended more than this many days ago; yield a line
    for each. Sessions that belong to no night stay. Raises UserError."""
    if not 1 <= days <= MOST_DAYS:
        raise UserError(f"--keep {days}: must be between 1 and {MOST_DAYS} days")
    limit = datetime.now(UTC) - timedelta(days=days)
    for nights in read_nights(results / NIGHTS).of.values():
        for night in nights:
            if night.ended_at is None or night.ended_at > limit:
                continue
            for part in night.parts:
                for path in (
                    results / "runs" / part.session,
                    results / "report" / f"{part.session}.html",
                ):
                    if path.is_dir():
                        shutil.rmtree(path)
                    elif path.exists():
                        path.unlink()
                    else:
                        continue
                    yield f"removed {shown(path)}"
