"""The command `python -m bench`: measures the suite itself."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from bench import costs, nights, sessions, trust, truth_table
from bench.simulator import Table
from docs.markdown import put_into
from hvdperf import cli
from hvdperf.errors import UserError
from hvdperf.paths import ROOT

PAGE = ROOT / "docs" / "reference" / "simulations.md"
# What is simulated, and of how many sessions a cell, allocations or years a row.
SIMULATIONS: Mapping[str, tuple[Sequence[Table[Any]], int]] = {
    "simulation": (sessions.TABLES, 600),
    "falls": ([nights.FALLS], 20),
    "nodes": ([nights.NODES], 12),
    "gate": ([nights.GATE], 50),
    "changes": ([nights.CHANGES], 5),
    "vet": ([nights.VET], 150),
}
NAMES = ", ".join(SIMULATIONS)


def rates(*names: str, of: int | None = None, write: bool = False) -> int:
    """Simulate how often verdicts err, and which changes they find, for docs/error_rates.md.
    Nothing is measured, so the figures do not depend on the machine.

    NAME ...: Run these simulations, of {NAMES}.
    --of N: The number of sessions, years or allocations, whichever NAME simulates.
    --write: Write the tables into docs/reference/simulations.md, too.
    """
    for name in names:
        cli.read("", str, SIMULATIONS, name)
    if of is not None and of < 2:
        raise UserError(f"--of {of}: must be two or more")
    for name in names:
        tables, usual = SIMULATIONS[name]
        lines = []
        for line in chain(*(table.lines(of or usual) for table in tables)):
            print(line, flush=True)
            lines.append(line)
        if write:
            put_into(PAGE, f"python -m bench rates {name}", lines)
    return 0


COMMANDS: Mapping[str, cli.Command] = {
    "costs": costs.costs,
    "rates": rates,
    "trust": trust.add_sessions,
    "truth": truth_table.make,
}


def main(command_line: list[str] | None = None) -> int:
    parser = cli.Parser(prog="python -m bench", description="Measure the suite itself.")
    cli.add_commands(parser, cli.Group("", "COMMAND", COMMANDS))
    return cli.run(parser, command_line=command_line)


if __name__ == "__main__":
    sys.exit(main())
