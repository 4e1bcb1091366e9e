"""The command `hvdperf` (`python -m hvdperf`)."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Mapping

from hvdperf import cli
from hvdperf.columns import WIDTH
from hvdperf.report import commands as report
from hvdperf.script import commands as script
from hvdperf.session import commands as session
from hvdperf.timeline import commands as timeline
from hvdperf.version import version
from hvdperf.vet import commands as vet


def main() -> int:
    """Run the command and return its exit status: 2 after an interruption, else as
    `hvdperf.cli.run` returns it."""
    top = parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions
        import argcomplete

        argcomplete.autocomplete(top)
    try:
        return cli.run(top)
    except KeyboardInterrupt:
        cli.complain("interrupted; finished results are kept")
        return cli.REFUSED


class _Version(argparse.Action):
    """Prints the version, which asks git, only if it is wanted."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(version())
        parser.exit()


# The commands by purpose, as the help shows them.
PURPOSES = {
    "measure": ("run", "nightly", "vet", "bisect"),
    "show results": ("report", "compare", "regressions", "history", "explain"),
    "prepare": ("doctor", "list", "thresholds"),
}


def parser() -> argparse.ArgumentParser:
    top: argparse.ArgumentParser = cli.Parser(
        prog="hvdperf",
        usage="hvdperf [-h] [--version] COMMAND ...",
        description="Find out whether distributed training got slower, and why. To measure how\n"
        "training scales, run `pytest perf/`.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument(
        "--version", action=_Version, nargs=0, help="Print the version and the commit, and exit."
    )
    commands: dict[str, cli.Command] = {
        "run": script.run_script,
        "report": script.report,
        **report.COMMANDS,
        **session.COMMANDS,
        "vet": vet.vet,
        **timeline.COMMANDS,
    }
    # Without prog, the usages and errors of commands would begin with all of the usage above.
    cli.add_commands(top, cli.Group("", "COMMAND", commands), prog=top.prog, help=argparse.SUPPRESS)
    top.epilog = _by_purpose(commands)
    return top


def _by_purpose(commands: Mapping[str, cli.Command]) -> str:
    """Return the commands in groups, each with the first sentence of its description."""
    parts = []
    for purpose, names in PURPOSES.items():
        lines = [
            textwrap.fill(
                cli.first_sentence(cli.description_of(commands[name])),
                WIDTH,
                initial_indent=f"  {name:<13}",
                subsequent_indent=" " * 15,
            )
            for name in names
            if name in commands
        ]
        if lines:
            parts.append("\n".join([f"{purpose}:", *lines]))
    return "\n\n".join([*parts, "`hvdperf COMMAND --help` shows the options of a command."])


if __name__ == "__main__":
    sys.exit(main())
