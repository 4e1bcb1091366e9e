"""Simulates how often verdicts err, and what is found, which docs/error_rates.md rests on.
Nothing is measured, so the figures do not depend on the machine.

    python -m bench.rates simulation           # prints the tables of whole sessions
    python -m bench.rates falls nodes --write  # puts these into docs/reference/simulations.md, too
    python -m bench.rates gate --of 2          # of two years in place of fifty
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from bench import losses, nights, simulation, thresholds, vetted
from bench.pages import put_into
from hvdperf.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "simulations.md"
# What simulates, and of how many sessions a cell, files or allocations a row, or years.
SIMULATIONS: Mapping[str, tuple[Callable[[int], Iterable[str]], int]] = {
    "simulation": (simulation.tables, 600),
    "thresholds": (thresholds.tables, 10),
    "falls": (partial(losses.table, "falls"), 20),
    "nodes": (partial(losses.table, "nodes"), 12),
    "gate": (partial(losses.table, "gate"), 50),
    "changes": (nights.changes, 5),
    "vet": (vetted.table, 150),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.rates",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="+", choices=SIMULATIONS, metavar="NAME")
    text = "number of sessions, files, years or allocations, whichever NAME simulates"
    parser.add_argument("--of", type=int, metavar="N", help=text)
    parser.add_argument("--write", action="store_true", help="into docs/reference/simulations.md")
    given = parser.parse_args()
    if given.of is not None and given.of < 2:
        parser.error("--of: must be two or more")
    for name in given.names:
        simulate, usual = SIMULATIONS[name]
        lines = []
        for line in simulate(given.of or usual):
            print(line, flush=True)
            lines.append(line)
        if given.write:
            put_into(PAGE, f"python -m bench.rates {name}", lines)


if __name__ == "__main__":
    main()
