"""The releases of Horovod and of TensorFlow, in order of date (releases.toml)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import cache
from pathlib import Path

from hvdperf.errors import UserError
from hvdperf.toml_file import as_record, read_toml

_FILE = Path(__file__).with_name("releases.toml")


class Axis(Enum):
    """The package whose releases are on the x-axis; each version of the other package is a line."""

    HOROVOD = "horovod"
    TENSORFLOW = "tensorflow"

    @property
    def other(self) -> Axis:
        return Axis.TENSORFLOW if self is Axis.HOROVOD else Axis.HOROVOD


@dataclass(frozen=True)
class Release:
    """One release of a package. version: such as 0.28.1. released: the day, in UTC."""

    package: Axis
    version: str
    released: date

    @property
    def tag(self) -> str:
        return f"v{self.version}"


@cache
def releases(package: Axis) -> tuple[Release, ...]:
    """Return all known releases of a package, oldest first."""
    dates = as_record(_FILE, read_toml(_FILE), dict[Axis, dict[str, date]])[package]
    return tuple(Release(package, version, released) for version, released in dates.items())


@cache
def order(package: Axis) -> dict[str, int]:
    """Return the position of each version on the axis, from 0 for the oldest."""
    return {release.version: place for place, release in enumerate(releases(package))}


def check_known(package: Axis, option: str, version: str) -> None:
    """Raise UserError for a release that is not known. option: the one that gave the version."""
    if version not in order(package):
        raise UserError(
            f"{option} {version}: known releases of {package.value} are "
            f"{', '.join(order(package))} (hvdperf/timeline/releases/releases.toml)"
        )
