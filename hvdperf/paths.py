"""The directory of the project, and paths in messages."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The results directory that commands take without --results.
RESULTS = ROOT / "results"
# Facts about installed stacks and data sets. It may be deleted at any time.
CACHE = ROOT / ".cache"


def shown(path: Path) -> str:
    """Return the path as a person in the current directory would write it."""
    absolute, here = path.absolute(), Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(path)
