"""Escaping for GitHub-flavoured Markdown, by which text makes no markup, no link and no mention.

Punctuation is escaped. Escapes do not stop GitHub from searching the rendered page for @names,
#123, commit hashes and addresses. A word in which GitHub would find one of these becomes code,
which GitHub does not search.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

# An underscore inside a word is no markup.
_PUNCTUATION = re.compile(r"[\\`*\[\]<>&~!]|(?<![^\W_])_|_(?![^\W_])")
# Markup at the beginning of a line: headings, lists, quotes, rules and underlines.
_BEGINNING = re.compile(r"^([-+=#>:]|\d{1,9}(?=[.)]))")
# Words, and bars by themselves: code inside a table cannot hold a bar.
_WORD = re.compile(r"[^\s|]+|\||\s+")
_FOUND_BY_GITHUB = re.compile(
    r"""
      [@#$]                             # names, issues, addresses of mail, formulas
    | :// | www\. | mailto: | xmpp:     # addresses
    | :[\w+-]+:                         # emoji
    | \bGH-\d                           # issues
    | \b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{7,}\b      # commits
    """,
    re.IGNORECASE | re.VERBOSE,
)


def inline(text: str, in_table: bool = False) -> str:
    """Return a line as Markdown. text: has no control characters. in_table: whether the line
    becomes a cell."""
    parts = [_part(word) for word in _WORD.findall(text)]
    escaped = "".join(parts).strip()
    return escaped if in_table else _BEGINNING.sub(_at_the_beginning, escaped)


def html(text: str) -> str:
    """Return a line as the text of an HTML element."""
    words = (_html(word) for word in re.findall(r"\S+|\s+", text))
    return "".join(words)


def fenced(lines: Iterable[str]) -> str:
    """Return printed output in a fence of more backticks than any run in the output."""
    text = "\n".join(lines)
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}text\n{text}\n{fence}"


def _part(word: str) -> str:
    if word == "|":
        return "&#124;"
    if word.isspace():
        return " "
    return _code(word) if _FOUND_BY_GITHUB.search(word) else _PUNCTUATION.sub(r"\\\g<0>", word)


def _html(word: str) -> str:
    text = escape(word)
    return f"<code>{text}</code>" if _FOUND_BY_GITHUB.search(word) else text


def _code(word: str) -> str:
    """Return a word as code. A backtick at an end needs a space, which Markdown does not show."""
    fence = "`" * (_longest_run(word) + 1)
    space = " " if word.startswith("`") or word.endswith("`") else ""
    return f"{fence}{space}{word}{space}{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _at_the_beginning(found: re.Match[str]) -> str:
    mark = found[0]
    return f"{mark}\\" if mark.isdigit() else f"\\{mark}"
