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


def filled(page: str, command: str, parts: Sequence[str]) -> str:
    """Return a page with these texts in place of the parts that this command makes, in their order.
    Raises UserError if the page does not mark as many."""
    begin = f"<!-- made by `{command}` from here -->\n"
    text, *rest = page.split(begin)
    if len(rest) != len(parts) or not all(END in each for each in rest):
        raise UserError(f"the page lacks {begin.strip()!r} or, after that, {END!r}")
    for part, after in zip(parts, rest, strict=True):
        text += f"{begin}\n{part}\n\n{END}{after.partition(END)[2]}"
    return text


def put_into(page: Path, command: str, *parts: Iterable[str]) -> None:
    """Replace what this command makes of a page. parts: their lines. Raises UserError if that is
    impossible."""
    with refusing(f"{shown(page)} cannot be written: ", OSError):
        write_whole(page, filled(page.read_text(), command, ["\n".join(each) for each in parts]))
