"""The version of the suite."""

from __future__ import annotations

import subprocess
import tomllib
from functools import cache

from hvdperf.paths import ROOT


@cache
def version() -> str:
    """Return the version and, in a git checkout, the commit: `0.2.0 (a1b2c3d4e5f6)`; a `+` follows
    the commit if files have changed since."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    commit = _commit()
    return f"{project['version']} ({commit})" if commit else str(project["version"])


def _commit() -> str:
    """Return the commit of the checkout; "" if git does not know it."""
    if not (ROOT / ".git").exists():
        return ""
    try:
        found = subprocess.run(
            [
                "git",
                "-C",
                str(ROOT),
                "describe",
                "--always",
                "--exclude=*",
                "--dirty=+",
                "--abbrev=12",
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip()
