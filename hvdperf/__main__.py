"""The command `hvdperf` (`python -m hvdperf`): every task except measuring (`pytest perf/`)."""

from __future__ import annotations

import argparse
import sys

from hvdperf.cli import REFUSED, complain, run
from hvdperf.history import commands as history
from hvdperf.nightly import commands as nightly
from hvdperf.report import commands as report
from hvdperf.session import commands as session
from hvdperf.session import doctor


def main() -> int:
    """Run the command and return its exit status: 2 after an interruption, else as
    `hvdperf.cli.run` returns it."""
    try:
        return run(parser())
    except KeyboardInterrupt:
        complain("interrupted; finished results are kept")
        return REFUSED


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="hvdperf",
        description="Report, compare and publish the results of sessions. To measure: pytest perf/",
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for package in (report, session, doctor, nightly, history):
        package.add_to(commands)
    return top


if __name__ == "__main__":
    sys.exit(main())
