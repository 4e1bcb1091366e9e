"""The styles, scripts and drawing libraries that every page contains, with their hashes.

A browser recognises the page's own scripts by the hashes and runs no other that the page may hold.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

PAGE = Path(__file__).parent / "report" / "page"
VENDOR = PAGE / "vendor"
# Scripts that run before the page is seen, and after it has been read; start.js has to be the last.
EARLY = ("page.js", "theme.js")
LATE = (
    "tables.js",
    "config.js",
    "plots.js",
    "downloads.js",
    "address.js",
    "sorting.js",
    "filters.js",
    "start.js",
)

# Text in which a browser that reads a script or a style would see more than text.
_UNSAFE = re.compile(r"<!--|</?(?:script|style)|\r", re.IGNORECASE)
_SOURCE_MAP = re.compile(r"\n//# sourceMappingURL=\S*\s*\Z")

Theme = Mapping[str, Any]


@dataclass(frozen=True)
class Assets:
    """The text that every page contains. libraries: their entries in vendor.toml, with their
    "packed" script (gzip, base64) and "licence". policy: the page's Content-Security-Policy, which
    names every script and style in the page, and those that plots.js unpacks."""

    style: Markup
    early: Sequence[Markup]
    libraries: Sequence[Mapping[str, str]]
    late: Sequence[Markup]
    themes: Markup
    policy: str


@cache
def themes() -> Mapping[str, Theme]:
    """Return the colours of the page and of its plots, by the theme's name."""
    found: Mapping[str, Theme] = json.loads((PAGE / "themes.json").read_text(encoding="utf-8"))
    return found


@cache
def assets() -> Assets:
    """Return what a page contains."""
    style = _safe(_colours() + (PAGE / "page.css").read_text(encoding="utf-8"))
    early = [_script(PAGE / name) for name in EARLY]
    late = [_script(PAGE / name) for name in LATE]
    libraries = [_library(copy) for copy in copies()]
    unpacked = [_script(VENDOR / copy["file"]) for copy in copies()]
    policy = _policy(style, [*early, *late, *unpacked])
    return Assets(style, early, libraries, late, json_text(themes()), policy)


def copies() -> list[Mapping[str, str]]:
    """Return the libraries' entries in vendor.toml, in the order in which they are loaded."""
    content = tomllib.loads((PAGE / "vendor.toml").read_text(encoding="utf-8"))
    found: list[Mapping[str, str]] = content["copies"]
    return found


def json_text(value: object) -> Markup:
    """Return JSON for a <script>. No text in the JSON can end the element."""
    return Markup(json.dumps(value, separators=(",", ":")).replace("<", "\\u003c"))


def _library(copy: Mapping[str, str]) -> Mapping[str, str]:
    licence = (VENDOR / copy["licence"]).read_text(encoding="utf-8")
    packed = gzip.compress(_script(VENDOR / copy["file"]).encode(), mtime=0)
    return {**copy, "packed": base64.b64encode(packed).decode(), "licence": licence}


def _script(path: Path) -> Markup:
    # Without the address of a source map, which a browser with open developer tools would load.
    return _safe(_SOURCE_MAP.sub("\n", path.read_text(encoding="utf-8")))


def _safe(text: str) -> Markup:
    found = _UNSAFE.search(text)
    assert found is None, f"{found[0]!r} cannot stand in a script or a style of a page"
    return Markup(text)


def _colours() -> str:
    """Return the colours as custom properties: dark if that is preferred, but never on paper."""
    light, dark = (
        "".join(f"--{key.replace('_', '-')}:{value};" for key, value in theme.items() if _is(value))
        for theme in (themes()["light"], themes()["dark"])
    )
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root{{color-scheme:dark;{dark}}}}}\n"
    )


def _is(value: object) -> bool:
    return isinstance(value, str) and value.startswith("#")


def _policy(style: str, scripts: Sequence[str]) -> str:
    allowed = " ".join(map(_hash, scripts)) or "'none'"
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {allowed}",
            f"style-src {_hash(style)}",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
