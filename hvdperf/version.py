"""The version of the suite."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.paths import CHECKOUT
from hvdperf.programs import run


@cache
def version() -> str:
    """Return the version and, in a git checkout, the commit: `0.2.0 (a1b2c3d4e5f6)`; a `+` follows
    the commit if files have changed since."""
    if CHECKOUT is None:
        return metadata.version("hvdperf")
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    commit = _commit(CHECKOUT)
    return f"{project['version']} ({commit})" if commit else str(project["version"])


def _commit(checkout: Path) -> str:
    """Return the commit of the checkout; "" if git does not know it."""
    if not (checkout / ".git").exists():
        return ""
    try:
        described = ["describe", "--always", "--exclude=*", "--dirty=+", "--abbrev=12"]
        return run(["git", *described], checkout, within_s=10).output.strip()
    except UserError:
        return ""
