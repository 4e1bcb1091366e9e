"""The pages of the documentation, taken apart for tests."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path.relative_to(ROOT)
    for pattern in ("*.md", "docs/**/*.md", "results/*.md", "examples/**/*.md")
    for path in ROOT.glob(pattern)
)
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[((?:[^]\[]|\[[^]]*\])*)\]\(([^)\s]+)\)")


@cache
def text_of(page: Path) -> str:
    return (ROOT / page).read_text()


def prose(text: str) -> str:
    """Return a page with its fenced blocks and inline code blanked; places stay the same."""

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", found[0])

    return re.sub(r"`[^`]+`", blank, _FENCE.sub(blank, text))


def links(text: str) -> list[str]:
    # Of the text without fenced blocks only, since a link's words may be code.
    return [found[2] for found in _LINK.finditer(_FENCE.sub("", text))]


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as repository browsers and the site make them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", text), re.MULTILINE)
    words = (_LINK.sub(r"\1", heading).replace("`", "").lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", each).strip().replace(" ", "-") for each in words}


def blocks(text: str, language: str = "sh") -> list[str]:
    """Return the fenced blocks of a language, without the indentation that they have in a list."""
    return [
        re.sub(rf"^{found[1]}", "", found[3], flags=re.MULTILINE)
        for found in _FENCE.finditer(text)
        if found[2] == language
    ]


def pages_of_kind(*kinds: str) -> list[Path]:
    """Return the pages that docs/index.md lists under these headings."""
    found = []
    for section in text_of(Path("docs/index.md")).split("\n## ")[1:]:
        title, _, rest = section.partition("\n")
        if title in kinds:
            found += [Path("docs") / link for link in links(rest)]
    return found


def unlinked_first_use(text: str, term: str) -> str:
    """Return the line in which a term is first used in the prose of a page, or "" if the term is
    part of a link there. Headings and rows of tables do not count. term: a regular expression."""
    plain = re.sub(r"^[#|].*$", lambda found: " " * len(found[0]), prose(text), flags=re.MULTILINE)
    every = list(_LINK.finditer(plain))
    for found in re.finditer(rf"\b{term}\b".replace(" ", r"\s+"), plain, re.IGNORECASE):
        place = found.start()
        if any(link.start(2) <= place < link.end(2) for link in every):
            continue
        if any(link.start(1) <= place < link.end(1) for link in every):
            return ""
        return text[text.rfind("\n", 0, place) + 1 : text.find("\n", place)]
    return ""
