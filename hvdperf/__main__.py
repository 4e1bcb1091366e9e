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
from hvdperf.version import version


def main() -> int:
    """Run the command and return its exit status: 2 after an interruption, else as
    `hvdperf.cli.run` returns it."""
    try:
        return run(parser())
    except KeyboardInterrupt:
        complain("interrupted; finished results are kept")
        return REFUSED


class _Version(argparse.Action):
    """Prints the version, which asks git, only if it is wanted."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(version())
        parser.exit()


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="hvdperf",
        description="Report, compare and publish the results of sessions. To measure: pytest perf/",
    )
    top.add_argument("--version", action=_Version, nargs=0, help="print the version and the commit")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    for package in (report, session, doctor, nightly, history):
        package.add_to(commands)
    return top


if __name__ == "__main__":
    sys.exit(main())
