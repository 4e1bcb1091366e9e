"""Fresh clones of this checkout, as a newcomer or a runner of CI has them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def fresh_clone(path: Path) -> Path:
    """Make a clone without an environment, with changes that are not committed yet."""
    subprocess.run(["git", "clone", "-q", str(ROOT), str(path)], check=True)
    changed = subprocess.run(
        ["git", "ls-files", "-z", "--modified", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, changed.stdout.split("\0")):
        source, to = ROOT / name, path / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if source.exists():
            to.write_bytes(source.read_bytes())
            to.chmod(source.stat().st_mode)
    return path


def without_this_environment() -> dict[str, str]:
    """Return the environment of a shell that has activated nothing, and that no make started, whose
    ARGS would count in the clone, too."""
    others = ("OPAL_", "MAKE", "MFLAGS", "ARGS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    path = kept["PATH"].split(":")
    here = Path(sys.executable).parent
    kept["PATH"] = ":".join(each for each in path if Path(each) != here)
    return kept
