"""Tables in Markdown, and the parts of pages that commands write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from hvdperf.errors import UserError, refusing
from hvdperf.files import write_whole
from hvdperf.paths import shown

END = "<!-- to here -->"


def heading(*names: str) -> list[str]:
    """Return the heading of a table."""
    return [row(*names), "|---" * len(names) + "|"]


def row(*cells: str) -> str:
    escaped = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join([*heading(*head), *(row(*cells) for cells in rows)])


def between(page: str, command: str) -> tuple[str, str, str]:
    """Return a page before, within and after the part that this command makes. Raises UserError if
    the page does not mark it."""
    begin = f"<!-- made by `{command}` from here -->\n"
    before, mark, rest = page.partition(begin)
    within, end, after = rest.partition(END)
    if not mark or not end:
        raise UserError(f"the page lacks {begin.strip()!r} or, after that, {END!r}")
    return before + mark, within, end + after


def put_into(page: Path, command: str, lines: Iterable[str]) -> None:
    """Replace what this command makes of a page. Raises UserError if that is impossible."""
    with refusing(f"{shown(page)} cannot be written: ", OSError):
        before, _, after = between(page.read_text(), command)
        write_whole(page, "\n".join([before, *lines, "", after]))
