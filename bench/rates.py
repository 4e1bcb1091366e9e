"""Writes docs/reference/simulations.md: all that the simulations of error rates print.

python -m bench.rates                    # every one of them, which takes hours
python -m bench.rates falls nodes        # these anew; the others stay as they are
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Mapping

from hvdperf.files import write_whole
from hvdperf.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "simulations.md"
# The modules of bench, with the arguments of the figures that docs/error_rates.md rests on.
SIMULATIONS: Mapping[str, str] = {
    "simulation": "bench.simulation 600",
    "thresholds": "bench.thresholds",
    "falls": "bench.nights falls --years 20",
    "nodes": "bench.nights nodes --years 12",
    "gate": "bench.nights gate --years 50 --tries 2000",
    "changes": "bench.nights changes --years 5",
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
        command = [sys.executable, "-m", *SIMULATIONS[name].split()]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        write_whole(PAGE, replaced(PAGE.read_text(), name, done.stdout))


def replaced(page: str, name: str, printed: str) -> str:
    """Return the page with what a simulation has printed."""
    new = f"## {name}\n\n`python -m {SIMULATIONS[name]}`\n\n{printed.strip()}\n\n"
    section = re.compile(rf"^## {name}\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    return section.sub(lambda _: new, page).rstrip() + "\n"


if __name__ == "__main__":
    main()
