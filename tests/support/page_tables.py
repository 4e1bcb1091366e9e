"""The tables of a page, as its HTML has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass
class PageTable:
    """A table of a page. caption: its text. row_heads: the texts of the row headers of each row of
    its body."""

    caption: str = ""
    row_heads: list[list[str]] = field(default_factory=list)


def tables_of(document: str) -> list[PageTable]:
    """Return the tables of an HTML document, in its order."""
    reader = _Reader()
    reader.feed(document)
    return reader.tables


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tables: list[PageTable] = []
        self.reads = ""
        self.in_body = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append(PageTable())
        elif tag in ("thead", "tbody"):
            self.in_body = tag == "tbody"
        elif tag == "tr" and self.in_body:
            self.tables[-1].row_heads.append([])
        elif tag == "caption":
            self.reads = tag
        elif tag == "th" and self.in_body and dict(attrs).get("scope") == "row":
            self.reads = tag
            self.tables[-1].row_heads[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == self.reads:
            self.reads = ""

    def handle_data(self, data: str) -> None:
        if self.reads == "caption":
            self.tables[-1].caption += data
        elif self.reads == "th":
            self.tables[-1].row_heads[-1][-1] += data
