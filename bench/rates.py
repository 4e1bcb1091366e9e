"""Writes docs/reference/simulations.md: all that the simulations of error rates print.

python -m bench.rates                    # every one of them, which takes hours
python -m bench.rates falls nights       # these anew; the others stay as they are
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence

from hvdperf.files import write_whole
from hvdperf.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "simulations.md"
# The modules of bench, with the arguments of the figures that docs/error_rates.md rests on.
SIMULATIONS: Mapping[str, Sequence[str]] = {
    "simulation": ("600",),
    "thresholds": (),
    "falls": ("--years", "20"),
    "falls_of_nodes": (),
    "gate_of_nights": ("--years", "50"),
    "nights": ("--years", "5"),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.rates",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SIMULATIONS)}")
    names = parser.parse_args().names or list(SIMULATIONS)
    if unknown := sorted(set(names) - set(SIMULATIONS)):
        parser.error(f"{', '.join(unknown)}: known are {', '.join(SIMULATIONS)}")
    for name in names:
        command = [sys.executable, "-m", f"bench.{name}", *SIMULATIONS[name]]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        write_whole(PAGE, replaced(PAGE.read_text(), name, done.stdout))


def replaced(page: str, name: str, printed: str) -> str:
    """Return the page with what a simulation has printed. name: of its module."""
    head, *sections = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    words = " ".join(["python -m", f"bench.{name}", *SIMULATIONS[name]])
    text = printed.strip()
    if "|---" not in text:
        text = f"```\n{text}\n```"
    new = f"## {name}\n\n`{words}`\n\n{text}\n\n"
    return (
        "".join([head, *(new if _name(each) == name else each for each in sections)]).rstrip()
        + "\n"
    )


def _name(section: str) -> str:
    return section.partition("\n")[0].removeprefix("## ")


if __name__ == "__main__":
    main()
