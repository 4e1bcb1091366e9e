"""Text in GitHub-flavoured Markdown that stays what it is: no markup, no link, and nobody called.

Punctuation is escaped. That does not keep GitHub from what it looks for in the finished page, such
as @names, #123, hashes of commits and addresses, so words in which it would find something become
code, in which it looks for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

# An underscore within a word is one.
_PUNCTUATION = re.compile(r"[\\`*\[\]<>&~!]|(?<![^\W_])_|_(?![^\W_])")
# At the beginning of a line: headings, lists, quotes, rules and underlines.
_BEGINNING = re.compile(r"^([-+=#>:]|\d{1,9}(?=[.)]))")
# Words, and the bars between cells, which no code can hold in a table.
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
    """text: a line without control characters. in_table: whether it becomes a cell."""
    parts = [_part(word) for word in _WORD.findall(text)]
    escaped = "".join(parts).strip()
    return escaped if in_table else _BEGINNING.sub(_at_the_beginning, escaped)


def html(text: str) -> str:
    """The same as text of an HTML element."""
    words = (_html(word) for word in re.findall(r"\S+|\s+", text))
    return "".join(words)


def fenced(lines: Iterable[str]) -> str:
    """Output as it was printed, in a fence that it does not hold."""
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
    """As code. A backtick at an end needs a space, which is not shown."""
    fence = "`" * (_longest_run(word) + 1)
    space = " " if word.startswith("`") or word.endswith("`") else ""
    return f"{fence}{space}{word}{space}{fence}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _at_the_beginning(found: re.Match[str]) -> str:
    mark = found[0]
    return f"{mark}\\" if mark.isdigit() else f"\\{mark}"
