"""Where the project's files are, in a checkout and if installed, and paths in messages."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def _checkout() -> Path | None:
    above = PACKAGE.parent
    return above if (above / "ci" / "setup.sh").is_file() else None


def _cache() -> Path:
    """Return the cache of the checkout, or else of the user, or a temporary one if the user has
    none that can be written."""
    if CHECKOUT is not None:
        return CHECKOUT / ".cache"
    homes = (os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache"))
    temporary = Path(tempfile.gettempdir(), f"hvdperf-{os.getuid()}")
    places = (*(Path(home, "hvdperf") for home in homes), temporary)
    return next(filter(_is_own, places), temporary)


def _is_own(directory: Path) -> bool:
    """Make a directory if it is missing, and return whether it is this user's and can be written.
    Code is imported through the cache, so nobody else may have made it."""
    try:
        if directory.is_absolute():  # a relative XDG_CACHE_HOME does not count
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            is_own = directory.stat().st_uid == os.getuid()
            return is_own and os.access(directory, os.W_OK | os.X_OK)
    except OSError:
        pass
    return False


def _only_hvdperf() -> Path:
    """Return a directory in the cache that holds a link to the installed package, and nothing else:
    another interpreter must not find the packages of this one."""
    directory = CACHE / f"import-{hashlib.sha256(str(PACKAGE).encode()).hexdigest()[:12]}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            (directory / PACKAGE.name).symlink_to(PACKAGE)
    except OSError:
        return PACKAGE.parent
    return directory


# None if the package is installed without one.
CHECKOUT = _checkout()
# Facts about installed stacks and data sets. It may be deleted at any time.
CACHE = _cache()
# The directory from which every interpreter imports this package. Processes start here.
ROOT = CHECKOUT or _only_hvdperf()
# Holds ci/profiles/, ci/thresholds/ and perf/.
SHIPPED = CHECKOUT or PACKAGE
# The results directory that commands take without --results.
RESULTS = (CHECKOUT or Path()) / "results"
# The suite's own samples of data sets.
SAMPLES = CHECKOUT / "data" / "samples" if CHECKOUT else CACHE / "samples"

# The package of the suite's cases, where it is installed.
_CASES = "hvdperf.perf"


def cases(file: str = "") -> list[str]:
    """Return arguments of pytest that name the suite's cases: all, or those of one file of perf/,
    named without its suffix."""
    if CHECKOUT is not None:
        return [f"perf/{file}.py" if file else "perf/"]
    return ["-p", "hvdperf", "--pyargs", f"{_CASES}.{file}" if file else _CASES]


def path_of(argument: str) -> Path:
    """Return the absolute path of an argument of pytest, a path or such a package, without the
    names of cases and with links resolved."""
    name = argument.partition("::")[0]
    if name == _CASES or name.startswith(f"{_CASES}."):
        path = SHIPPED.joinpath(*name.split(".")[1:])
        return path if path.is_dir() else path.with_suffix(".py")
    return Path(name).resolve()


def shown(path: Path) -> str:
    """Return the path as a person in the current directory would write it."""
    absolute, here = path.absolute(), Path.cwd()
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(path)
